/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* reply.h: answers made by the datapath itself: ICMP errors and TCP resets, sent back to whoever sent
 * the packet, by the interface it came from.
 *
 * Before: the packet as its sender made it (nothing rewritten yet), and in st what to say.
 * After: the packet has become the answer and is on its way back. */
#ifndef FELIX_REPLY_H
#define FELIX_REPLY_H

#include "forward.h"

struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 sum;
	__be32 info; /* MTU, as each type wants it */
};

#if IS_V6
#define L3_LEN         sizeof(struct ipv6hdr)
#define ICMP_QUOTE_MAX 256 /* multiple of 4; RFC 4443 wants much, receivers need the headers */
#else
#define L3_LEN         sizeof(struct iphdr)
#define ICMP_QUOTE_MAX 128 /* RFC 1812 4.3.2.3: as much as possible; receivers need IP header + 8 */
#endif

INLINE __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(__u16)sum;
}

INLINE void swap_macs(void *data)
{
	__u8 tmp[ETH_ALEN];
	struct ethhdr *eth = data;

	__builtin_memcpy(tmp, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, tmp, ETH_ALEN);
}

/* Writes the network header of an answer at ip. */
#if IS_V6
INLINE void write_l3(struct ipv6hdr *ip, const struct cali_ip *src, const struct cali_ip *dst, __u8 proto,
		     __u16 payload)
{
	*(__be32 *)ip = bpf_htonl(0x60000000);
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = proto;
	ip->hop_limit = 64;
	__builtin_memcpy(&ip->saddr, src, sizeof(*src));
	__builtin_memcpy(&ip->daddr, dst, sizeof(*dst));
}
#else
INLINE void write_l3(struct iphdr *ip, const struct cali_ip *src, const struct cali_ip *dst, __u8 proto,
		     __u16 payload)
{
	__u64 sum = 0;
	__u16 *w = (__u16 *)ip;
	int i;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(payload + sizeof(*ip));
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = 64;
	ip->protocol = proto;
	ip->check = 0;
	ip->saddr = src->w[0];
	ip->daddr = dst->w[0];
#pragma unroll
	for (i = 0; i < 10; i++)
		sum += w[i];
	ip->check = fold(sum);
}
#endif

/* Sum of the pseudo-header. */
INLINE __u64 pseudo_sum(const struct cali_ip *src, const struct cali_ip *dst, __u8 proto, __u16 len)
{
	__u64 sum = (__u64)bpf_htons(len) + bpf_htons(proto);
	int i;

#pragma unroll
	for (i = 0; i < IP_WORDS; i++)
		sum += (__u64)src->w[i] + dst->w[i];
	return sum;
}

/* Back the way the packet came: out of the interface it came in by, or in again where it was leaving;
 * through the tunnel where it came through the tunnel. */
INLINE int send_back(struct __sk_buff *skb, const struct cali_state *st)
{
	if (CB(skb, CALI_CB_TRACE))
		return TC_ACT_OK;
	set_mark(skb, CALI_MARK_BYPASS);
	count(skb, CALI_COUNT_REDIRECT_BACK);
	if (IS_FROM && IS_TUNNEL) {
		struct cali_globals *g = get_globals();
		struct bpf_tunnel_key key;
		struct cali_ip_any peer;
		bool v6;

		if (!g)
			return drop(skb, CALI_DROP_NO_STATE);
		v6 = g->flags & CALI_GF_UNDERLAY_V6;
		zero(key);
		zero(peer);
		if (bpf_skb_get_tunnel_key(skb, &key, offsetof(struct bpf_tunnel_key, local_ipv4),
					   v6 ? BPF_F_TUNINFO_IPV6 : 0))
			return drop(skb, CALI_DROP_ICMP_BUILD);
		if (v6)
			__builtin_memcpy(&peer, key.remote_ipv6, sizeof(peer));
		else
			peer.w[0] = bpf_htonl(key.remote_ipv4);
		if (!set_tunnel_key(skb, &peer, v6, g))
			return drop(skb, CALI_DROP_ICMP_BUILD);
	}
	/* What this host sent to an address of its own came here by lo, and can only come in again by here.
	 */
	if (IS_NAT && IS_FROM) {
		struct cali_route_value *rt = route_lookup(&st->ev.dst);

		if (rt && rt_local_host(rt->flags))
			return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	}
	return bpf_redirect(skb->ifindex, IS_FROM ? 0 : BPF_F_INGRESS);
}

