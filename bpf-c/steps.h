/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* steps.h: what tc.c's programs share between tail calls: the packet moves into the per-CPU state,
 * out of it again, and is let go of. */
#ifndef FELIX_STEPS_H
#define FELIX_STEPS_H

#include "parse.h"
#include "nat.h"
#include "create.h"
#include "related.h"
#include "reply.h"

/* Hands the parsed packet to the programs behind the next tail call. */
INLINE void state_from_pkt(struct __sk_buff *skb, struct cali_state *st, const struct pkt *p, __u64 now)
{
	__builtin_memset(st, 0, sizeof(*st));
	st->ev.src = p->src;
	st->ev.dst = p->dst;
	st->ev.pre_nat_dst = p->dst;
	st->ev.post_nat_src = p->src;
	st->ev.post_nat_dst = p->dst;
	st->ev.sport_be = p->sport_be;
	st->ev.dport_be = p->dport_be;
	st->ev.pre_nat_dport_be = p->dport_be;
	st->ev.post_nat_sport_be = p->sport_be;
	st->ev.post_nat_dport_be = p->dport_be;
	st->ev.proto = p->proto;
	st->ev.ifindex = skb->ifindex;
	st->ev.iface_slot = CB(skb, CALI_CB_IFACE);
	st->now = now;
	st->l3_off = L2_LEN;
	st->l4_off = p->l4_off;
	st->l3_len = p->l3_len;
	st->tcp_flags = p->tcp_flags;
	st->ttl = p->ttl;
	st->tcp_seq = p->tcp_seq;
	st->tcp_ack = p->tcp_ack;
	st->tcp_end = p->tcp_end;
	st->tcp_win = p->tcp_win;
	st->tcp_scale = 0xff;
	st->frag_off = p->df;
	st->hook = HOOK;
	st->iface_flags = CB(skb, CALI_CB_FLAGS);
	st->policy = CB(skb, CALI_CB_POLICY);
	st->ep_slot = CB(skb, CALI_CB_EP);
	st->ev.reason = CALI_DROP_POLICY; /* what the drop program counts unless told otherwise */
	st->trace = CB(skb, CALI_CB_TRACE);
}

/* The packet as main parsed it; nothing has been rewritten since. */
INLINE void pkt_from_state(struct pkt *p, const struct cali_state *st)
{
	p->src = st->ev.src;
	p->dst = st->ev.dst;
	p->sport_be = st->ev.sport_be;
	p->dport_be = st->ev.dport_be;
	p->proto = st->ev.proto;
	p->tcp_flags = st->tcp_flags;
	p->ttl = st->ttl;
	p->icmp_type = 0;
	p->l4_off = st->l4_off;
	p->l3_len = st->l3_len;
	p->tcp_win = st->tcp_win;
	p->df = st->frag_off;
	p->tcp_seq = st->tcp_seq;
	p->tcp_ack = st->tcp_ack;
	p->tcp_end = st->tcp_end;
}

/* Leaves a TCP segment of no known flow to the kernel's stack, and to the node's firewall. */
INLINE int fall_through(struct __sk_buff *skb)
{
	if (IS_FROM && !CB(skb, CALI_CB_TRACE))
		set_mark(skb, CALI_MARK_FALLTHROUGH);
	return pass(skb, CALI_COUNT_MIDFLOW_STACK);
}

/* Calls the interface's policy for this direction; returns only when there is none. */
INLINE void jump_policy(struct __sk_buff *skb, const struct cali_state *st)
{
	skb->cb[CALI_CB_ACCEPT] = CFG(jump_bank) + VARIANT_INDEX + CALI_SLOT_ACCEPTED;
	skb->cb[CALI_CB_DENY] = CFG(jump_bank) + VARIANT_INDEX + CALI_SLOT_DROP;
	bpf_tail_call(skb, &cali_policy2, st->policy);
}

/* Answers the sender with an ICMP error and counts why. */
INLINE int answer_icmp(struct __sk_buff *skb, struct cali_state *st, enum cali_counter why, __u8 type,
		       __u8 code, __u32 info)
{
	st->icmp_type = type;
	st->icmp_code = code;
	st->icmp_info = info;
	count(skb, why);
	jump(skb, CALI_SLOT_ICMP);
	return no_program(skb);
}

INLINE int answer_rst(struct __sk_buff *skb, enum cali_counter why)
{
	count(skb, why);
	jump(skb, CALI_SLOT_RST);
	return no_program(skb);
}

INLINE int answer_time_exceeded(struct __sk_buff *skb, struct cali_state *st)
{
	return answer_icmp(skb, st, CALI_DROP_TTL, IS_V6 ? 3 : 11, 0, 0);
}

INLINE int answer_too_big(struct __sk_buff *skb, struct cali_state *st, __u32 mtu)
{
	return answer_icmp(skb, st, CALI_DROP_TOO_BIG, IS_V6 ? 2 : 3, IS_V6 ? 0 : 4, mtu);
}

/* A service with nobody behind it: what a closed port of a host would answer. */
INLINE int refuse(struct __sk_buff *skb, struct cali_state *st, enum cali_counter why)
{
	if (st->ev.proto == IPPROTO_TCP)
		return answer_rst(skb, why);
	return answer_icmp(skb, st, why, IS_V6 ? 1 : 3, IS_V6 ? 4 : 3, 0);
}

INLINE int problem(struct __sk_buff *skb, struct cali_state *st, enum fwd_problem why, __u32 mtu)
{
	return why == FWD_TTL ? answer_time_exceeded(skb, st) : answer_too_big(skb, st, mtu);
}

/* Lets go of a packet that is judged, checked and, if need be, rewritten; dst is where it goes now. */
INLINE int send(struct __sk_buff *skb, const struct cali_ip *dst, __u32 kind, __u32 ifindex,
		struct fib_hop *hop, const struct cali_ip_any *tun, bool tun_v6, bool nat_out,
		const struct cali_globals *g, struct cali_counter_row *r)
{
	if (CAN_FIB && kind == CALI_FWD_PEER && (CFG(features) & CALI_FEAT_REDIRECT_PEER))
		return send_peer(skb, ifindex, r);
	if (CAN_FIB && (kind == CALI_FWD_VETH || kind == CALI_FWD_PEER))
		return send_veth(skb, ifindex, dst);
	if (CAN_ENCAP && kind == CALI_FWD_TUNNEL)
		return send_tunnel(skb, tun, tun_v6, g);
	if (CAN_FIB && kind == CALI_FWD_FIB)
		return send_fib(skb, hop);
	if (CAN_NATOUT && kind == CALI_FWD_NATOUT)
		return send_natout(skb, g, CALI_MARK_BYPASS);
	if (IS_FROM)
		return send_stack(skb, nat_out);
	return pass(skb, CALI_COUNT_TO_STACK);
}

#endif
