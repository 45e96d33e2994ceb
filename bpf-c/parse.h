/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* parse.h: reads a packet's headers into struct pkt.
 *
 * Before: skb->data stands at the Ethernet header (L3 devices: at the network header).
 * After: addresses, protocol, ports and TCP fields are known and lie in linear memory, or the packet
 * has a verdict. A header is read right or the packet is dropped with a reason; nothing is guessed. */
#ifndef FELIX_PARSE_H
#define FELIX_PARSE_H

#include "ctx.h"
#include "route.h"

enum parse_result {
	PARSE_OK = 0,
	PARSE_VERDICT = 1, /* *verdict is what the program returns */
	PARSE_EXT = 2,     /* IPv6 extension headers stand before the L4 header: walk_ext_headers */
};

/* IPv6 extension headers that are walked; RFC 8200 packets have at most one of each kind. */
#define MAX_EXT_HEADERS 8

#define NEXTHDR_HOP      0
#define NEXTHDR_ROUTING  43
#define NEXTHDR_FRAGMENT 44
#define NEXTHDR_AUTH     51
#define NEXTHDR_NONE     59
#define NEXTHDR_DEST     60

/* Any L4 header that is read: TCP's 20 bytes are the longest. */
#define MAX_L4_LEN 20

/* Makes the first len bytes linear; false when the packet is shorter. */
INLINE bool ensure_linear(struct __sk_buff *skb, __u32 len)
{
	if (likely((void *)(long)skb->data + len <= (void *)(long)skb->data_end))
		return true;
	if (skb->len < len)
		return false;
	return bpf_skb_pull_data(skb, len) == 0;
}

/* What the host itself sends is the host's business, however odd. */
INLINE int bad_packet(struct __sk_buff *skb, enum cali_counter reason)
{
	return IS_TO && !FAIL_CLOSED ? pass(skb, CALI_COUNT_TO_STACK) : drop(skb, reason);
}

/* Fragments of workloads are not carried; the host's own are the kernel's to reassemble, but where it would
 * only send them round: back into the pair. */
INLINE int fragment_verdict(struct __sk_buff *skb, const struct pkt *p)
{
	struct cali_route_value *rt;

	if (FAIL_CLOSED || (IS_NAT && IS_FROM))
		return drop(skb, CALI_DROP_FRAGMENT);
	rt = route_lookup(&p->dst);
	if (IS_FROM && rt && (rt->flags & CALI_RT_WORKLOAD))
		return drop(skb, CALI_DROP_FRAGMENT);
	return pass(skb, CALI_COUNT_TO_STACK);
}

INLINE int parse_l4(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	__u32 need = p->proto == IPPROTO_TCP                             ? 20
		     : p->proto == IPPROTO_UDP || p->proto == PROTO_ICMP ? 8
		     : p->proto == IPPROTO_SCTP                          ? 12
									 : 0;
	__u32 off = p->l4_off;
	void *data, *end;

	p->sport_be = p->dport_be = 0;
	p->tcp_flags = 0;
	p->icmp_type = 0;
	p->tcp_seq = p->tcp_ack = p->tcp_end = 0;
	p->tcp_win = 0;
	if (!need)
		return PARSE_OK;
	if (unlikely(off - L2_LEN + need > p->l3_len)) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	if (unlikely(off > 512 || !ensure_linear(skb, off + need))) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	opaque(off);
	off &= 0x3ff;
	if (p->proto == IPPROTO_TCP) {
		struct tcphdr *th = data + off;
		__u32 doff;

		if (unlikely((void *)(th + 1) > end)) {
			*verdict = bad_packet(skb, CALI_DROP_SHORT);
			return PARSE_VERDICT;
		}
		doff = th->doff * 4;
		if (unlikely(doff < sizeof(*th) || off - L2_LEN + doff > p->l3_len)) {
			*verdict = bad_packet(skb, CALI_DROP_MALFORMED);
			return PARSE_VERDICT;
		}
		p->sport_be = th->source;
		p->dport_be = th->dest;
		p->tcp_flags = ((__u8 *)th)[13];
		p->tcp_seq = bpf_ntohl(th->seq);
		p->tcp_ack = bpf_ntohl(th->ack_seq);
		p->tcp_win = bpf_ntohs(th->window);
		p->tcp_end = p->tcp_seq + (p->l3_len - (off - L2_LEN) - doff);
		if (p->tcp_flags & (TCP_SYN | TCP_FIN))
			p->tcp_end++;
	} else {
		__be16 *ports = data + off;

		if (unlikely((void *)ports + 8 > end)) {
			*verdict = bad_packet(skb, CALI_DROP_SHORT);
			return PARSE_VERDICT;
		}
		if (unlikely(p->proto == PROTO_ICMP)) {
			p->icmp_type = *(__u8 *)ports;
#if IS_V6
			if (p->icmp_type == 128 || p->icmp_type == 129) /* echo */
#else
			if (p->icmp_type == 8 || p->icmp_type == 0)
#endif
				p->sport_be = p->dport_be = ports[2];
		} else {
			p->sport_be = ports[0];
			p->dport_be = ports[1];
		}
	}
	return PARSE_OK;
}

