// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* ctlb.c: services at connect time. Cgroup programs that give a socket its backend when it says where it
 * wants to go, so that no packet of it needs to be translated, and show it the service's address wherever it
 * asks who it talks to.
 *
 *   connect      TCP, and UDP sockets that connect: destination -> backend
 *   sendmsg      UDP sockets that name a destination each time; they keep their backend while it is usable
 *   recvmsg      UDP: source of what was received, backend -> service
 *   getpeername  the same for whoever asks whom he is connected to
 *   release      a socket is closed: its records go
 *   post_bind    a process of the host may not listen on a NodePort
 *
 * There is no getsockname: a socket's own address is never translated. What is not a service's is left alone,
 * whoever may serve it. Programs change only their call's address and the maps; see docs/socket-lb.md. */
#include "ctlb.h"

#define SECTION(hook) SEC("cgroup/" hook)
#if IS_V6 || MAPPED
#define ON(name) SECTION(name "6")
#else
#define ON(name) SECTION(name "4")
#endif

/* A self-test: notes whose socket this is and sends it to the loopback. */
INLINE int probe(struct bpf_sock_addr *ctx, __be16 port_be)
{
	__u64 netns = owner_of(ctx).netns, cookie = bpf_get_socket_cookie(ctx);
	struct cali_ip lo = loopback();

	bpf_map_update_elem(&cali_ctlb_probe2, &cookie, &netns, BPF_ANY);
	write_addr(ctx, &lo, port_be);
	return ALLOW;
}

ON("connect")
int ctlb_connect(struct bpf_sock_addr *ctx)
{
	__u8 proto = ctx->protocol;
	__be16 port_be = ctx->user_port;
	struct cali_fe_value *fe;
	struct cali_be_value *be;
	struct cali_sock_key forward;
	struct cali_ip dst;
	__u64 cookie;
	int verdict;

	if (!read_addr(ctx, &dst))
		return ALLOW;
	if (is_probe(&dst, port_be))
		return probe(ctx, port_be);
	if (proto != IPPROTO_TCP && !(proto == IPPROTO_UDP && has(CALI_CTLB_UDP)))
		return ALLOW;
	fe = frontend(ctx, &dst, port_be, proto);
	if (!fe)
		return ALLOW;
	verdict = choose(ctx, fe, &be);
	if (!be)
		return verdict;
	cookie = bpf_get_socket_cookie(ctx);
	if (proto == IPPROTO_UDP) {
		/* It may also name the service at sendmsg: that must be the same backend. */
		sock_key(&forward, cookie, &dst, port_be, proto);
		forget_choice(&forward, cookie);
		record_choice(ctx, &forward, fe, be);
	}
	if (record_asked(cookie, &dst, port_be, proto, fe, be))
		return ALLOW; /* replies would not show the service: TC translates them */
	write_addr(ctx, &be->addr, be->port_be);
	return ALLOW;
}

/* The backend that a UDP socket has for fe, if it is still usable. */
INLINE struct cali_be_value *same_backend(struct cali_sock_key *forward, __u64 cookie,
					  const struct cali_fe_value *fe)
{
	struct cali_sock_value *v = bpf_map_lookup_elem(&FAM(srmsg), forward);
	struct cali_be_value *be;
	struct cali_sock_key k;

	if (!v)
		return NULL;
	be = v->svc_id == fe->svc_id ? be_again(v->svc_id, v->backend_id, fe_local(fe, true)) : NULL;
	if (!be) {
		forget_choice(forward, cookie);
		return NULL;
	}
	/* The record that the replies need may be gone from the LRU, or be another service's with the same
	 * backend: the reply is whose question was last. */
	sock_key(&k, cookie, &be->addr, be->port_be, IPPROTO_UDP);
	v = bpf_map_lookup_elem(&FAM(ct_nats), &k);
	if (!(v && ip_equal(&v->addr, &forward->addr) && v->port_be == forward->port_be) &&
	    record_asked(cookie, &forward->addr, forward->port_be, IPPROTO_UDP, fe, be))
		return NULL;
	return be;
}

ON("sendmsg")
int ctlb_sendmsg(struct bpf_sock_addr *ctx)
{
	__be16 port_be = ctx->user_port;
	struct cali_fe_value *fe;
	struct cali_be_value *be;
	struct cali_sock_key forward;
	struct cali_ip dst;
	__u64 cookie;
	int verdict;

	if (ctx->protocol != IPPROTO_UDP || !read_addr(ctx, &dst))
		return ALLOW;
	fe = frontend(ctx, &dst, port_be, IPPROTO_UDP);
	if (!fe)
		return ALLOW;
	cookie = bpf_get_socket_cookie(ctx);
	sock_key(&forward, cookie, &dst, port_be, IPPROTO_UDP);
	be = same_backend(&forward, cookie, fe);
	if (!be) {
		verdict = choose(ctx, fe, &be);
		if (!be)
			return verdict;
		if (record_asked(cookie, &dst, port_be, IPPROTO_UDP, fe, be) ||
		    record_choice(ctx, &forward, fe, be))
			return ALLOW;
	}
	write_addr(ctx, &be->addr, be->port_be);
	return ALLOW;
}

