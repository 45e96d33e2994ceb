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
#include "sight.h"
#include "known.h"
#include "newflow.h"
#include "lo.h"

/* First of all: read the packet, find its flow, and if that is established and this is nothing but
 * another packet of it, send it on. All else goes to the programs behind. */
SEC("tc")
int cali_main(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_counter_row *r;
	struct cali_ct_value *v = NULL;
	struct cali_state *st;
	struct cali_ct_key key;
	struct pkt p;
	int verdict = TC_ACT_SHOT, slot = CALI_SLOT_FLOW, rc;
	bool missed = false;
	__u32 leg;
	__u64 now;

	if (unlikely(!g))
		return FAIL_CLOSED ? drop(skb, CALI_DROP_NO_STATE) : TC_ACT_UNSPEC;
	if (IS_FROM && (IS_TUNNEL || IS_NAT))
		bpf_skb_change_type(skb, PACKET_HOST); /* inner MACs are meaningless, and so are lo's */
	/* Judged by an earlier program of ours, or made by one. Pods can not set it: the mark is cleared
	 * on the way through the veth. */
	if (unlikely(has_mark(skb, CALI_MARK_BYPASS)))
		return pass(skb, CALI_COUNT_BYPASS);
	if (IS_LO && IS_FROM && !has_mark(skb, CALI_MARK_LO_REPLY))
		return TC_ACT_UNSPEC; /* lo's egress hook saw it a moment ago, and found nothing to do */
	r = counter_row(skb);
	/* Before 6.3 a stack slot that some path has not written can not be read on any. */
	zero(p);
	rc = parse(skb, &p, &verdict);
	now = bpf_jiffies64();
	p.proto = forget(p.proto, now);
	p.l4_off = forget(p.l4_off, now) & 0x3ff; /* parse_l4 has seen that it is at most 512 */
	if (STRAIGHT && likely(rc == PARSE_OK)) {
		bool swapped = ct_key_make(&key, &p.src, &p.dst, p.sport_be, p.dport_be, p.proto, 0);

		v = bpf_map_lookup_elem(&FAM(ct3), &key);
		if (likely(r && v && plain_packet(skb, &p, v, leg = ct_leg(v, swapped), now) &&
			   goes_straight(skb, &p, v, leg, g)))
			return straight(skb, &p, v, leg, now, r);
	}
	if (r)
		r->count[CALI_COUNT_TOTAL]++;
	if (rc == PARSE_VERDICT)
		return verdict;
	if (unlikely(rc == PARSE_EXT)) {
		slot = CALI_SLOT_EXT_HEADERS;
	} else {
		if (unlikely(is_link_business(&p)))
			return pass(skb, CALI_COUNT_TO_STACK);
		if (IS_LO && IS_TO && !(p.proto == PROTO_ICMP && icmp_is_error(p.icmp_type)))
			return leave_by_lo(skb, &p, g, now);
		if (CAN_VXLAN && vxlan_outer(skb, &p, g, &verdict))
			return verdict;
		if (unlikely(p.proto == PROTO_ICMP && icmp_is_error(p.icmp_type))) {
			slot = CALI_SLOT_ICMP_INNER;
		} else {
			bool swapped = ct_key_make(&key, &p.src, &p.dst, p.sport_be, p.dport_be, p.proto, 0);

			if (!STRAIGHT)
				v = bpf_map_lookup_elem(&FAM(ct3), &key);
			if (likely(r && v && plain_packet(skb, &p, v, leg = ct_leg(v, swapped), now))) {
				if (!(IS_TO && seen(skb))) {
					if (p.proto == IPPROTO_TCP)
						ct_track_seq(&v->leg[leg & 1], &p);
					ct_touch(v, leg, p.l3_len, now);
				}
				r->count[CALI_COUNT_FAST_PATH]++;
				return established(skb, &p, v, leg, g, now, r);
			}
			/* What opens nothing, at a pod, is cali_flow's whether it is known or not. */
			if (!v && IS_WEP && !opens_flow(&p)) {
				missed = true;
			} else if (!v && !knows_flow(&key)) {
				if (is_foreign(skb, &p))
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
	if (slot == CALI_SLOT_FLOW)
		jump(skb, CALI_SLOT_FLOW);
	else if (slot == CALI_SLOT_NEW_FLOW)
		jump(skb, CALI_SLOT_NEW_FLOW);
	else if (slot == CALI_SLOT_ICMP_INNER)
		jump(skb, CALI_SLOT_ICMP_INNER);
	else
		jump(skb, CALI_SLOT_EXT_HEADERS);
	return no_program(skb);
}

/* IPv6 extension headers are walked aside: their loop would cost every packet's verification. */
SEC("tc")
int cali_ext_headers(struct __sk_buff *skb)
{
#if IS_V6
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	int verdict = TC_ACT_SHOT;
	struct pkt p;

	if (!g || !st)
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
	/* The kernel's own jumbograms (BIG TCP) come this way. */
	if (IS_LO && IS_TO && !(p.proto == PROTO_ICMP && icmp_is_error(p.icmp_type)))
		return leave_by_lo(skb, &p, g, st->now);
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
	if (v && v->type == CALI_CT_NAT_REV && !ct_leg(v, swapped) && unmarked(skb) && !ct_dead(v, st->now)) {
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
	if (v && taken_for_another(skb, &p, v)) {
		if (!st->trace)
			ct_delete_flow(&st->ct_key, v);
		v = NULL;
	}
	live = !st->trace && !(IS_TO && seen(skb));
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
		if (half && ct_confirms(v, &p, leg)) {
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
		if (st->policy == CALI_POLICY_ALLOW) {
			count(skb, CALI_COUNT_POLICY_ALLOW);
			if (!st->trace)
				v->flags |= CALI_CTF_APPROVED_1;
			return pass(skb, CALI_COUNT_TO_STACK);
		}
		st->flags |= CALI_ST_CT_HIT;
		jump_policy(skb, st);
		return no_program(skb);
	}
	pkt_from_state(&p, st);
	return established(skb, &p, v, leg, g, st->now, NULL);
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
	if (IS_WEP && (st->flags & CALI_ST_MID_FLOW))
		return fall_through(skb);
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
	if (IS_FROM && is_hop(kind) && !decrement_ttl(skb))
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
	if (NEEDS_TUNNEL_KEY)
		return key_for_tunnel(skb, &st->ev.post_nat_dst, NULL, 0, g);
	if (IS_TO)
		return pass(skb, CALI_COUNT_TO_STACK);
	/* The other end has not judged the flow yet: the long way, through its program. */
	if (kind == CALI_FWD_PEER && !(st->flags & (CALI_ST_HAIRPIN | CALI_ST_DST_OPEN)))
		kind = CALI_FWD_VETH;
	return send(skb, &st->ev.post_nat_dst, kind, st->dst_ifindex, &hop, &st->tun_peer,
		    st->flags & CALI_ST_TUN_V6, IS_WEP && (st->flags & CALI_ST_NAT_OUT), g, NULL);
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
					  : XLATE_DNAT,
		    g);
	if (back_leg && CAN_ENCAP && (v->flags & CALI_CTF_TUN_PEER)) {
		d.kind = CALI_FWD_TUNNEL;
		d.tun = v->tun_peer;
		d.tun_v6 = v->flags & CALI_CTF_TUN_V6;
	}
	if (fwd_check(skb, &p, &rw.src, &rw.dst, &d.kind, g, &hop, &mtu) != FWD_OK)
		return drop(skb,
			    p.ttl <= 1 ? CALI_DROP_TTL : CALI_DROP_TOO_BIG); /* no error about an error */
	if (is_hop(d.kind) && !decrement_ttl(skb))
		return drop(skb, CALI_DROP_REWRITE);
	if (rel == RELATED_XLATED && !rewrite_tuple(skb, &p, &rw))
		return drop(skb, CALI_DROP_REWRITE);
	return send(skb, &rw.dst, d.kind, d.ifindex, &hop, &d.tun, d.tun_v6, false, g, NULL);
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
