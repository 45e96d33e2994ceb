// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* tc.c: the life of a packet at a TC hook. Compiled 24 times (variant.h).
 *
 *   preamble -> cali_main -+-> (known flow) ------------------------------> rewrite, forward
 *                          +-> cali_new_flow -> policy -> cali_accepted --> create, rewrite, forward
 *                          +-> cali_icmp_inner (error about a flow) ------> translate, forward
 *                          +-> cali_icmp | cali_rst | cali_drop
 *
 * A known flow never leaves cali_main. Everything else goes on in the next program of the chain,
 * with what is known so far in the per-CPU state. */
#include "steps.h"

/* Packets that are nobody's flow: neighbour discovery, multicast group upkeep, broadcast. */
INLINE bool is_link_business(const struct pkt *p)
{
#if IS_V6
	if (p->proto == IPPROTO_ICMPV6 &&
	    ((p->icmp_type >= 130 && p->icmp_type <= 137) || p->icmp_type == 143))
		return true;
	return (p->dst.w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
#else
	return (p->dst.w[0] & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || p->dst.w[0] == 0xffffffff;
#endif
}

/* Outer tunnel packets: to this host, and from a node of the cluster, or not at all. */
INLINE bool vxlan_outer(struct __sk_buff *skb, const struct pkt *p, const struct cali_globals *g,
			int *verdict)
{
	struct cali_route_value *rt;

	if (p->proto != IPPROTO_UDP || p->dport_be != g->vxlan_port_be)
		return false;
	rt = route_lookup(&p->dst);
	if (!rt || !rt_local_host(rt->flags))
		return false;
	rt = route_lookup(&p->src);
	if (rt && rt_remote_host(rt->flags))
		*verdict = pass(skb, CALI_COUNT_VXLAN_OUTER);
	else
		*verdict = drop(skb, CALI_DROP_TUNNEL_SOURCE);
	return true;
}

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

/* Resolves, checks, rewrites and sends a packet of a known, judged flow. */
INLINE int established(struct __sk_buff *skb, struct pkt *p, struct cali_ct_value *v, __u32 leg,
		       const struct cali_globals *g, __u64 now, struct cali_counter_row *r)
{
	bool xlate = leg ? v->type == CALI_CT_NAT_REV : IS_FROM && v->type == CALI_CT_NAT_FWD;
	__u32 kind, ifindex = 0, mtu = 0, approved = CALI_CTF_APPROVED_0 | CALI_CTF_APPROVED_1;
	struct cali_ip src, dst;
	enum fwd_problem why;
	enum fwd_xlate how = !xlate ? XLATE_NONE : leg ? XLATE_UNNAT : XLATE_DNAT;
	struct fib_hop hop;
	bool tun_v6;

	leg = forget(leg, now) & 1;
	src = xlate ? v->nat_src : p->src;
	dst = xlate ? v->nat_dst : p->dst;

	if (IS_TO && !(CAN_ENCAP && leg && (v->flags & CALI_CTF_TUN_PEER))) {
		kind = CALI_FWD_STACK; /* it is on its way already */
	} else if (IS_TO) {
		kind = CALI_FWD_TUNNEL;
	} else {
		if (unlikely(v->epoch != g->route_epoch)) {
			v->fwd[0] = v->fwd[1] = CALI_FWD_UNKNOWN;
			v->epoch = g->route_epoch;
		}
		kind = leg ? v->fwd[1] : v->fwd[0];
		if (unlikely(kind == CALI_FWD_UNKNOWN)) {
			struct fwd_dst d;

			fwd_resolve(&d, route_lookup(&dst), how);
			if (leg && CAN_ENCAP && (v->flags & CALI_CTF_TUN_PEER))
				d.kind = CALI_FWD_TUNNEL; /* the way it came */
			else if (d.kind == CALI_FWD_TUNNEL) {
				v->tun_peer = d.tun;
				v->flags = (v->flags & ~CALI_CTF_TUN_V6) | (d.tun_v6 ? CALI_CTF_TUN_V6 : 0);
			}
			if (d.kind == CALI_FWD_PEER && (v->flags & CALI_CTF_SKIP_FAST_PATH))
				d.kind = CALI_FWD_VETH;
			if (leg && (v->flags & CALI_CTF_VIA_STACK))
				d.kind = CALI_FWD_STACK;
			kind = d.kind;
			if (leg) {
				v->fwd[1] = kind;
				v->ifindex[0] = d.ifindex;
			} else {
				v->fwd[0] = kind;
				v->ifindex[1] = d.ifindex;
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
		if (IS_FROM && kind != CALI_FWD_STACK && !decrement_ttl(skb))
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
	return send(skb, &dst, kind, ifindex, &hop, &v->tun_peer, tun_v6, g, r);
}

/* Packets at a host's interface that no flow, frontend or pod of ours has to do with: most of what a
 * node sends and receives for itself. They are not worth the long way. */
INLINE bool is_foreign(const struct pkt *p)
{
	struct cali_route_value *rt;

	if (IS_WEP || (IS_TUNNEL && IS_FROM))
		return false;
	if (IS_TO)
		return true;
	if (p->proto != PROTO_ICMP && fe_lookup(&p->dst, p->dport_be, p->proto))
		return false;
	rt = route_lookup(&p->dst);
	return !rt || !rt_local_pod(rt->flags);
}

/* Whether a flow that is not among the confirmed ones is known at all. Its entry may have been confirmed
 * between the two look-ups, so the first is repeated. */
INLINE bool knows_flow(const struct cali_ct_key *key)
{
	return bpf_map_lookup_elem(&FAM(ct_half), key) || bpf_map_lookup_elem(&FAM(ct3), key);
}

/* A packet that can be the first of a flow: any but a TCP segment without SYN, or with an answer in it. */
INLINE bool opens_flow(const struct pkt *p)
{
	return p->proto != IPPROTO_TCP || (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/* Another packet of an established flow, that changes nothing about it. */
INLINE bool plain_packet(struct __sk_buff *skb, const struct pkt *p, const struct cali_ct_value *v, __u32 leg,
			 __u32 now)
{
	if (p->proto == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		return false;
	if (ct_dead(v, now) || ct_twin_due(v, now) || CB(skb, CALI_CB_TRACE))
		return false;
	if (IS_FROM && v->type == CALI_CT_NAT_REV && !leg)
		return false; /* collides with a translated flow */
	if (IS_TO && IS_WEP && !leg && !(v->flags & CALI_CTF_APPROVED_1))
		return false; /* to be judged */
	return true;
}

/* First of all: read the packet, find its flow, and if that is established and this is nothing but
 * another packet of it, send it on. All else goes to the programs behind. */
SEC("tc")
int cali_main(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_counter_row *r;
	struct cali_ct_value *v;
	struct cali_state *st;
	struct cali_ct_key key;
	struct pkt p;
	int verdict = TC_ACT_SHOT, slot = CALI_SLOT_FLOW, rc;
	bool missed = false;
	__u32 leg;
	__u64 now;

	if (!g)
		return FAIL_CLOSED ? drop(skb, CALI_DROP_NO_STATE) : TC_ACT_UNSPEC;
	/* Judged by an earlier program of ours, or made by one. Pods can not set it: the mark is cleared
	 * on the way through the veth. */
	if (has_mark(skb, CALI_MARK_BYPASS))
		return pass(skb, CALI_COUNT_BYPASS);
	if (IS_LO && IS_FROM)
		return TC_ACT_UNSPEC; /* left by lo's egress hook a moment ago */
	if (IS_FROM && (IS_TUNNEL || IS_NAT))
		bpf_skb_change_type(skb, PACKET_HOST); /* inner MACs are meaningless */
	r = counter_row(skb);
	if (r)
		r->count[CALI_COUNT_TOTAL]++;
	/* Before 5.18 a stack slot that some path has not written can not be read on any. */
	zero(p);
	rc = parse(skb, &p, &verdict);
	if (rc == PARSE_VERDICT)
		return verdict;
	now = bpf_jiffies64();
	p.proto = forget(p.proto, now);
	p.l4_off = forget(p.l4_off, now) & 0x3ff; /* parse_l4 has seen that it is at most 512 */
	if (unlikely(rc == PARSE_EXT)) {
		slot = CALI_SLOT_EXT_HEADERS;
	} else {
		if (unlikely(is_link_business(&p)))
			return pass(skb, CALI_COUNT_TO_STACK);
		if (CAN_VXLAN && vxlan_outer(skb, &p, g, &verdict))
			return verdict;
		if (unlikely(p.proto == PROTO_ICMP && icmp_is_error(p.icmp_type))) {
			slot = CALI_SLOT_ICMP_INNER;
		} else {
			bool swapped = ct_key_make(&key, &p.src, &p.dst, p.sport_be, p.dport_be, p.proto, 0);

			v = bpf_map_lookup_elem(&FAM(ct3), &key);
			if (likely(r && v && plain_packet(skb, &p, v, leg = ct_leg(v, swapped), now))) {
				if (!(IS_TO && has_mark(skb, CALI_MARK_SEEN))) {
					if (p.proto == IPPROTO_TCP)
						ct_track_seq(&v->leg[leg & 1], &p);
					ct_touch(v, leg, p.l3_len, now);
				}
				r->count[CALI_COUNT_FAST_PATH]++;
				return established(skb, &p, v, leg, g, now, r);
			}
			if (!v && !knows_flow(&key)) {
				if (is_foreign(&p))
					return not_ours(skb, &p, g);
				if (opens_flow(&p))
					slot = CALI_SLOT_NEW_FLOW;
			} else if (!v) {
				missed = true;
			}
		}
	}
	st = get_state(skb);
	if (!st)
		return drop(skb, CALI_DROP_NO_STATE);
	state_from_pkt(skb, st, &p, now);
	if (missed)
		st->flags |= CALI_ST_NOT_CONFIRMED;
	jump(skb, slot);
	return no_program(skb);
}

/* IPv6 extension headers are walked aside: their loop would cost every packet's verification. */
SEC("tc")
int cali_ext_headers(struct __sk_buff *skb)
{
#if IS_V6
	struct cali_state *st = get_state(skb);
	int verdict = TC_ACT_SHOT;
	struct pkt p;

	if (!st)
		return drop(skb, CALI_DROP_NO_STATE);
	pkt_from_state(&p, st);
	if (walk_ext_headers(skb, &p, &verdict))
		return verdict;
	st->ev.proto = p.proto;
	st->l4_off = p.l4_off;
	/* Through memory: what the verifier knew of the offset would multiply the paths from here. */
	p.l4_off = READ_ONCE(st->l4_off);
	p.proto = READ_ONCE(st->ev.proto);
	if (parse_l4(skb, &p, &verdict))
		return verdict;
	if (is_link_business(&p))
		return pass(skb, CALI_COUNT_TO_STACK);
	state_from_pkt(skb, st, &p, st->now);
	if (p.proto == PROTO_ICMP && icmp_is_error(p.icmp_type))
		jump(skb, CALI_SLOT_ICMP_INNER);
	else
		jump(skb, CALI_SLOT_FLOW);
#endif
	return no_program(skb);
}

/* What main could not settle: half-open flows, the packets that open and close, entries that have
 * timed out or are to be judged, tuples that collide, and flows that are not known at all. */
SEC("tc")
int cali_flow(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	bool swapped, half = false, live;
	struct cali_ct_value *v;
	struct pkt p;
	__u32 leg = 0;

	if (!g || !st)
		return drop(skb, CALI_DROP_NO_STATE);
	pkt_from_state(&p, st);
	if (p.proto == IPPROTO_TCP && (p.tcp_flags & TCP_SYN))
		st->tcp_scale = tcp_scale_option(skb, p.l4_off);
	st->flags |= CALI_ST_FLOW_SEEN;
	swapped = ct_key_make(&st->ct_key, &p.src, &p.dst, p.sport_be, p.dport_be, p.proto, 0);
	if (st->flags & CALI_ST_NOT_CONFIRMED)
		v = ct_find_half(&st->ct_key, &half);
	else
		v = ct_find(&st->ct_key, &half);
	if (IS_FROM && v && v->type == CALI_CT_NAT_REV && !ct_leg(v, swapped) && !ct_dead(v, st->now)) {
		/* A tuple that some translated flow uses behind the NAT, sent by the client itself: a
		 * direct flow with the same numbers. It has a key of its own. */
		st->ct_key.zone = 1;
		st->flags |= CALI_ST_CONFLICT;
		v = ct_find(&st->ct_key, &half);
	}
	if (v && ct_dead(v, st->now)) {
		if (!st->trace)
			ct_delete_flow(&st->ct_key, v);
		v = NULL;
		st->flags |= CALI_ST_EXPIRED;
	}
	live = !st->trace && !(IS_TO && has_mark(skb, CALI_MARK_SEEN));
	if (v && live) {
		leg = forget(ct_leg(v, swapped), st->now) & 1;
		if (p.proto == IPPROTO_TCP) {
			if (p.tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) {
				if (!ct_tcp_event(skb, &st->ct_key, v, leg, half, &p, st->tcp_scale, st->now))
					v = NULL; /* a closed flow's numbers are used again */
			} else {
				ct_track_seq(&v->leg[leg], &p);
			}
		}
	}
	if (!v) {
		jump(skb, CALI_SLOT_NEW_FLOW);
		return no_program(skb);
	}
	leg = forget(ct_leg(v, swapped), st->now) & 1;
	half = forget(half, st->now) & 1;
	if (live) {
		if (ct_twin_due(v, st->now))
			ct_refresh_twin(v, p.proto, st->now);
		ct_touch(v, leg, p.l3_len, st->now);
		if (half && (p.proto == IPPROTO_TCP ? !leg && v->tcp_state == CALI_CT_REPLIED &&
							  (p.tcp_flags & (TCP_ACK | TCP_SYN)) == TCP_ACK
						    : leg)) {
			v = ct_confirm(skb, st, v);
			if (!v) {
				if (FAIL_CLOSED)
					return drop(skb, CALI_DROP_CT_FULL);
				/* Still half-open: goes on from there while it lasts. */
				count(skb, CALI_COUNT_NO_ENTRY_PASS);
				v = bpf_map_lookup_elem(&FAM(ct_half), &st->ct_key);
				if (!v)
					return pass(skb, CALI_COUNT_TO_STACK);
			}
		}
	}
	leg = forget(leg, st->now) & 1;
	if (IS_TO && IS_WEP && !leg && !(v->flags & CALI_CTF_APPROVED_1)) {
		st->flags |= CALI_ST_CT_HIT;
		if (st->policy != CALI_POLICY_ALLOW)
			jump_policy(skb, st);
		else
			jump(skb, CALI_SLOT_ACCEPTED);
		return no_program(skb);
	}
	pkt_from_state(&p, st);
	return established(skb, &p, v, leg, g, st->now, NULL);
}

/* A TCP segment that opens nothing and belongs to nothing we know: a flow from before our time, or of
 * another NAT, or one that is over. Only the last is answered, and only for what is ours to answer. */
INLINE int mid_flow(struct __sk_buff *skb, struct cali_state *st, const struct cali_globals *g, bool ours)
{
	if (!ours || st->now < g->adoption_end) {
		if (IS_FROM)
			set_mark(skb, CALI_MARK_FALLTHROUGH);
		return pass(skb, CALI_COUNT_MIDFLOW_STACK);
	}
	if (st->tcp_flags & TCP_RST) /* never a reset for a reset */
		return drop(skb, CALI_DROP_UNKNOWN_FLOW);
	return answer_rst(skb, CALI_DROP_UNKNOWN_FLOW);
}

/* Finds out what a new flow is: to a service, a pod, this host, or none of our business. */
SEC("tc")
int cali_new_flow(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	struct cali_fe_value *fe = NULL;
	struct cali_route_value *rt, *src_rt = NULL;
	struct fwd_dst d;
	__u32 dst_flags;
	bool syn, translated = false;

	if (!g || !st)
		return drop(skb, CALI_DROP_NO_STATE);
	if (IS_TO && !IS_WEP) {
		struct pkt p;

		pkt_from_state(&p, st);
		return not_ours(skb, &p, g);
	}
	syn = (st->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
	if (st->ev.proto == IPPROTO_TCP && syn && !(st->flags & CALI_ST_FLOW_SEEN))
		st->tcp_scale = tcp_scale_option(skb, st->l4_off);

	if (CAN_DNAT &&
	    (st->ev.proto == IPPROTO_TCP || st->ev.proto == IPPROTO_UDP || st->ev.proto == IPPROTO_SCTP))
		fe = fe_lookup(&st->ev.dst, st->ev.dport_be, st->ev.proto);
	rt = fe ? NULL : route_lookup(&st->ev.dst);
	dst_flags = rt ? rt->flags : 0;
	if (IS_WEP && IS_FROM && !fe && rt_remote_host(dst_flags))
		fe = fe_lookup_any_node(st->ev.dport_be, st->ev.proto);

	if ((st->flags & CALI_ST_EXPIRED) && st->ev.proto == IPPROTO_TCP && !syn)
		return st->tcp_flags & TCP_RST ? drop(skb, CALI_DROP_EXPIRED_FLOW)
					       : answer_rst(skb, CALI_DROP_EXPIRED_FLOW);
	if (st->ev.proto == IPPROTO_TCP && !syn)
		return mid_flow(skb, st, g, fe || rt_local_pod(dst_flags));

	if (fe) {
		enum nat_result nat;

		if (!IS_WEP)
			src_rt = route_lookup(&st->ev.src);
		nat = nat_choose(skb, st, fe,
				 IS_WEP || (src_rt && (src_rt->flags & (CALI_RT_WORKLOAD | CALI_RT_LOCAL))));
		if (nat == NAT_NO_LOCAL)
			return drop(skb, CALI_DROP_NO_LOCAL_BACKEND);
		if (nat == NAT_NO_BACKEND)
			return refuse(skb, st, CALI_DROP_NO_BACKEND);
		if (nat != NAT_CHOSEN)
			return drop(skb, CALI_DROP_BACKEND_MISSING);
		count(skb, CALI_COUNT_SERVICE_NEW);
		translated = true;
		st->flags |= CALI_ST_DNAT;
		rt = route_lookup(&st->ev.post_nat_dst);
		dst_flags = rt ? rt->flags : 0;
		if (IS_WEP && ip_equal(&st->ev.src, &st->ev.post_nat_dst)) {
			/* The pod would not take a packet with its own source from outside. */
			if (!host_ip(g, &st->ev.post_nat_src))
				st->ev.post_nat_src = st->ev.pre_nat_dst;
			st->flags |= CALI_ST_HAIRPIN | CALI_ST_SNAT;
			count(skb, CALI_COUNT_HAIRPIN);
		}
	}
	if (st->flags & CALI_ST_CONFLICT) {
		count(skb, CALI_COUNT_HOST_CONFLICT);
		translated = true;
		st->flags |= CALI_ST_DNAT;
	}
	/* Tunnel packets are made by nodes, never by pods. */
	if (IS_WEP && IS_FROM && st->ev.proto == IPPROTO_UDP && st->ev.dport_be == g->vxlan_port_be &&
	    (dst_flags & CALI_RT_HOST))
		return drop(skb, CALI_DROP_TUNNEL_SOURCE);
	if (dst_flags & CALI_RT_BLACKHOLE)
		return drop(skb, CALI_DROP_BLACKHOLE);
	if (dst_flags & CALI_RT_REJECT)
		return refuse(skb, st, CALI_DROP_BLACKHOLE);

	st->dst_flags = dst_flags;
	if (rt_local_pod(dst_flags)) {
		st->flags |= CALI_ST_DST_LOCAL_POD;
		st->dst_ep_slot = rt ? rt->ep_slot : 0;
	}
	if (IS_WEP && IS_FROM)
		st->src_ep_slot = st->ep_slot;
	if (IS_WEP && IS_TO) {
		st->dst_ep_slot = st->ep_slot;
		src_rt = route_lookup(&st->ev.src);
		if (src_rt && rt_local_host(src_rt->flags))
			st->flags |= CALI_ST_SRC_LOCAL_HOST;
	}
	if (st->iface_flags & CALI_IFF_SKIP_FAST_PATH)
		st->flags |= CALI_ST_SKIP_PEER;

	if (!IS_WEP && !translated && !rt_local_pod(dst_flags)) {
		/* The host's own, or transit: the kernel's. Only a client whose address another node kept
		 * needs an entry: the reply must find its way back through the tunnel. */
		bool keep = IS_TUNNEL && rt_local_host(dst_flags);

		if (keep) {
			src_rt = route_lookup(&st->ev.src);
			keep = !src_rt || !(src_rt->flags & (CALI_RT_WORKLOAD | CALI_RT_HOST));
		}
		if (!keep)
			return pass(skb, CALI_COUNT_TO_STACK);
	}

	fwd_resolve(&d, rt, translated ? XLATE_DNAT : XLATE_NONE);
	if (st->flags & CALI_ST_SKIP_PEER && d.kind == CALI_FWD_PEER)
		d.kind = CALI_FWD_VETH;
	st->fwd = d.kind;
	st->dst_ifindex = d.ifindex;
	if (d.kind == CALI_FWD_TUNNEL) {
		st->tun_peer = d.tun;
		if (d.tun_v6)
			st->flags |= CALI_ST_TUN_V6;
	} else if (IS_TUNNEL && IS_FROM) {
		struct bpf_tunnel_key tk;
		bool v6 = g->flags & CALI_GF_UNDERLAY_V6;

		zero(tk);
		if (!bpf_skb_get_tunnel_key(skb, &tk, offsetof(struct bpf_tunnel_key, local_ipv4),
					    v6 ? BPF_F_TUNINFO_IPV6 : 0)) {
			st->flags |= CALI_ST_TUN_SRC | (v6 ? CALI_ST_TUN_V6 : 0);
			if (v6)
				__builtin_memcpy(&st->tun_peer, tk.remote_ipv6, sizeof(st->tun_peer));
			else
				st->tun_peer.w[0] = bpf_htonl(tk.remote_ipv4);
		}
	}

	/* Nothing to ask where everything is allowed. */
	if (st->policy != CALI_POLICY_ALLOW) {
		jump_policy(skb, st);
		if (FAIL_CLOSED)
			return no_program(skb);
	}
	jump(skb, CALI_SLOT_ACCEPTED);
	return no_program(skb);
}

/* Policy has let the flow in. Its entry is made (or marked as judged), and its first packet sent. */
SEC("tc")
int cali_accepted(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	enum cali_counter reason;
	enum fwd_problem why;
	struct fib_hop hop;
	struct pkt p;
	__u32 mtu = 0, kind;

	if (!g || !st)
		return drop(skb, CALI_DROP_NO_STATE);
	count(skb, CALI_COUNT_POLICY_ALLOW);
	if (st->flags & CALI_ST_CT_HIT) {
		struct cali_ct_value *v = ct_find_any(&st->ct_key);

		if (v && !st->trace)
			v->flags |= CALI_CTF_APPROVED_1;
		return pass(skb, CALI_COUNT_TO_STACK);
	}
	pkt_from_state(&p, st);
	kind = st->fwd;
	zero(hop);
	why = fwd_check(skb, &p, &st->ev.post_nat_src, &st->ev.post_nat_dst, &kind, g, &hop, &mtu);
	if (why != FWD_OK)
		return problem(skb, st, why, mtu);
	if (st->trace)
		return TC_ACT_OK;
	reason = ct_create(skb, st, g);
	if (reason) {
		if (FAIL_CLOSED || (st->flags & (CALI_ST_DNAT | CALI_ST_SNAT)))
			return drop(skb, reason);
		count(skb, CALI_COUNT_NO_ENTRY_PASS); /* the host stays reachable */
	}
	if (IS_TO)
		return pass(skb, CALI_COUNT_TO_STACK);
	if (kind != CALI_FWD_STACK && !decrement_ttl(skb))
		return drop(skb, CALI_DROP_REWRITE);
	if (st->flags & (CALI_ST_DNAT | CALI_ST_SNAT)) {
		struct rewrite rw = {.src = st->ev.post_nat_src,
				     .dst = st->ev.post_nat_dst,
				     .sport_be = st->ev.post_nat_sport_be,
				     .dport_be = st->ev.post_nat_dport_be};

		if (!rewrite_tuple(skb, &p, &rw))
			return drop(skb, CALI_DROP_REWRITE);
		count(skb, CALI_COUNT_DNAT);
	}
	/* The other end has not judged the flow yet: the long way, through its program. */
	if (kind == CALI_FWD_PEER && !(st->flags & CALI_ST_HAIRPIN))
		kind = CALI_FWD_VETH;
	return send(skb, &st->ev.post_nat_dst, kind, st->dst_ifindex, &hop, &st->tun_peer,
		    st->flags & CALI_ST_TUN_V6, g, NULL);
}

/* An ICMP error: it goes to the flow it is about, in that flow's own terms. */
SEC("tc")
int cali_icmp_inner(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	struct cali_ct_value *v = NULL;
	enum related_result rel;
	struct rewrite rw;
	struct fib_hop hop;
	struct fwd_dst d;
	struct pkt p;
	__u32 back_leg = 0, mtu = 0;

	if (!g || !st)
		return drop(skb, CALI_DROP_NO_STATE);
	pkt_from_state(&p, st);
	if (p.l4_off > 512)
		return drop(skb, CALI_DROP_ICMP_INNER);
	zero(rw);
	zero(hop);
	rel = related_translate(skb, &p, &v, &back_leg, &rw);
	if (rel == RELATED_BROKEN)
		return FAIL_CLOSED ? drop(skb, CALI_DROP_ICMP_INNER) : not_ours(skb, &p, g);
	if (rel == RELATED_NONE || !v) {
		if (IS_TO && !IS_WEP)
			return not_ours(skb, &p, g);
		jump(skb, CALI_SLOT_NEW_FLOW); /* judged like any other packet */
		return no_program(skb);
	}
	count(skb, CALI_COUNT_ICMP_RELATED);
	if (rel == RELATED_PLAIN) {
		rw.src = p.src;
		rw.dst = p.dst;
	}
	if (IS_TO) {
		if (rel == RELATED_XLATED && !rewrite_tuple(skb, &p, &rw))
			return drop(skb, CALI_DROP_REWRITE);
		if (NEEDS_TUNNEL_KEY)
			return key_for_tunnel(skb, &rw.dst, v, back_leg, g);
		return pass(skb, CALI_COUNT_TO_STACK);
	}
	fwd_resolve(&d, route_lookup(&rw.dst),
		    rel != RELATED_XLATED ? XLATE_NONE
		    : back_leg            ? XLATE_UNNAT
					  : XLATE_DNAT);
	if (back_leg && CAN_ENCAP && (v->flags & CALI_CTF_TUN_PEER)) {
		d.kind = CALI_FWD_TUNNEL;
		d.tun = v->tun_peer;
		d.tun_v6 = v->flags & CALI_CTF_TUN_V6;
	}
	if (fwd_check(skb, &p, &rw.src, &rw.dst, &d.kind, g, &hop, &mtu) != FWD_OK)
		return drop(skb,
			    p.ttl <= 1 ? CALI_DROP_TTL : CALI_DROP_TOO_BIG); /* no error about an error */
	if (d.kind != CALI_FWD_STACK && !decrement_ttl(skb))
		return drop(skb, CALI_DROP_REWRITE);
	if (rel == RELATED_XLATED && !rewrite_tuple(skb, &p, &rw))
		return drop(skb, CALI_DROP_REWRITE);
	return send(skb, &rw.dst, d.kind, d.ifindex, &hop, &d.tun, d.tun_v6, g, NULL);
}

/* Sends the ICMP error that st describes. */
SEC("tc")
int cali_icmp(struct __sk_buff *skb)
{
	struct cali_state *st = get_state(skb);

	return st ? icmp_reply(skb, st) : drop(skb, CALI_DROP_NO_STATE);
}

/* Answers the TCP segment with a reset. */
SEC("tc")
int cali_rst(struct __sk_buff *skb)
{
	struct cali_state *st = get_state(skb);

	return st ? rst_reply(skb, st) : drop(skb, CALI_DROP_NO_STATE);
}

/* Where denied packets end. */
SEC("tc")
int cali_drop(struct __sk_buff *skb)
{
	struct cali_state *st = get_state(skb);
	__u32 reason = st ? st->ev.reason : CALI_DROP_NO_STATE;

	if (reason >= CALI_COUNTER_MAX)
		reason = CALI_DROP_POLICY;
	return drop(skb, reason);
}

char _license[] SEC("license") = "Dual BSD/GPL";