/* Turns the packet into an ICMP error that quotes it: st->icmp_type, icmp_code, icmp_info. */
INLINE int icmp_reply(struct __sk_buff *skb, struct cali_state *st)
{
	const __u32 room = L3_LEN + sizeof(struct icmp_header);
	struct cali_globals *g = get_globals();
	struct icmp_header *icmp;
	struct cali_ip src, dst;
	__u32 quote, i;
	void *data, *end;
	__u64 sum;

	if (!g)
		return drop(skb, CALI_DROP_NO_STATE);
	/* The answer comes from this node; or from the address asked where the node has none. */
	if (st->icmp_type == (IS_V6 ? 1 : 3) && st->icmp_code == (IS_V6 ? 4 : 3))
		src = st->ev.dst; /* port unreachable: it is that address's own answer */
	else if (!host_ip(g, &src))
		src = st->ev.dst;
	dst = st->ev.src;
	quote = st->l3_len & ~3U;
	if (quote > ICMP_QUOTE_MAX)
		quote = ICMP_QUOTE_MAX;
	if (bpf_skb_change_tail(skb, L2_LEN + quote, 0))
		return drop(skb, CALI_DROP_ICMP_BUILD);
	if (bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, 0))
		return drop(skb, CALI_DROP_ICMP_BUILD);
	if (!ensure_linear(skb, L2_LEN + room + quote))
		return drop(skb, CALI_DROP_ICMP_BUILD);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + L2_LEN + room > end)
		return drop(skb, CALI_DROP_ICMP_BUILD);
	if (L2_LEN)
		swap_macs(data);
	write_l3(data + L2_LEN, &src, &dst, PROTO_ICMP, sizeof(*icmp) + quote);
	icmp = data + L2_LEN + L3_LEN;
	icmp->type = st->icmp_type;
	icmp->code = st->icmp_code;
	icmp->sum = 0;
	icmp->info = bpf_htonl(st->icmp_info);
	sum = (__u64)icmp->type + ((__u64)icmp->code << 8) + icmp->info;
#if IS_V6
	sum += pseudo_sum(&src, &dst, PROTO_ICMP, sizeof(*icmp) + quote);
#endif
	data += L2_LEN + room;
#pragma unroll
	for (i = 0; i < ICMP_QUOTE_MAX / 4; i++) {
		__be32 *w = data + i * 4;

		if ((void *)(w + 1) > end)
			break;
		sum += *w;
	}
	icmp->sum = fold(sum);
	count(skb, CALI_COUNT_ICMP_SENT);
	return send_back(skb, st);
}

/* Turns a TCP segment into the RST that answers it (RFC 9293 3.5.2). */
INLINE int rst_reply(struct __sk_buff *skb, struct cali_state *st)
{
	struct tcphdr *th;
	void *data, *end;
	__u64 sum;
	__u32 i;

	if (bpf_skb_change_tail(skb, L2_LEN + L3_LEN + sizeof(*th), 0))
		return drop(skb, CALI_DROP_ICMP_BUILD);
	if (!ensure_linear(skb, L2_LEN + L3_LEN + sizeof(*th)))
		return drop(skb, CALI_DROP_ICMP_BUILD);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + L2_LEN + L3_LEN + sizeof(*th) > end)
		return drop(skb, CALI_DROP_ICMP_BUILD);
	if (L2_LEN)
		swap_macs(data);
	write_l3(data + L2_LEN, &st->ev.dst, &st->ev.src, IPPROTO_TCP, sizeof(*th));
	th = data + L2_LEN + L3_LEN;
	__builtin_memset(th, 0, sizeof(*th));
	th->source = st->ev.dport_be;
	th->dest = st->ev.sport_be;
	th->doff = sizeof(*th) / 4;
	th->rst = 1;
	if (st->tcp_flags & TCP_ACK) {
		th->seq = bpf_htonl(st->tcp_ack);
	} else {
		th->ack = 1;
		th->ack_seq = bpf_htonl(st->tcp_end);
	}
	sum = pseudo_sum(&st->ev.dst, &st->ev.src, IPPROTO_TCP, sizeof(*th));
#pragma unroll
	for (i = 0; i < sizeof(*th) / 4; i++)
		sum += ((__be32 *)th)[i];
	th->check = fold(sum);
	count(skb, CALI_COUNT_RST_SENT);
	return send_back(skb, st);
}

#endif
