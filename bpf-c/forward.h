/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* forward.h: where a judged packet goes, and how it gets there.
 *
 * fwd_resolve decides from the routes map; the decision is kept in the conntrack entry until the
 * agent raises route_epoch. fwd_check refuses what can not be sent (hop limit, MTU). fwd_send lets
 * go of the packet. What we do not know goes to the kernel's stack, never into the void. */
#ifndef FELIX_FORWARD_H
#define FELIX_FORWARD_H

#include "rewrite.h"
#include "conntrack.h"

struct fwd_dst {
	__u32 kind;    /* enum cali_fwd */
	__u32 ifindex; /* local pod's veth */
	struct cali_ip_any tun;
	bool tun_v6;
};

/* What has been done to a packet that is about to leave. */
enum fwd_xlate {
	XLATE_NONE = 0,
	XLATE_DNAT = 1,  /* to a backend */
	XLATE_UNNAT = 2, /* back to the client, from the address it knows */
};

/* The way to an address. What has been translated can not take the ordinary way out: the kernel's
 * source and reverse-path checks would reject it. */
INLINE void fwd_resolve(struct fwd_dst *d, const struct cali_route_value *rt, enum fwd_xlate xlate,
			const struct cali_globals *g)
{
	__u32 flags = rt ? rt->flags : 0;

	d->ifindex = 0;
	d->tun_v6 = false;
	d->tun.w[0] = d->tun.w[1] = d->tun.w[2] = d->tun.w[3] = 0;
	d->kind = CALI_FWD_STACK;
	if (!CAN_FIB)
		return;
	if (rt && rt_local_pod(flags)) {
		d->kind = flags & CALI_RT_SKIP_FAST_PATH ? CALI_FWD_VETH : CALI_FWD_PEER;
		d->ifindex = rt->ifindex;
		return;
	}
	if (flags & CALI_RT_LOCAL) {
		if (CAN_NATOUT && xlate == XLATE_UNNAT && g->natout_ifindex)
			d->kind = CALI_FWD_NATOUT;
		return;
	}
	if (rt && (flags & (CALI_RT_WORKLOAD | CALI_RT_HOST))) {
		/* A pod's address may mean nothing to the network between the nodes, so what pods send to
		 * other nodes goes by the overlay too. From outside to a backend of another node: the
		 * client's address is kept, so the reply must come back here, and so the tunnel is used
		 * whatever the overlay. */
		bool tunnel = (flags & CALI_RT_TUNNELED && (flags & CALI_RT_WORKLOAD || xlate == XLATE_DNAT ||
							    (IS_WEP && xlate == XLATE_NONE))) ||
			      (xlate == XLATE_DNAT && IS_HEP);

		if (tunnel && CAN_ENCAP && (rt->next_hop.w[0] | rt->next_hop.w[3])) {
			d->kind = CALI_FWD_TUNNEL;
			d->tun = rt->next_hop;
			d->tun_v6 = flags & CALI_RT_NEXT_HOP_V6;
			return;
		}
		if (flags & CALI_RT_WORKLOAD || xlate != XLATE_NONE) {
			d->kind = CALI_FWD_FIB;
			return;
		}
	}
	/* Out of the cluster: replies as the client knows them go straight out; what a pod sends is the
	 * kernel's, which may have to masquerade it. */
	if (xlate == XLATE_UNNAT || (xlate == XLATE_DNAT && !IS_WEP))
		d->kind = CALI_FWD_FIB;
}

/* Whether this program is the hop that lowers the hop limit; elsewhere the kernel is, or nobody. */
INLINE bool is_hop(__u32 kind)
{
	return kind != CALI_FWD_STACK && kind != CALI_FWD_NATOUT;
}

/* What keeps a packet from being sent, if anything. */
enum fwd_problem {
	FWD_OK = 0,
	FWD_TTL = 1,     /* time exceeded */
	FWD_TOO_BIG = 2, /* *mtu says how big it may be */
};

/* Next hop of a packet that leaves by the FIB. */
struct fib_hop {
	__u32 ifindex;
	struct bpf_redir_neigh nh;
};

/* Asks the kernel's FIB for the next hop of a packet from src to dst. *kind becomes CALI_FWD_STACK where
 * the kernel knows better (local, blackhole, no route, too big but may be fragmented). */
INLINE enum fwd_problem fib_lookup(struct __sk_buff *skb, const struct pkt *p, const struct cali_ip *src,
				   const struct cali_ip *dst, struct fib_hop *hop, __u32 *kind, __u32 *mtu)
{
	__u32 len = wire_len(skb, p);
	struct bpf_fib_lookup fib;
	long rc;

	zero(fib);
#if IS_V6
	fib.family = 10; /* AF_INET6 */
	__builtin_memcpy(fib.ipv6_src, src, sizeof(*src));
	__builtin_memcpy(fib.ipv6_dst, dst, sizeof(*dst));
#else
	fib.family = 2; /* AF_INET */
	fib.ipv4_src = src->w[0];
	fib.ipv4_dst = dst->w[0];
#endif
	fib.l4_protocol = p->proto;
	fib.tot_len = len;
	fib.ifindex = skb->ifindex;
	/* The full lookup, with policy rules, as for a packet that came in here. */
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (rc == BPF_FIB_LKUP_RET_FRAG_NEEDED && p->df) {
		/* Since 5.12 the field comes back as the route's MTU; before, 1280 always gets through. */
		*mtu = fib.tot_len && fib.tot_len < len ? fib.tot_len : 1280;
		return FWD_TOO_BIG;
	}
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH) {
		*kind = CALI_FWD_STACK;
		return FWD_OK;
	}
	hop->ifindex = fib.ifindex;
	zero(hop->nh);
	hop->nh.nh_family = fib.family;
	if (fib.family == 2)
		hop->nh.ipv4_nh = fib.ipv4_dst;
	else
		__builtin_memcpy(hop->nh.ipv6_nh, fib.ipv6_dst, sizeof(hop->nh.ipv6_nh));
	return FWD_OK;
}

