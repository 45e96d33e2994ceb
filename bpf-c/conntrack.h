/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* conntrack.h: finds, confirms and removes entries; create.h makes them, tcp.h follows TCP.
 *
 * A flow without translation has one entry; a translated one has two, twins, each keyed by what one
 * side sees (types.h). A packet needs one lookup: the entry it finds has all that is needed to
 * judge, rewrite and forward it. Only SYN, FIN and RST, and one packet a second, also touch the twin.
 *
 * A flow starts half-open, in an LRU that a flood may churn. It is confirmed, in a hash that never
 * evicts, by the handshake's third packet, or by the first reply where there is no handshake. */
#ifndef FELIX_CONNTRACK_H
#define FELIX_CONNTRACK_H

#include "ctx.h"
#include "route.h"

/* a < b as 0 or 1, without a branch: each branch here would double the paths that the verifier walks
 * behind it (Hacker's Delight 2-12). */
INLINE __u64 less64(__u64 a, __u64 b)
{
	return ((~a & b) | (~(a ^ b) & (a - b))) >> 63;
}

/* Whether (dst, dport) orders before (src, sport): the packet's source is side b of its key. */
INLINE __u64 ct_swapped(const struct cali_ip *src, const struct cali_ip *dst, __be16 sport_be,
			__be16 dport_be)
{
#if IS_V6
	__u64 sh = (__u64)src->w[0] << 32 | src->w[1], sl = (__u64)src->w[2] << 32 | src->w[3];
	__u64 dh = (__u64)dst->w[0] << 32 | dst->w[1], dl = (__u64)dst->w[2] << 32 | dst->w[3];
	__u64 high = less64(dh, sh), not_high = less64(sh, dh), low = less64(dl, sl),
	      not_low = less64(sl, dl);

	return high | ((not_high ^ 1) & (low | ((not_low ^ 1) & less64(dport_be, sport_be))));
#else
	return less64((__u64)dst->w[0] << 16 | dport_be, (__u64)src->w[0] << 16 | sport_be);
#endif
}

/* Key of a packet; true when the packet's source is side b. */
INLINE bool ct_key_make(struct cali_ct_key *k, const struct cali_ip *src, const struct cali_ip *dst,
			__be16 sport_be, __be16 dport_be, __u8 proto, __u8 zone)
{
	__u64 swapped = ct_swapped(src, dst, sport_be, dport_be);
	__u32 mask = -(__u32)swapped, x;
	int i;

	opaque(mask); /* or the compiler turns the selection into branches again */
#pragma unroll
	for (i = 0; i < IP_WORDS; i++) {
		x = (src->w[i] ^ dst->w[i]) & mask;
		k->addr_a.w[i] = src->w[i] ^ x;
		k->addr_b.w[i] = dst->w[i] ^ x;
	}
	x = (sport_be ^ dport_be) & mask;
	k->port_a_be = sport_be ^ x;
	k->port_b_be = dport_be ^ x;
	k->proto = proto;
	k->zone = zone;
	k->spare = 0;
	return swapped;
}

INLINE bool ct_key_equal(const struct cali_ct_key *a, const struct cali_ct_key *b)
{
	return ip_equal(&a->addr_a, &b->addr_a) && ip_equal(&a->addr_b, &b->addr_b) &&
	       a->port_a_be == b->port_a_be && a->port_b_be == b->port_b_be && a->proto == b->proto &&
	       a->zone == b->zone;
}

/* Which end of the flow sent a packet whose key was made with this swap: 0 the opener, 1 the other. */
INLINE __u32 ct_leg(const struct cali_ct_value *v, bool swapped)
{
	return !!(v->flags & CALI_CTF_KEY_SWAPPED) != swapped;
}

INLINE bool ct_dead(const struct cali_ct_value *v, __u32 now)
{
	__s32 idle = (__s32)(now - v->last_seen);

	/* Another CPU may have written a later time than the one read here. */
	return idle > 0 && (__u32)idle > v->timeout;
}

/* What both entries' own packets are rewritten to is the twin's tuple (reply direction of it). */
INLINE void ct_twin_key(struct cali_ct_key *k, const struct cali_ct_value *v, __u8 proto)
{
	__u8 zone = v->type == CALI_CT_NAT_REV && (v->flags & CALI_CTF_CONFLICT) ? 1 : 0;

	ct_key_make(k, &v->nat_src, &v->nat_dst, v->nat_sport_be, v->nat_dport_be, proto, zone);
}

INLINE struct cali_ct_value *ct_find(const struct cali_ct_key *k, bool *half)
{
	struct cali_ct_value *v = bpf_map_lookup_elem(&FAM(ct3), k);

	*half = false;
	if (likely(v != NULL))
		return v;
	*half = true;
	return bpf_map_lookup_elem(&FAM(ct_half), k);
}

/* The same for an entry that is probably half-open; it may have been confirmed a moment ago. */
INLINE struct cali_ct_value *ct_find_half(const struct cali_ct_key *k, bool *half)
{
	struct cali_ct_value *v = bpf_map_lookup_elem(&FAM(ct_half), k);

	*half = true;
	if (v)
		return v;
	*half = false;
	return bpf_map_lookup_elem(&FAM(ct3), k);
}

/* A twin is confirmed together with its entry: it stands in the same table, but for a moment. */
INLINE struct cali_ct_value *ct_find_twin(const struct cali_ct_key *k, bool half)
{
	bool where;

	return half ? ct_find_half(k, &where) : ct_find(k, &where);
}

