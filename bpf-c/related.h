/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* related.h: ICMP errors about a flow we know.
 *
 * An error quotes the packet that caused it, as it looked where the error arose. If that packet had
 * been translated by us, the receiver knows it by its untranslated form only: the quoted headers and
 * the error's own destination are translated back, by the entry that the quoted tuple finds. */
#ifndef FELIX_RELATED_H
#define FELIX_RELATED_H

#include "forward.h"

#if IS_V6
#define INNER_L3 sizeof(struct ipv6hdr)
#else
#define INNER_L3 sizeof(struct iphdr)
#endif

/* Types that quote a packet: RFC 792 / RFC 4443. */
INLINE bool icmp_is_error(__u8 type)
{
#if IS_V6
	return type >= 1 && type <= 4;
#else
	return type == 3 || type == 4 || type == 11 || type == 12;
#endif
}

/* The quoted packet's network header and the first eight bytes behind it. */
struct inner {
#if IS_V6
	struct ipv6hdr ip;
#else
	struct iphdr ip;
#endif
	__be16 l4[4];
};

enum related_result {
	RELATED_NONE = 0,   /* no flow of ours */
	RELATED_PLAIN = 1,  /* a known flow, nothing to translate */
	RELATED_XLATED = 2, /* translated: rw has the new outer addresses */
	RELATED_BROKEN = 3,
};

/* Finds the flow that an error in skb is about and translates the quote. */
INLINE enum related_result related_translate(struct __sk_buff *skb, const struct pkt *p,
					     struct cali_ct_value **found, __u32 *back_leg,
					     struct rewrite *rw)
{
	__u32 in_off = p->l4_off + 8, l4_off, csum_off = p->l4_off + 2, leg, pseudo = 0;
	struct cali_ct_value *v;
	struct cali_ct_key k;
	struct inner old, new;
	struct cali_ip isrc, idst;
	__be16 sport, dport;
	bool swapped;
	__u8 proto;
	__s64 diff;

	if (bpf_skb_load_bytes(skb, in_off, &old.ip, INNER_L3))
		return RELATED_BROKEN;
#if IS_V6
	proto = old.ip.nexthdr;
	l4_off = in_off + INNER_L3;
	__builtin_memcpy(&isrc, &old.ip.saddr, sizeof(isrc));
	__builtin_memcpy(&idst, &old.ip.daddr, sizeof(idst));
#else
	if (old.ip.version != 4 || old.ip.ihl < 5)
		return RELATED_BROKEN;
	if (old.ip.frag_off & bpf_htons(0x1fff)) /* quotes a later fragment: no ports in it */
		return RELATED_NONE;
	proto = old.ip.protocol;
	l4_off = in_off + old.ip.ihl * 4;
	isrc.w[0] = old.ip.saddr;
	idst.w[0] = old.ip.daddr;
#endif
	if (bpf_skb_load_bytes(skb, l4_off, old.l4, sizeof(old.l4)))
		return RELATED_BROKEN;
	sport = dport = 0;
	if (proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP) {
		sport = old.l4[0];
		dport = old.l4[1];
	} else if (proto == PROTO_ICMP) {
		sport = dport = old.l4[2];
	}
	swapped = ct_key_make(&k, &isrc, &idst, sport, dport, proto, 0);
	v = ct_find_any(&k);
	/* An error goes to whoever sent what it quotes (RFC 1122 3.2.2): one to somebody else is judged as
	 * any other packet. */
	if (!v || !ip_equal(&p->dst, &isrc))
		return RELATED_NONE;
	leg = ct_leg(v, swapped);
	*found = v;
	*back_leg = !leg;
	/* A quote of what our own side of the NAT sends is what its sender knows: nothing to do. */
	if (!(v->type == CALI_CT_NAT_REV && leg == 0) && !(v->type == CALI_CT_NAT_FWD && leg == 1))
		return RELATED_PLAIN;

	new = old;
#if IS_V6
	__builtin_memcpy(&new.ip.saddr, &v->nat_dst, sizeof(v->nat_dst));
	__builtin_memcpy(&new.ip.daddr, &v->nat_src, sizeof(v->nat_src));
#else
	new.ip.saddr = v->nat_dst.w[0];
	new.ip.daddr = v->nat_src.w[0];
	{
		__u32 d = ip_diff(&isrc, &v->nat_dst, 0), s = (__u16)~old.ip.check;

		d = ip_diff(&idst, &v->nat_src, d);
		s += (d & 0xffff) + (d >> 16);
		s = (s & 0xffff) + (s >> 16);
		s = (s & 0xffff) + (s >> 16);
		new.ip.check = ~s;
	}
#endif
	new.l4[0] = v->nat_dport_be;
	new.l4[1] = v->nat_sport_be;
	if (proto == IPPROTO_UDP && old.l4[3]) { /* its sum covers addresses and ports */
		__u32 d = ip_diff(&isrc, &v->nat_dst, 0), s;

		d = ip_diff(&idst, &v->nat_src, d);
		s = (__u16)~old.l4[3] + (d & 0xffff) + (d >> 16);
		s += (__u16)~old.l4[0] + new.l4[0];
		s += (__u16)~old.l4[1] + new.l4[1];
		s = (s & 0xffff) + (s >> 16);
		s = (s & 0xffff) + (s >> 16);
		new.l4[3] = ~s;
	}
	diff = bpf_csum_diff((__be32 *)&old.ip, INNER_L3, (__be32 *)&new.ip, INNER_L3, 0);
	diff = bpf_csum_diff((__be32 *)old.l4, sizeof(old.l4), (__be32 *)new.l4, sizeof(new.l4), diff);
	rw->dst = v->nat_dst;
	/* An error sent by the translated end itself must not show its real address. */
	rw->src = ip_equal(&p->src, &idst) ? v->nat_src : p->src;
	rw->sport_be = rw->dport_be = 0;
	if (bpf_skb_store_bytes(skb, in_off, &new.ip, INNER_L3, 0) ||
	    bpf_skb_store_bytes(skb, l4_off, new.l4, sizeof(new.l4), 0) ||
	    bpf_l4_csum_replace(skb, csum_off, 0, diff, pseudo))
		return RELATED_BROKEN;
	return RELATED_XLATED;
}

#endif
