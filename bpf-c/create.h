/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* create.h: makes the conntrack entries of a flow that has just been accepted.
 *
 * Before: st has the tuple before and after translation and the way the first packet will take.
 * After: one entry (two where translated) stands in the half-open table, or st says why not. */
#ifndef FELIX_CREATE_H
#define FELIX_CREATE_H

#include "forward.h"
#include "tcp.h"

/* Other source ports that are tried before a colliding flow is given up. */
#define SOURCE_PORT_TRIES 4

INLINE void ct_value_init(struct __sk_buff *skb, struct cali_ct_value *v, const struct cali_state *st)
{
	__builtin_memset(v, 0, sizeof(*v));
	v->last_seen = st->now;
	v->created = st->now;
	ct_set_state(v, st->ev.proto, CALI_CT_NEW);
	v->flags = CALI_CTF_APPROVED_0;
	if (!(st->flags & CALI_ST_DST_LOCAL_POD) || (st->flags & (CALI_ST_HAIRPIN | CALI_ST_DST_OPEN)))
		v->flags |= CALI_CTF_APPROVED_1;
	if (IS_TO && IS_WEP)
		v->flags |= CALI_CTF_APPROVED_1; /* judged by the program that creates the entry */
	if (IS_NAT || (st->flags & CALI_ST_SRC_LOCAL_HOST))
		v->flags |= CALI_CTF_HOST_ORIGIN;
	if (st->flags & CALI_ST_SKIP_PEER)
		v->flags |= CALI_CTF_SKIP_FAST_PATH;
	if (st->flags & CALI_ST_HAIRPIN)
		v->flags |= CALI_CTF_HAIRPIN;
	if (st->flags & CALI_ST_SNAT)
		v->flags |= CALI_CTF_SNAT;
	if (st->flags & CALI_ST_CONFLICT)
		v->flags |= CALI_CTF_CONFLICT;
	if (st->flags & CALI_ST_TUN_SRC) {
		v->flags |= CALI_CTF_TUN_PEER;
		if (st->flags & CALI_ST_TUN_V6)
			v->flags |= CALI_CTF_TUN_V6;
		v->tun_peer = st->tun_peer;
	} else if (st->fwd == CALI_FWD_TUNNEL) {
		if (st->flags & CALI_ST_TUN_V6)
			v->flags |= CALI_CTF_TUN_V6;
		if (!IS_WEP)
			v->flags |= CALI_CTF_NP_FWD;
		v->tun_peer = st->tun_peer;
	}
	v->svc_id = st->svc_id;
	v->backend_id = st->backend_id;
	v->fwd[0] = st->fwd;
	v->ifindex[1] = st->dst_ifindex;
	v->ep_slot[0] = st->src_ep_slot;
	v->ep_slot[1] = st->dst_ep_slot;
	if (st->flags & CALI_ST_NAT_OUT)
		v->flags |= CALI_CTF_NAT_OUT;
	if (IS_TO) {
		/* The kernel routed it here, and may have translated it on the way: so the replies. */
		v->flags |= CALI_CTF_VIA_STACK;
		v->fwd[1] = CALI_FWD_STACK;
	}
	if (IS_L3DEV && !(st->flags & (CALI_ST_DNAT | CALI_ST_SNAT)))
		v->flags |= CALI_CTF_VIA_STACK;
	if (IS_FROM && IS_WEP) {
		/* The client is behind this veth: replies need no lookup to find it. */
		v->ifindex[0] = skb->ifindex;
		v->fwd[1] = st->flags & CALI_ST_SKIP_PEER ? CALI_FWD_VETH : CALI_FWD_PEER;
		if (st->fwd == CALI_FWD_STACK) {
			/* The kernel's conntrack and NAT saw it go and must see the replies. */
			v->flags |= CALI_CTF_VIA_STACK;
			v->fwd[1] = CALI_FWD_STACK;
		}
	}
	v->packets[0] = 1;
	v->bytes[0] = st->l3_len;
	if (st->ev.proto == IPPROTO_TCP) {
		struct cali_ct_leg *l = &v->leg[0];

		l->end = st->tcp_end;
		l->win = st->tcp_win;
		l->ack = st->tcp_ack;
		l->flags = CALI_LEG_END;
		if (st->tcp_flags & TCP_SYN)
			l->flags |= CALI_LEG_SYN;
		if (st->tcp_flags & TCP_ACK)
			l->flags |= CALI_LEG_ACK;
		ct_leg_scale(l, st->tcp_scale);
	}
}

/* The reverse entry: claims the tuple that the backend sees. -EEXIST when another flow has it. */
INLINE int ct_claim(struct cali_scratch *s, __u8 proto)
{
	bool half;
	struct cali_ct_value *other = ct_find(&s->rev, &half);

	if (other) {
		bool same = false;

		if (other->type == CALI_CT_NAT_REV) {
			ct_twin_key(&s->twin, other, proto);
			/* Left over from an earlier try of this very flow: its forward half was evicted. */
			same = ct_key_equal(&s->twin, &s->fwd);
		}
		if (!same && !ct_dead(other, s->v.last_seen) && other->tcp_state < CALI_CT_CLOSED)
			return -17; /* EEXIST */
		if (other->type != CALI_CT_NORMAL && !same) {
			ct_twin_key(&s->twin, other, proto);
			ct_delete(&s->twin);
		}
		ct_delete(&s->rev);
	}
	return bpf_map_update_elem(&FAM(ct_half), &s->rev, &s->v, BPF_NOEXIST);
}