INLINE struct cali_ct_value *ct_find_any(const struct cali_ct_key *k)
{
	bool half;

	return ct_find(k, &half);
}

INLINE void ct_delete(const struct cali_ct_key *k)
{
	bpf_map_delete_elem(&FAM(ct3), k);
	bpf_map_delete_elem(&FAM(ct_half), k);
}

/* Removes an entry and its twin. */
INLINE void ct_delete_flow(const struct cali_ct_key *k, struct cali_ct_value *v)
{
	if (v->type != CALI_CT_NORMAL) {
		struct cali_ct_key twin;

		ct_twin_key(&twin, v, k->proto);
		ct_delete(&twin);
	}
	ct_delete(k);
}

INLINE __u32 ct_timeout(__u8 proto, __u8 state)
{
	if (proto == IPPROTO_TCP) {
		if (state == CALI_CT_RESET)
			return CFG(to_reset);
		if (state == CALI_CT_CLOSED)
			return CFG(to_fins);
		if (state >= CALI_CT_ESTABLISHED)
			return CFG(to_established);
		return CFG(to_syn_sent);
	}
	if (proto == IPPROTO_UDP)
		return CFG(to_udp);
	if (proto == PROTO_ICMP)
		return CFG(to_icmp);
	return CFG(to_generic);
}

INLINE void ct_set_state(struct cali_ct_value *v, __u8 proto, __u8 state)
{
	v->tcp_state = state;
	v->timeout = ct_timeout(proto, state);
}

/* Moves an entry to the confirmed table; false when that is full. */
INLINE bool ct_confirm_one(const struct cali_ct_key *k, struct cali_ct_value *half)
{
	if (bpf_map_update_elem(&FAM(ct3), k, half, BPF_ANY))
		return false;
	bpf_map_delete_elem(&FAM(ct_half), k);
	return true;
}

/* Whether a packet of a half-open flow confirms it: the handshake's third packet, or where that was lost
 * whatever the opener acknowledges the answer with, a FIN too; without a handshake the first reply. */
INLINE bool ct_confirms(const struct cali_ct_value *v, const struct pkt *p, __u32 leg)
{
	if (p->proto != IPPROTO_TCP)
		return leg;
	return !leg && v->tcp_state >= CALI_CT_REPLIED && v->tcp_state < CALI_CT_RESET &&
	       (p->tcp_flags & (TCP_ACK | TCP_SYN)) == TCP_ACK;
}

/* Confirms the half-open flow st->ct_key: both entries, approvals and TCP state of each carried to the
 * other. The entry's new place, or NULL when the table is full: then the entry stays as it was, and the
 * next packet tries again. */
INLINE struct cali_ct_value *ct_confirm(struct __sk_buff *skb, struct cali_state *st, struct cali_ct_value *v)
{
	struct cali_ct_value *confirmed = NULL;
	bool room = true;
	__u8 state = v->tcp_state;

	if (state < CALI_CT_ESTABLISHED)
		ct_set_state(v, st->ev.proto, CALI_CT_ESTABLISHED);
	if (v->type != CALI_CT_NORMAL) {
		struct cali_ct_value *twin;
		struct cali_ct_key tk;

		ct_twin_key(&tk, v, st->ev.proto);
		twin = bpf_map_lookup_elem(&FAM(ct_half), &tk);
		if (twin) {
			ct_set_state(twin, st->ev.proto, v->tcp_state);
			twin->last_seen = v->last_seen;
			twin->flags |= v->flags & (CALI_CTF_APPROVED_0 | CALI_CTF_APPROVED_1);
			v->flags |= twin->flags & (CALI_CTF_APPROVED_0 | CALI_CTF_APPROVED_1);
			if (v->type == CALI_CT_NAT_FWD) {
				v->leg[1] = twin->leg[1];
				twin->leg[0] = v->leg[0];
			} else {
				twin->leg[1] = v->leg[1];
				v->leg[0] = twin->leg[0];
			}
			room = ct_confirm_one(&tk, twin);
		}
	}
	if (room && ct_confirm_one(&st->ct_key, v))
		confirmed = bpf_map_lookup_elem(&FAM(ct3), &st->ct_key);
	if (confirmed)
		count(skb, CALI_COUNT_PROMOTED);
	else
		ct_set_state(v, st->ev.proto, state);
	return confirmed;
}

/* Keeps the twin alive: it sees none of this entry's packets. */
INLINE void ct_refresh_twin(struct cali_ct_value *v, __u8 proto, __u32 now)
{
	struct cali_ct_value *twin;
	struct cali_ct_key tk;

	ct_twin_key(&tk, v, proto);
	twin = ct_find_any(&tk);
	if (twin)
		twin->last_seen = now;
}

/* About once a second a packet of a translated flow is sent to look after the twin. */
INLINE bool ct_twin_due(const struct cali_ct_value *v, __u32 now)
{
	return v->type != CALI_CT_NORMAL && ((v->last_seen ^ now) >> CFG(to_ticks_shift));
}

/* Books a packet on a live entry. */
INLINE void ct_touch(struct cali_ct_value *v, __u32 leg, __u32 len, __u32 now)
{
	leg &= 1;
	v->last_seen = now;
	v->packets[leg]++;
	v->bytes[leg] += len;
}

#endif
