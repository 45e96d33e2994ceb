/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ctlb.h: what the programs at connect time read and write of a socket, whichever the family: its
 * destination, who it belongs to, and the records of its translation.
 *
 * ctlb.c is compiled three times: for IPv4 (hooks 4), IPv6 (hooks 6), and with MAPPED for the IPv4-mapped
 * destinations of IPv6 sockets, which come by the hooks 6 and mean the tables of IPv4.
 *
 * Everything is on the stack: TC programs run on top of these at any time, so nothing here may be per CPU. */
#ifndef FELIX_CTLB_H
#define FELIX_CTLB_H

#define CTLB_MAPS
#include "addr.h"
#include "balance.h"
#include "route.h"

/* Load-time constants, by their field of struct cali_ctlb_config. */
#define CFG(field) LOAD_CONSTANT(struct cali_ctlb_config, field)

#ifndef MAPPED
#define MAPPED 0
#endif

/* linux/socket.h, errno.h */
#define AF_INET      2
#define ECONNREFUSED 111
#define EHOSTUNREACH 113
#define EADDRINUSE   98

/* What a cgroup program returns: the call goes on, or fails. */
#define ALLOW  1
#define REFUSE 0

#define has(flag) (CFG(flags) & (flag))

/* ---- addresses ---- */

/* Reads the address of the call. False: it is of another object's family. */
INLINE bool read_addr(struct bpf_sock_addr *ctx, struct cali_ip *a)
{
#if MAPPED
	if (ctx->user_ip6[2] != bpf_htonl(0xffff) || ctx->user_ip6[0] || ctx->user_ip6[1])
		return false;
	a->w[0] = ctx->user_ip6[3];
#elif IS_V6
	a->w[0] = ctx->user_ip6[0];
	a->w[1] = ctx->user_ip6[1];
	a->w[2] = ctx->user_ip6[2];
	a->w[3] = ctx->user_ip6[3];
	if (a->w[2] == bpf_htonl(0xffff) && !a->w[0] && !a->w[1])
		return false;
#else
	a->w[0] = ctx->user_ip4;
#endif
	return true;
}

INLINE void write_addr(struct bpf_sock_addr *ctx, const struct cali_ip *a, __be16 port_be)
{
#if MAPPED
	ctx->user_ip6[3] = a->w[0];
#elif IS_V6
	ctx->user_ip6[0] = a->w[0];
	ctx->user_ip6[1] = a->w[1];
	ctx->user_ip6[2] = a->w[2];
	ctx->user_ip6[3] = a->w[3];
#else
	ctx->user_ip4 = a->w[0];
#endif
	ctx->user_port = port_be;
}

