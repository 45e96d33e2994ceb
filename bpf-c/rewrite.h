/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* rewrite.h: changes addresses, ports and hop limit in the packet and keeps every checksum right.
 *
 * Header fields are written directly. The IPv4 header's sum is updated by hand; the L4 sum by
 * bpf_l4_csum_replace, because only the kernel knows whether the field holds a finished sum or the
 * pseudo-header's (CHECKSUM_PARTIAL, which is what a local sender with offload hands us). Those calls
 * come last: they end the validity of packet pointers. */
#ifndef FELIX_REWRITE_H
#define FELIX_REWRITE_H

#include "ctx.h"

/* New values of the four-tuple. Equal to the old ones where nothing changes. */
struct rewrite {
	struct cali_ip src;
	struct cali_ip dst;
	__be16 sport_be;
	__be16 dport_be;
};

/* RFC 1624: a checksum after a 16-bit word of what it covers has changed. */
INLINE __u16 csum16_update(__u16 sum, __u16 old, __u16 new)
{
	__u32 s = (__u16)~sum + (__u32)(__u16)~old + new;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return ~s;
}

INLINE __u32 csum_add(__u32 a, __u32 b)
{
	a += b;
	return a + (a < b);
}

/* Difference, as bpf_csum_diff would give it, that new instead of old makes to a sum over addresses. */
INLINE __u32 ip_diff(const struct cali_ip *old, const struct cali_ip *new, __u32 seed)
{
	int i;

#pragma unroll
	for (i = 0; i < IP_WORDS; i++)
		seed = csum_add(csum_add(seed, ~old->w[i]), new->w[i]);
	return seed;
}

/* Lowers the hop limit by one. The caller has seen that it is above 1. */
INLINE bool decrement_ttl(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
#if IS_V6
	struct ipv6hdr *ip = data + L2_LEN;

	if (unlikely((void *)(ip + 1) > (void *)(long)skb->data_end))
		return false;
	ip->hop_limit--;
#else
	struct iphdr *ip = data + L2_LEN;
	__u32 sum;

	if (unlikely((void *)(ip + 1) > (void *)(long)skb->data_end))
		return false;
	ip->ttl--;
	sum = ip->check + bpf_htons(0x0100); /* RFC 1141 */
	ip->check = sum + (sum >= 0xffff);
#endif
	return true;
}

/* Writes the new tuple of a packet whose old one is in p. */
INLINE bool rewrite_tuple(struct __sk_buff *skb, const struct pkt *p, const struct rewrite *rw)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	bool has_ports = p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP || p->proto == IPPROTO_SCTP;
	__u32 off = p->l4_off, diff, ports = 0, csum_off;
#if IS_V6
	struct ipv6hdr *ip = data + L2_LEN;
#else
	struct iphdr *ip = data + L2_LEN;
#endif

	if (unlikely((void *)(ip + 1) > end || off > 512))
		return false;
	diff = ip_diff(&p->src, &rw->src, 0);
	diff = ip_diff(&p->dst, &rw->dst, diff);
#if IS_V6
	__builtin_memcpy(&ip->saddr, &rw->src, sizeof(rw->src));
	__builtin_memcpy(&ip->daddr, &rw->dst, sizeof(rw->dst));
#else
	{
		__u32 s = (__u16)~ip->check;

		s += (diff & 0xffff) + (diff >> 16);
		s = (s & 0xffff) + (s >> 16);
		s = (s & 0xffff) + (s >> 16);
		ip->check = ~s;
	}
	ip->saddr = rw->src.w[0];
	ip->daddr = rw->dst.w[0];
#endif
	if (has_ports && (p->sport_be != rw->sport_be || p->dport_be != rw->dport_be)) {
		__be16 *l4;

		/* Through a register of its own: a 16-bit value that was kept on the stack is worth
		 * 65535 to the verifier, and then no comparison with the end gives it a range. */
		opaque(off);
		off &= 0x3ff;
		l4 = data + off;
		/* SCTP's CRC32c covers the ports and can not be patched. */
		if (unlikely((void *)(l4 + 2) > end || p->proto == IPPROTO_SCTP))
			return false;
		l4[0] = rw->sport_be;
		l4[1] = rw->dport_be;
		ports = csum_add(csum_add((__u16)~p->sport_be, rw->sport_be),
				 csum_add((__u16)~p->dport_be, rw->dport_be));
	}
	if (p->proto == IPPROTO_TCP)
		csum_off = off + offsetof(struct tcphdr, check);
	else if (p->proto == IPPROTO_UDP)
		csum_off = off + offsetof(struct udphdr, check);
	else if (IS_V6 && p->proto == PROTO_ICMP)
		csum_off = off + 2;
	else
		return true;
	if (bpf_l4_csum_replace(skb, csum_off, 0, diff,
				BPF_F_PSEUDO_HDR | (p->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0)))
		return false;
	if (ports &&
	    bpf_l4_csum_replace(skb, csum_off, 0, ports, p->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0))
		return false;
	return true;
}

#endif
