/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcp.h: what is followed of TCP: the sequence space that each end has shown, options of SYNs, and how SYN,
 * FIN and RST change a flow's state. Enough to know when a flow is over and whom an RST may end. */
#ifndef FELIX_TCP_H
#define FELIX_TCP_H

#include "balance.h"
#include "conntrack.h"

/* Follows the sequence space of the leg that sent the packet. */
INLINE void ct_track_seq(struct cali_ct_leg *l, const struct pkt *p)
{
	if (!(l->flags & CALI_LEG_END) || (__s32)(p->tcp_end - l->end) > 0)
		l->end = p->tcp_end;
	if (p->tcp_flags & TCP_ACK) {
		if (!(l->flags & CALI_LEG_ACK) || (__s32)(p->tcp_ack - l->ack) >= 0) {
			l->ack = p->tcp_ack;
			l->win = p->tcp_win;
		}
		l->flags |= CALI_LEG_ACK | CALI_LEG_END;
	} else {
		l->flags |= CALI_LEG_END;
	}
}

/* RFC 5961 3.2, as far as it can be seen from the middle: an RST counts when its sequence number is
 * what the sender would send next, or inside the window that the receiver granted last; the answer
 * to a SYN counts when it acknowledges it. */
INLINE bool ct_rst_valid(const struct cali_ct_leg *from, const struct cali_ct_leg *to, const struct pkt *p)
{
	bool scaled = to->flags & from->flags & CALI_LEG_SCALE;
	__u32 win;

	if (to->flags & CALI_LEG_ACK) {
		win = (__u32)to->win << (scaled ? (to->scale & 15) : 0);
		if (p->tcp_seq - to->ack < (win ? win : 1))
			return true;
		/* Where the SYNs were not seen the window is a guess, and the sender's own number counts.
		 * Else it does not: whoever can send one segment can move it. */
		if (scaled || (to->flags & CALI_LEG_SYN))
			return false;
		return (from->flags & CALI_LEG_END) && p->tcp_seq == from->end;
	}
	/* Nothing acknowledged yet: only an RST that answers the SYN. */
	return (p->tcp_flags & TCP_ACK) && (to->flags & CALI_LEG_END) && p->tcp_ack == to->end;
}

/* Where the value of a TCP option of a kind and length stands; 0 when there is none. */
INLINE __u32 tcp_option(struct __sk_buff *skb, __u32 l4_off, __u8 kind, __u8 len)
{
	__u32 off = l4_off + 20, i, end;
	__u8 b[2], doff;

	if (bpf_skb_load_bytes(skb, l4_off + 12, &doff, 1))
		return 0;
	end = l4_off + (doff >> 4) * 4;
	for (i = 0; i < 10; i++) {
		off = forget(off, end); /* or each option's length would double the paths */
		if (off + 1 > end || bpf_skb_load_bytes(skb, off, b, 1) || b[0] == 0)
			break;
		if (b[0] == 1) {
			off++;
			continue;
		}
		if (off + 2 > end || bpf_skb_load_bytes(skb, off + 1, &b[1], 1) || b[1] < 2)
			break;
		if (b[0] == kind && b[1] == len)
			return off + len > end ? 0 : off + 2;
		off += b[1];
	}
	return 0;
}

/* Window scale of a SYN (RFC 7323), 0xff when there is none. */
INLINE __u8 tcp_scale_option(struct __sk_buff *skb, __u32 l4_off)
{
	__u32 off = tcp_option(skb, l4_off, 3, 3);
	__u8 scale;

	if (!off || bpf_skb_load_bytes(skb, off, &scale, 1))
		return 0xff;
	return scale > 14 ? 14 : scale;
}

/* Lowers the segment size that a SYN announces to what goes through the tunnel: the answers leave this host
 * by an interface that takes more, and nobody would tell it. */
INLINE void clamp_mss(struct __sk_buff *skb, __u32 l4_off, __u32 mtu)
{
	__u32 off = tcp_option(skb, l4_off, 2, 4), limit = mtu - (IS_V6 ? 40 : 20) - 20;
	__be16 old, new = bpf_htons(limit);

	if (!off || mtu < 576 || bpf_skb_load_bytes(skb, off, &old, 2) || bpf_ntohs(old) <= limit)
		return;
	if (!bpf_skb_store_bytes(skb, off, &new, 2, 0))
		bpf_l4_csum_replace(skb, l4_off + 16, old, new, 2);
}