/* 127.0.0.0/8, 0.0.0.0, ::1 and ::, which a connection to this very host may use. */
INLINE bool is_loopback(const struct cali_ip *a)
{
#if IS_V6
	return !(a->w[0] | a->w[1] | a->w[2]) && (!a->w[3] || a->w[3] == bpf_htonl(1));
#else
	return !a->w[0] || (a->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
#endif
}

INLINE struct cali_ip loopback(void)
{
#if IS_V6
	return (struct cali_ip){.w = {0, 0, 0, bpf_htonl(1)}};
#else
	return (struct cali_ip){.w = {bpf_htonl(0x7f000001)}};
#endif
}

INLINE bool is_probe(const struct cali_ip *a, __be16 port_be)
{
	if (a->w[IP_WORDS - 1] != bpf_htonl(CALI_CTLB_PROBE_ADDR) ||
	    port_be != bpf_htons(CALI_CTLB_PROBE_PORT))
		return false;
#if IS_V6
	return a->w[0] == bpf_htonl(0xfe800000) && !(a->w[1] | a->w[2]);
#else
	return true;
#endif
}

/* ---- whose socket it is ---- */

struct owner {
	__u64 netns; /* cookie of its network namespace; 0: the kernel does not tell */
	bool host;   /* it is the host's */
};

INLINE struct owner owner_of(void *ctx)
{
	struct owner o = {};

	if (has(CALI_CTLB_NETNS_COOKIE))
		o.netns = bpf_get_netns_cookie(ctx);
	o.host = o.netns && o.netns == CFG(host_netns);
	return o;
}

/* The frontend that a destination means, or NULL: none, or not for this socket. Most destinations are no
 * service's and cost two lookups. */
INLINE struct cali_fe_value *frontend(struct bpf_sock_addr *ctx, const struct cali_ip *dst, __be16 port_be,
				      __u8 proto)
{
	struct cali_fe_value *fe = fe_lookup(dst, port_be, proto);
	bool own = false;

	if (!fe) {
		struct cali_route_value *rt;

		/* A NodePort, if this is a node: another one, or this one by its loopback. Own addresses
		 * on which NodePorts are served have entries of their own. */
		fe = fe_lookup_any_node(port_be, proto);
		if (!fe)
			return NULL;
		own = is_loopback(dst);
		if (!own) {
			rt = route_lookup(dst);
			if (!rt || !rt_remote_host(rt->flags))
				return NULL;
		}
	}
	if (fe->flags & CALI_FE_NO_SOCKET_LB)
		return NULL;
	/* A pod's loopback is the pod. */
	if ((own || has(CALI_CTLB_HOST_ONLY)) && !owner_of(ctx).host)
		return NULL;
	if (has(CALI_CTLB_OPT_OUTS)) {
		__u64 netns = owner_of(ctx).netns;

		if (bpf_map_lookup_elem(&cali_ctlb_off2, &netns))
			return NULL;
	}
	return fe;
}

/* ---- records ---- */

/* Key of a socket's record, both in ct_nats (address: the backend) and in srmsg (the service). */
INLINE void sock_key(struct cali_sock_key *k, __u64 cookie, const struct cali_ip *addr, __be16 port_be,
		     __u8 proto)
{
	k->cookie[0] = cookie;
	k->cookie[1] = cookie >> 32;
	k->addr = *addr;
	k->port_be = port_be;
	k->proto = proto;
	k->spare = 0;
}

/* Notes where a UDP socket's records are, in the place of the oldest. */
INLINE void note_dst(struct bpf_sock *sk, const struct cali_ip *dst, __be16 port_be)
{
	struct cali_sock_dsts *d;
	struct cali_sock_dst *at;

	if (!sk)
		return;
	d = bpf_sk_storage_get(&FAM(sock_dst), sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!d)
		return;
#pragma unroll
	for (int i = 0; i < CALI_SOCK_DST_MAX; i++) {
		if (d->dst[i].port_be == port_be && ip_equal(&d->dst[i].addr, dst))
			return;
	}
	at = &d->dst[d->next++ & (CALI_SOCK_DST_MAX - 1)];
	at->addr = *dst;
	at->port_be = port_be;
}

/* What a socket asked for, by the backend it talks to: TC and the replies need it. */
INLINE long record_asked(__u64 cookie, const struct cali_ip *dst, __be16 port_be, __u8 proto,
			 const struct cali_fe_value *fe, const struct cali_be_value *be)
{
	struct cali_sock_value v = {
	    .addr = *dst, .port_be = port_be, .svc_id = fe->svc_id, .backend_id = be->id};
	struct cali_sock_key k;

	sock_key(&k, cookie, &be->addr, be->port_be, proto);
	return bpf_map_update_elem(&FAM(ct_nats), &k, &v, BPF_ANY);
}

/* The backend that a UDP socket has for a service. */
INLINE long record_choice(struct bpf_sock_addr *ctx, const struct cali_sock_key *forward,
			  const struct cali_fe_value *fe, const struct cali_be_value *be)
{
	struct cali_sock_value v = {
	    .addr = be->addr, .port_be = be->port_be, .svc_id = fe->svc_id, .backend_id = be->id};

	note_dst(ctx->sk, &forward->addr, forward->port_be);
	return bpf_map_update_elem(&FAM(srmsg), forward, &v, BPF_ANY);
}

/* Removes a UDP socket's two records of a service. */
INLINE void forget_choice(struct cali_sock_key *forward, __u64 cookie)
{
	struct cali_sock_value *v = bpf_map_lookup_elem(&FAM(srmsg), forward);
	struct cali_sock_key k;

	if (!v)
		return;
	sock_key(&k, cookie, &v->addr, v->port_be, forward->proto);
	bpf_map_delete_elem(&FAM(ct_nats), &k);
	bpf_map_delete_elem(&FAM(srmsg), forward);
}

/* ---- answers ---- */

/* Fails the call with an error of our choice, where the kernel lets us. Else the call goes on to what it
 * asked for, and TC answers. */
INLINE int fail(int error)
{
	if (!has(CALI_CTLB_SET_RETVAL))
		return ALLOW;
	bpf_set_retval(-error);
	return REFUSE;
}

/* Chooses a backend for a socket. be is NULL where there is none: what the program then returns is the
 * result. What nobody serves is refused at once. Where traffic must stay on this node and nobody serves it
 * here, rule 6 says that it is dropped: a pod's packets are, by TC and with their reason; the host, which has
 * no TC program between itself and the service, is told. */
INLINE int choose(struct bpf_sock_addr *ctx, const struct cali_fe_value *fe, struct cali_be_value **be)
{
	struct client c = {.hz = CFG(hz), .inside = true};

	*be = NULL;
	if (fe->affinity_timeout) {
		c.ak.client.w[0] = owner_of(ctx).netns;
		c.ak.kind = 1;
		c.now = bpf_jiffies64();
	}
	switch (balance(&c, fe, be)) {
	case NAT_NO_BACKEND:
		return fail(ECONNREFUSED);
	case NAT_NO_LOCAL:
		return owner_of(ctx).host ? fail(EHOSTUNREACH) : ALLOW;
	default:
		return ALLOW;
	}
}

#endif