/* What the socket asked for, by whom it talks to; NULL: it asked for just that. */
INLINE struct cali_sock_value *asked(struct bpf_sock_addr *ctx, struct cali_sock_key *k, __u8 proto)
{
	struct cali_ip from;

	if (!read_addr(ctx, &from))
		return NULL;
	sock_key(k, bpf_get_socket_cookie(ctx), &from, ctx->user_port, proto);
	return bpf_map_lookup_elem(&FAM(ct_nats), k);
}

/* Runs for every UDP receive of the node that wants to know the source: one lookup decides. */
ON("recvmsg")
int ctlb_recvmsg(struct bpf_sock_addr *ctx)
{
	struct cali_sock_key k;
	struct cali_sock_value *v = asked(ctx, &k, IPPROTO_UDP);
	struct cali_ip addr;
	__be16 port_be;

	if (!v)
		return ALLOW;
	addr = v->addr;
	port_be = v->port_be;
	if (!fe_lookup(&addr, port_be, IPPROTO_UDP) && !fe_lookup_any_node(port_be, IPPROTO_UDP)) {
		/* The service is gone: what comes now is from the backend in its own name. */
		struct cali_sock_key forward;

		sock_key(&forward, (__u64)k.cookie[1] << 32 | k.cookie[0], &addr, port_be, IPPROTO_UDP);
		bpf_map_delete_elem(&FAM(srmsg), &forward);
		bpf_map_delete_elem(&FAM(ct_nats), &k);
		return ALLOW;
	}
	write_addr(ctx, &addr, port_be);
	return ALLOW;
}

ON("getpeername")
int ctlb_getpeername(struct bpf_sock_addr *ctx)
{
	struct cali_sock_key k;
	struct cali_sock_value *v = asked(ctx, &k, ctx->protocol);

	if (v)
		write_addr(ctx, &v->addr, v->port_be);
	return ALLOW;
}

#if !MAPPED /* those of IPv4 see IPv6 sockets with IPv4-mapped addresses, too */

/* A socket is closed. A connected one says whom it talked to; what an unconnected one asked for is noted in
 * the socket. What can not be found so (a TCP connection that was refused has lost its port; a fifth service)
 * is left to the LRU: cookies never come again, so such a record hurts nobody. */
SECTION("sock_release")
int ctlb_release(struct bpf_sock *ctx)
{
	struct cali_sock_dsts *d;
	struct cali_sock_key k;
	struct cali_ip peer;
	__be16 port_be;
	__u64 cookie;

	if (ctx->protocol == IPPROTO_TCP) {
		port_be = ctx->dst_port;
		if (!port_be)
			return ALLOW;
#if IS_V6
		if (ctx->family == AF_INET)
			return ALLOW;
		peer.w[0] = ctx->dst_ip6[0];
		peer.w[1] = ctx->dst_ip6[1];
		peer.w[2] = ctx->dst_ip6[2];
		peer.w[3] = ctx->dst_ip6[3];
#else
		peer.w[0] = ctx->dst_ip4;
#endif
		sock_key(&k, bpf_get_socket_cookie(ctx), &peer, port_be, IPPROTO_TCP);
		bpf_map_delete_elem(&FAM(ct_nats), &k);
		return ALLOW;
	}
	if (ctx->protocol != IPPROTO_UDP)
		return ALLOW;
	d = bpf_sk_storage_get(&FAM(sock_dst), ctx, NULL, 0);
	if (!d)
		return ALLOW;
	cookie = bpf_get_socket_cookie(ctx);
#pragma unroll
	for (int i = 0; i < CALI_SOCK_DST_MAX; i++) {
		if (!d->dst[i].port_be)
			break;
		sock_key(&k, cookie, &d->dst[i].addr, d->dst[i].port_be, IPPROTO_UDP);
		forget_choice(&k, cookie);
	}
	return ALLOW;
}

#endif

#if MAPPED
/* Whether a socket that is bound gets what comes by IPv4: it is bound to any address, or to an IPv4-mapped
 * one. One with IPV6_V6ONLY does not, which can not be seen here. */
INLINE bool takes_ipv4(struct bpf_sock *ctx)
{
	__u32 w2 = ctx->src_ip6[2];

	return !(ctx->src_ip6[0] | ctx->src_ip6[1]) && (w2 == bpf_htonl(0xffff) || (!w2 && !ctx->src_ip6[3]));
}
#endif

/* Listening on a NodePort would look like it worked and never get a connection: rather say so. */
ON("post_bind")
int ctlb_post_bind(struct bpf_sock *ctx)
{
	__u8 proto = ctx->protocol;

#if MAPPED
	if (!takes_ipv4(ctx))
		return ALLOW;
#endif
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) ||
	    !fe_lookup_any_node(bpf_htons(ctx->src_port), proto) || !owner_of(ctx).host)
		return ALLOW;
	if (has(CALI_CTLB_SET_RETVAL))
		bpf_set_retval(-EADDRINUSE);
	return REFUSE;
}

char _license[] SEC("license") = "Dual BSD/GPL";