/* Before anything is rewritten: can the packet go the way of *kind, from src to dst? */
INLINE enum fwd_problem fwd_check(struct __sk_buff *skb, const struct pkt *p, const struct cali_ip *src,
				  const struct cali_ip *dst, __u32 *kind, const struct cali_globals *g,
				  struct fib_hop *hop, __u32 *mtu)
{
	__u32 limit;

	if (!is_hop(*kind) || IS_TO)
		return FWD_OK; /* the kernel does both */
	if (p->ttl <= 1)
		return FWD_TTL;
	if (CAN_FIB && *kind == CALI_FWD_FIB)
		return fib_lookup(skb, p, src, dst, hop, kind, mtu);
	limit = *kind == CALI_FWD_TUNNEL ? g->tunnel_mtu : g->pod_mtu;
	/* An IPv4 packet that may be fragmented is: by the kernel, on the outer header or by the pod's
	 * neighbour; only what must not be is refused. */
	if (limit && p->df && wire_len(skb, p) > limit) {
		*mtu = limit;
		return FWD_TOO_BIG;
	}
	return FWD_OK;
}

/* Gives the packet its tunnel key. 5.10 knows fewer fields than today's struct: pass the old size. */
INLINE bool set_tunnel_key(struct __sk_buff *skb, const struct cali_ip_any *peer, bool v6,
			   const struct cali_globals *g)
{
	struct bpf_tunnel_key key;
	__u64 flags;

	zero(key);
	key.tunnel_id = g->vni;
	key.tunnel_ttl = 64;
	if (v6) {
		key.remote_ipv6[0] = peer->w[0];
		key.remote_ipv6[1] = peer->w[1];
		key.remote_ipv6[2] = peer->w[2];
		key.remote_ipv6[3] = peer->w[3];
		flags = BPF_F_TUNINFO_IPV6; /* zero UDP checksums over IPv6 are dropped by many receivers */
	} else {
		key.remote_ipv4 = bpf_ntohl(peer->w[0]);
		flags = BPF_F_ZERO_CSUM_TX;
	}
	return bpf_skb_set_tunnel_key(skb, &key, offsetof(struct bpf_tunnel_key, local_ipv4), flags) == 0;
}

INLINE int send_tunnel(struct __sk_buff *skb, const struct cali_ip_any *peer, bool v6,
		       const struct cali_globals *g)
{
	if (!g->tunnel_ifindex)
		return drop(skb, CALI_DROP_NO_ROUTE);
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	if (!set_tunnel_key(skb, peer, v6, g))
		return drop(skb, CALI_DROP_REWRITE);
	set_mark(skb, CALI_MARK_BYPASS);
	count(skb, CALI_COUNT_REDIRECT_TUNNEL);
	return bpf_redirect(g->tunnel_ifindex, 0);
}

INLINE int send_fib(struct __sk_buff *skb, struct fib_hop *hop)
{
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	set_mark(skb, CALI_MARK_BYPASS);
	count(skb, CALI_COUNT_REDIRECT_NEIGH);
	return bpf_redirect_neigh(hop->ifindex, &hop->nh, sizeof(hop->nh), 0);
}

/* Into a local pod's veth by its egress hook: the pod's own program judges the packet. */
INLINE int send_veth(struct __sk_buff *skb, __u32 ifindex, const struct cali_ip *dst)
{
	struct bpf_redir_neigh nh;

	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	zero(nh);
#if IS_V6
	nh.nh_family = 10;
	__builtin_memcpy(nh.ipv6_nh, dst, sizeof(*dst));
#else
	nh.nh_family = 2;
	nh.ipv4_nh = dst->w[0];
#endif
	set_mark(skb, CALI_MARK_SEEN);
	count(skb, CALI_COUNT_REDIRECT_NEIGH);
	return bpf_redirect_neigh(ifindex, &nh, sizeof(nh), 0);
}

/* Straight into a local pod, past the program of its veth: only for flows that both ends approved. */
INLINE int send_peer(struct __sk_buff *skb, __u32 ifindex, struct cali_counter_row *r)
{
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	skb->mark = 0; /* it would be seen inside the pod */
	bump(skb, r, CALI_COUNT_REDIRECT_PEER);
	return bpf_redirect_peer(ifindex, 0);
}

/* To the kernel's stack. nat_out: out of the cluster, where a pod's address means nothing; the agent's
 * netfilter chain masquerades by the mark. */
INLINE int send_stack(struct __sk_buff *skb, bool nat_out)
{
	set_mark(skb, nat_out ? CALI_MARK_NAT_OUT : IS_WEP ? CALI_MARK_STACK : CALI_MARK_SEEN);
	return pass(skb, CALI_COUNT_TO_STACK);
}

/* Into this host's stack as if it came in by bpfout.cali: with the mark BYPASS for delivery, with none to
 * be balanced by the program there. */
INLINE int send_natout(struct __sk_buff *skb, const struct cali_globals *g, __u32 mark)
{
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	if (!g->natout_ifindex) /* the pair went a moment ago */
		return mark ? send_stack(skb, false) : pass(skb, CALI_COUNT_TO_STACK);
	set_mark(skb, mark);
	count(skb, CALI_COUNT_REDIRECT_NATOUT);
	return bpf_redirect(g->natout_ifindex, BPF_F_INGRESS);
}

#endif
