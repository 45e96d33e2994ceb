/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* known.h: a packet of a flow that is known and judged goes its way; one that is nobody's is left to the
 * kernel's stack. What main does for most packets, and cali_flow at its end. */
#ifndef FELIX_KNOWN_H
#define FELIX_KNOWN_H

#include "steps.h"

/* Packets that the kernel routed to the tunnel device get their key here. */
INLINE int key_for_tunnel(struct __sk_buff *skb, const struct cali_ip *dst, const struct cali_ct_value *v,
			  __u32 leg, const struct cali_globals *g)
{
	struct cali_route_value *rt;
	struct cali_ip_any tun;
	bool v6;

	if (v && leg && (v->flags & CALI_CTF_TUN_PEER)) {
		tun = v->tun_peer;
		v6 = v->flags & CALI_CTF_TUN_V6;
	} else {
		rt = route_lookup(dst);
		if (!rt || !(rt->next_hop.w[0] | rt->next_hop.w[3]))
			return drop(skb, CALI_DROP_NO_ROUTE);
		tun = rt->next_hop;
		v6 = rt->flags & CALI_RT_NEXT_HOP_V6;
	}
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_UNSPEC;
	if (!set_tunnel_key(skb, &tun, v6, g))
		return drop(skb, CALI_DROP_REWRITE);
	set_mark(skb, CALI_MARK_BYPASS); /* the outer packet is of no interest to the uplink's program */
	return pass(skb, CALI_COUNT_TUNNEL_KEY);
}

/* A flow that main does not know, at a hook that has nothing to do with it. */
INLINE int not_ours(struct __sk_buff *skb, const struct pkt *p, const struct cali_globals *g)
{
	if (NEEDS_TUNNEL_KEY)
		return key_for_tunnel(skb, &p->dst, NULL, 0, g);
	return pass(skb, CALI_COUNT_TO_STACK);
}

/* Whether a translated flow's own packets are rewritten at this hook: where they come in, or, a flow of
 * this host that collided with another, where they leave. */
INLINE bool translates_forth(const struct cali_ct_value *v)
{
	return IS_FROM || (v->flags & CALI_CTF_CONFLICT);
}

/* Whether a packet of a known flow goes straight into another pod of this node, with nothing to be found
 * out before: most of what pods send. */
INLINE bool goes_straight(struct __sk_buff *skb, const struct pkt *p, const struct cali_ct_value *v,
			  __u32 leg, const struct cali_globals *g)
{
	__u32 approved = CALI_CTF_APPROVED_0 | CALI_CTF_APPROVED_1;

	return (CFG(features) & CALI_FEAT_REDIRECT_PEER) && v->epoch == g->route_epoch &&
	       (leg ? v->fwd[1] : v->fwd[0]) == CALI_FWD_PEER && (v->flags & approved) == approved &&
	       p->ttl > 1 && p->proto != PROTO_ICMP &&
	       (!g->pod_mtu || !p->df || wire_len(skb, p) <= g->pod_mtu);
}

/* Sends such a packet. All that established() does for it, in one line of few instructions: what a packet
 * costs is the cache lines it touches, of text as of data. For the same reason it is counted once, where
 * other packets are counted by up to four counters: bpf-go/maps takes the sum apart. */
INLINE int straight(struct __sk_buff *skb, const struct pkt *p, struct cali_ct_value *v, __u32 leg, __u64 now,
		    struct cali_counter_row *r)
{
	bool xlate = v->type == (leg ? CALI_CT_NAT_REV : CALI_CT_NAT_FWD);
	__u32 ifindex = leg ? v->ifindex[0] : v->ifindex[1];

	if (p->proto == IPPROTO_TCP)
		ct_track_seq(&v->leg[leg & 1], p);
	ct_touch(v, leg, p->l3_len, now);
	if (!decrement_ttl(skb))
		return drop(skb, CALI_DROP_REWRITE);
	if (xlate) {
		struct rewrite rw = {.src = v->nat_src,
				     .dst = v->nat_dst,
				     .sport_be = v->nat_sport_be,
				     .dport_be = v->nat_dport_be};

		r->count[leg ? CALI_COUNT_STRAIGHT_UNNAT : CALI_COUNT_STRAIGHT_DNAT]++;
		if (!rewrite_tuple(skb, p, &rw))
			return drop(skb, CALI_DROP_REWRITE);
	} else {
		r->count[CALI_COUNT_STRAIGHT]++;
	}
	skb->mark = 0; /* it would be seen inside the pod */
	return bpf_redirect_peer(ifindex, 0);
}