/* Makes the forward key of the flow and notes in the entry which side of it the opener is. */
INLINE void ct_forward_key(struct cali_scratch *s, const struct cali_state *st)
{
	bool swapped = ct_key_make(&s->fwd, &st->ev.src, &st->ev.dst, st->ev.sport_be, st->ev.dport_be,
				   st->ev.proto, st->flags & CALI_ST_CONFLICT ? 1 : 0);

	s->v.flags = (s->v.flags & ~CALI_CTF_KEY_SWAPPED) | (swapped ? CALI_CTF_KEY_SWAPPED : 0);
}

/* The same for the reverse key, as the backend will see the flow. */
INLINE void ct_reverse_key(struct cali_scratch *s, const struct cali_state *st)
{
	bool swapped = ct_key_make(&s->rev, &st->ev.post_nat_src, &st->ev.post_nat_dst,
				   st->ev.post_nat_sport_be, st->ev.post_nat_dport_be, st->ev.proto, 0);

	s->v.flags = (s->v.flags & ~CALI_CTF_KEY_SWAPPED) | (swapped ? CALI_CTF_KEY_SWAPPED : 0);
}

/* Whether this host has a connection of its own with the tuple that the backend would see: one that it has
 * opened to the backend itself. Such a flow to another node has no entry here, and two connections with one
 * tuple would end each other. (bpf_skc_lookup_tcp: Linux 5.2.) */
INLINE bool host_connected(struct __sk_buff *skb, const struct cali_state *st)
{
	struct bpf_sock_tuple t;
	struct bpf_sock *sk;
	__u32 state;

	if (!(IS_NAT && IS_FROM) || st->ev.proto != IPPROTO_TCP)
		return false;
	zero(t);
#if IS_V6
	__builtin_memcpy(t.ipv6.saddr, &st->ev.post_nat_dst, sizeof(t.ipv6.saddr));
	__builtin_memcpy(t.ipv6.daddr, &st->ev.post_nat_src, sizeof(t.ipv6.daddr));
	t.ipv6.sport = st->ev.post_nat_dport_be;
	t.ipv6.dport = st->ev.post_nat_sport_be;
	sk = bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
#else
	t.ipv4.saddr = st->ev.post_nat_dst.w[0];
	t.ipv4.daddr = st->ev.post_nat_src.w[0];
	t.ipv4.sport = st->ev.post_nat_dport_be;
	t.ipv4.dport = st->ev.post_nat_sport_be;
	sk = bpf_skc_lookup_tcp(skb, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
#endif
	if (!sk)
		return false;
	state = sk->state;
	bpf_sk_release(sk);
	return state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT;
}

/* Creates what st describes. Returns 0, or the counter that says why it could not. */
INLINE enum cali_counter ct_create(struct __sk_buff *skb, struct cali_state *st, const struct cali_globals *g)
{
	struct cali_scratch *s = get_scratch(skb);
	int rc = -1, i;

	if (!s)
		return CALI_DROP_NO_STATE;
	ct_value_init(skb, &s->v, st);
	s->v.epoch = g->route_epoch;
	ct_forward_key(s, st);
	if (!(st->flags & (CALI_ST_DNAT | CALI_ST_SNAT))) {
		s->v.type = CALI_CT_NORMAL;
		if (st->flags & CALI_ST_FROM_SOCKET) {
			s->v.nat_src = st->ev.pre_nat_dst;
			s->v.nat_sport_be = st->ev.pre_nat_dport_be;
		}
		if (bpf_map_update_elem(&FAM(ct_half), &s->fwd, &s->v, BPF_ANY))
			return CALI_DROP_CT_FULL;
		count(skb, CALI_COUNT_NEW_FLOW);
		return 0;
	}

	s->v.type = CALI_CT_NAT_REV;
	s->v.nat_src = st->ev.dst;
	s->v.nat_sport_be = st->ev.dport_be;
	s->v.nat_dst = st->ev.src;
	s->v.nat_dport_be = st->ev.sport_be;
	for (i = 0; i < SOURCE_PORT_TRIES; i++) {
		ct_reverse_key(s, st);
		rc = host_connected(skb, st) ? -17 : ct_claim(s, st->ev.proto);
		if (!rc)
			break;
		if (!g->psnat_count || (st->ev.proto != IPPROTO_TCP && st->ev.proto != IPPROTO_UDP))
			break;
		st->ev.post_nat_sport_be = bpf_htons(g->psnat_start + bpf_get_prandom_u32() % g->psnat_count);
		if (!(s->v.flags & CALI_CTF_SNAT))
			count(skb, CALI_COUNT_SOURCE_PORT);
		st->flags |= CALI_ST_SNAT;
		s->v.flags |= CALI_CTF_SNAT;
	}
	if (rc)
		return CALI_DROP_PORT_EXHAUSTED;

	s->v.type = CALI_CT_NAT_FWD;
	s->v.nat_src = st->ev.post_nat_src;
	s->v.nat_sport_be = st->ev.post_nat_sport_be;
	s->v.nat_dst = st->ev.post_nat_dst;
	s->v.nat_dport_be = st->ev.post_nat_dport_be;
	ct_forward_key(s, st);
	if (bpf_map_update_elem(&FAM(ct_half), &s->fwd, &s->v, BPF_ANY)) {
		bpf_map_delete_elem(&FAM(ct_half), &s->rev);
		return CALI_DROP_CT_FULL;
	}
	count(skb, CALI_COUNT_NEW_FLOW);
	return 0;
}

#endif