INLINE void ct_leg_scale(struct cali_ct_leg *l, __u8 scale)
{
	if (scale == 0xff)
		return;
	l->scale = scale;
	l->flags |= CALI_LEG_SCALE;
}

/* Whether an entry leads to a backend that the service does not have any more. */
INLINE bool ct_backend_gone(const struct cali_ct_value *v)
{
	return v->type == CALI_CT_NAT_FWD && v->svc_id &&
	       !be_lookup(v->svc_id, CALI_BE_BY_ID | (v->backend_id & 0x3fffffff));
}

/* Whether a SYN begins another connection by the numbers of an entry: that one is over, or has got no answer
 * yet and this is not its SYN sent again. (A SYN with data may be sent again without.) Where the backend has
 * gone, another SYN begins anew however far the old connection had come, and so does one sent again that has
 * got no answer: a port must not lead to nobody for as long as the entry lives. */
INLINE bool ct_begins_anew(const struct cali_ct_value *v, __u32 leg, const struct pkt *p)
{
	bool another = v->leg[0].end - 1 - p->tcp_seq > 0xffff, unanswered = v->tcp_state == CALI_CT_NEW;

	if ((p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
		return false;
	if (v->tcp_state >= CALI_CT_CLOSED)
		return true;
	return !leg && ((another && unanswered) || ((another || unanswered) && ct_backend_gone(v)));
}

/* SYN, FIN and RST: the packets that change a flow's state, in both entries. Returns false when the
 * entry is over and the packet starts a new flow. */
INLINE bool ct_tcp_event(struct __sk_buff *skb, const struct cali_ct_key *k, struct cali_ct_value *v,
			 __u32 leg, bool half, struct pkt *p, __u8 scale, __u32 now)
{
	struct cali_ct_value *twin = NULL;
	struct cali_ct_key tk;
	struct cali_ct_leg *from, *to;

	leg = forget(leg, now) & 1;
	if (v->type != CALI_CT_NORMAL) {
		ct_twin_key(&tk, v, p->proto);
		twin = ct_find_twin(&tk, half);
	}
	if (ct_begins_anew(v, leg, p)) {
		ct_delete_flow(k, v);
		count(skb, CALI_COUNT_REOPENED);
		return false;
	}
	from = &v->leg[leg];
	to = &v->leg[leg ^ 1];
	if (p->tcp_flags & TCP_RST) {
		/* The far end's numbers are followed in the entry that sees its packets. */
		if (twin)
			to = &twin->leg[leg ^ 1];
		if (!ct_rst_valid(from, to, p)) {
			count(skb, CALI_COUNT_RST_IGNORED);
			return true;
		}
		from->flags |= CALI_LEG_RST;
		ct_set_state(v, p->proto, CALI_CT_RESET);
		if (twin)
			ct_set_state(twin, p->proto, CALI_CT_RESET);
		return true;
	}
	if ((p->tcp_flags & TCP_SYN) && v->tcp_state <= CALI_CT_REPLIED) {
		ct_leg_scale(from, scale);
		from->flags |= CALI_LEG_SYN;
		if (leg && v->tcp_state == CALI_CT_NEW && (p->tcp_flags & TCP_ACK))
			ct_set_state(v, p->proto, CALI_CT_REPLIED);
	}
	if (v->tcp_state <= CALI_CT_CLOSING)
		ct_track_seq(from, p);
	if (p->tcp_flags & TCP_FIN) {
		from->flags |= CALI_LEG_FIN;
		if (v->tcp_state < CALI_CT_CLOSED) {
			__u8 far = to->flags;

			if (twin)
				far |= twin->leg[leg ^ 1].flags;
			ct_set_state(v, p->proto, far & CALI_LEG_FIN ? CALI_CT_CLOSED : CALI_CT_CLOSING);
		}
	}
	if (twin) {
		twin->leg[leg] = *from;
		if (twin->tcp_state < v->tcp_state)
			ct_set_state(twin, p->proto, v->tcp_state);
		twin->last_seen = now;
	}
	return true;
}

#endif