/* Resolves, checks, rewrites and sends a packet of a known, judged flow. */
INLINE int established(struct __sk_buff *skb, struct pkt *p, struct cali_ct_value *v, __u32 leg,
		       const struct cali_globals *g, __u64 now, struct cali_counter_row *r)
{
	bool xlate = leg ? v->type == CALI_CT_NAT_REV : v->type == CALI_CT_NAT_FWD && translates_forth(v);
	__u32 kind, ifindex = 0, mtu = 0, approved = CALI_CTF_APPROVED_0 | CALI_CTF_APPROVED_1;
	struct cali_ip src, dst;
	enum fwd_problem why;
	enum fwd_xlate how = !xlate ? XLATE_NONE : leg ? XLATE_UNNAT : XLATE_DNAT;
	struct fib_hop hop;
	bool tun_v6, nat_out;

	leg = forget(leg, now) & 1;
	src = xlate ? v->nat_src : p->src;
	dst = xlate ? v->nat_dst : p->dst;

	if (IS_TO && !(CAN_ENCAP && leg && (v->flags & CALI_CTF_TUN_PEER))) {
		kind = CALI_FWD_STACK; /* it is on its way already */
	} else if (IS_TO) {
		kind = CALI_FWD_TUNNEL;
		/* Nobody fragments the outer packet where it is IPv6. */
		if ((g->flags & CALI_GF_UNDERLAY_V6) && wire_len(skb, p) > g->tunnel_mtu)
			return drop(skb, CALI_DROP_TOO_BIG);
	} else {
		if (unlikely(v->epoch != g->route_epoch)) {
			v->fwd[0] = v->fwd[1] = CALI_FWD_UNKNOWN;
			v->epoch = g->route_epoch;
		}
		kind = leg ? v->fwd[1] : v->fwd[0];
		if (unlikely(kind == CALI_FWD_UNKNOWN)) {
			struct cali_route_value *rt = route_lookup(&dst);
			struct fwd_dst d;

			fwd_resolve(&d, rt, how, g);
			if (leg && CAN_ENCAP && (v->flags & CALI_CTF_TUN_PEER))
				d.kind = CALI_FWD_TUNNEL; /* the way it came */
			else if (d.kind == CALI_FWD_TUNNEL) {
				v->tun_peer = d.tun;
				v->flags = (v->flags & ~CALI_CTF_TUN_V6) | (d.tun_v6 ? CALI_CTF_TUN_V6 : 0);
			}
			if (d.kind == CALI_FWD_PEER && (v->flags & CALI_CTF_SKIP_FAST_PATH))
				d.kind = CALI_FWD_VETH;
			/* As the flow came, past the stack or through it: connection tracking that sees
			 * one direction only calls it invalid. */
			if (v->flags & CALI_CTF_VIA_STACK)
				d.kind = CALI_FWD_STACK;
			else if (IS_WEP && leg && d.kind == CALI_FWD_STACK &&
				 !(rt && (rt->flags & CALI_RT_LOCAL)))
				d.kind = CALI_FWD_FIB;
			kind = d.kind;
			/* Other CPUs look at the kind first. */
			if (leg) {
				WRITE_ONCE(v->ifindex[0], d.ifindex);
				WRITE_ONCE(v->fwd[1], kind);
			} else {
				WRITE_ONCE(v->ifindex[1], d.ifindex);
				WRITE_ONCE(v->fwd[0], kind);
			}
		}
		kind = READ_ONCE(v->fwd[leg]);
		ifindex = leg ? v->ifindex[0] : v->ifindex[1];
		if (kind == CALI_FWD_PEER && (v->flags & approved) != approved)
			kind = CALI_FWD_VETH;
	}

	xlate = forget(xlate, now) & 1;
	kind = forget(kind, now);
	zero(hop);
	why = fwd_check(skb, p, &src, &dst, &kind, g, &hop, &mtu);
	if (unlikely(why != FWD_OK)) {
		struct cali_state *st = get_state(skb);

		if (!st)
			return drop(skb, CALI_DROP_NO_STATE);
		state_from_pkt(skb, st, p, now);
		return problem(skb, st, why, mtu);
	}
	tun_v6 = v->flags & CALI_CTF_TUN_V6;
	if (!CB(skb, CALI_CB_TRACE)) {
		if (IS_FROM && is_hop(kind) && !decrement_ttl(skb))
			return drop(skb, CALI_DROP_REWRITE);
		if (xlate) {
			struct rewrite rw = {
			    .src = src, .dst = dst, .sport_be = v->nat_sport_be, .dport_be = v->nat_dport_be};

			if (!rewrite_tuple(skb, p, &rw))
				return drop(skb, CALI_DROP_REWRITE);
			bump(skb, r, leg ? CALI_COUNT_UNNAT : CALI_COUNT_DNAT);
		}
	}
	if (NEEDS_TUNNEL_KEY)
		return key_for_tunnel(skb, &dst, v, leg, g);
	nat_out = IS_WEP && IS_FROM && !leg && (v->flags & CALI_CTF_NAT_OUT);
	return send(skb, &dst, kind, ifindex, &hop, &v->tun_peer, tun_v6, nat_out, g, r);
}

#endif