#if !IS_V6
INLINE int parse_l3(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	struct iphdr *ip;
	__u32 ihl, tot;

	if (unlikely(!ensure_linear(skb, L2_LEN + sizeof(*ip)))) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	ip = (void *)(long)skb->data + L2_LEN;
	if (unlikely((void *)(ip + 1) > (void *)(long)skb->data_end)) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	ihl = ip->ihl * 4;
	tot = bpf_ntohs(ip->tot_len);
	if (!tot && skb->gso_size) /* BIG TCP: longer than the field holds */
		tot = 0xffff;
	/* tot against a constant first: an old verifier follows "tot is 0, and not below ihl" to its end. */
	if (unlikely(ip->version != 4 || tot < sizeof(*ip) || ihl < sizeof(*ip) || tot < ihl ||
		     tot > skb->len - L2_LEN)) {
		*verdict = bad_packet(skb, CALI_DROP_MALFORMED);
		return PARSE_VERDICT;
	}
	p->src.w[0] = ip->saddr;
	p->dst.w[0] = ip->daddr;
	p->proto = ip->protocol;
	p->ttl = ip->ttl;
	p->df = (ip->frag_off & bpf_htons(0x4000)) != 0;
	p->l3_len = tot;
	p->l4_off = L2_LEN + ihl;
	if (unlikely(ip->frag_off & bpf_htons(0x3fff))) { /* more fragments, or an offset */
		*verdict = fragment_verdict(skb, p);
		return PARSE_VERDICT;
	}
	return PARSE_OK;
}
#else
INLINE bool is_ext_header(__u8 next)
{
	return next == NEXTHDR_HOP || next == NEXTHDR_ROUTING || next == NEXTHDR_FRAGMENT ||
	       next == NEXTHDR_AUTH || next == NEXTHDR_DEST;
}

/* From p->l4_off, where the first extension header stands, to the L4 header. Anything that is not an
 * extension header is the protocol, whether we know it or not (RFC 7045). */
INLINE int walk_ext_headers(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	__u32 off = p->l4_off, i;
	__u8 next = p->proto, h[2];

	for (i = 0; i < MAX_EXT_HEADERS; i++) {
		if (!is_ext_header(next))
			break;
		if (next == NEXTHDR_FRAGMENT) {
			*verdict = fragment_verdict(skb, p);
			return PARSE_VERDICT;
		}
		if (off - L2_LEN + 8 > p->l3_len || bpf_skb_load_bytes(skb, off, h, 2)) {
			*verdict = bad_packet(skb, CALI_DROP_SHORT);
			return PARSE_VERDICT;
		}
		/* RFC 8200: 8-byte units beyond the first 8; RFC 4302: AH counts 4-byte units - 2. */
		off += next == NEXTHDR_AUTH ? (h[1] + 2) * 4 : (h[1] + 1) * 8;
		next = h[0];
	}
	if (is_ext_header(next) || off - L2_LEN > p->l3_len) {
		*verdict = bad_packet(skb, CALI_DROP_EXT_HEADERS);
		return PARSE_VERDICT;
	}
	p->proto = next;
	p->l4_off = off;
	return PARSE_OK;
}

INLINE int parse_l3(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	struct ipv6hdr *ip;
	__u32 off = L2_LEN + sizeof(*ip), tot;
	__u8 next;

	if (unlikely(!ensure_linear(skb, L2_LEN + sizeof(*ip)))) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	ip = (void *)(long)skb->data + L2_LEN;
	if (unlikely((void *)(ip + 1) > (void *)(long)skb->data_end)) {
		*verdict = bad_packet(skb, CALI_DROP_SHORT);
		return PARSE_VERDICT;
	}
	tot = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (tot == sizeof(*ip) && skb->gso_size) /* jumbogram made by BIG TCP */
		tot = 0xffff;
	if (unlikely(ip->version != 6 || tot > skb->len - L2_LEN)) {
		*verdict = bad_packet(skb, CALI_DROP_MALFORMED);
		return PARSE_VERDICT;
	}
	__builtin_memcpy(&p->src, &ip->saddr, sizeof(p->src));
	__builtin_memcpy(&p->dst, &ip->daddr, sizeof(p->dst));
	p->ttl = ip->hop_limit;
	p->df = 1;
	p->l3_len = tot > 0xffff ? 0xffff : tot;
	next = ip->nexthdr;
	p->proto = next;
	p->l4_off = off;
	return is_ext_header(next) ? PARSE_EXT : PARSE_OK;
}
#endif

/* Protocol and tags first, then L3 and L4. */
INLINE int parse(struct __sk_buff *skb, struct pkt *p, int *verdict)
{
	int rc;

	/* A tag, offloaded or in the payload, belongs to a VLAN interface with programs of its own. */
	if (unlikely(skb->vlan_present || skb->protocol == bpf_htons(ETH_P_8021Q) ||
		     skb->protocol == bpf_htons(ETH_P_8021AD))) {
		*verdict = FAIL_CLOSED ? drop(skb, CALI_DROP_VLAN) : pass(skb, CALI_COUNT_VLAN_PASS);
		return PARSE_VERDICT;
	}
	if (unlikely(skb->protocol != bpf_htons(ETH_P_FAM))) {
		*verdict = FAIL_CLOSED ? drop(skb, CALI_DROP_NOT_IP) : pass(skb, CALI_COUNT_TO_STACK);
		return PARSE_VERDICT;
	}
	rc = parse_l3(skb, p, verdict);
	if (rc)
		return rc;
	return parse_l4(skb, p, verdict);
}

#endif
