/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sight.h: what can be told of a packet at first sight: that it is no flow's, that it belongs to the
 * host, that it is another packet of an established flow, that it opens one. */
#ifndef FELIX_SIGHT_H
#define FELIX_SIGHT_H

#include "steps.h"

/* Addresses that mean this host to itself, and nothing to anybody else. */
INLINE bool is_loopback(const struct cali_ip *ip)
{
#if IS_V6
	return !(ip->w[0] | ip->w[1] | ip->w[2]) && ip->w[3] == bpf_htonl(1);
#else
	return (ip->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
#endif
}

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

/* Where packets leave the node: what a pod of this node sent, our program left to the kernel's stack, and the
 * stack has translated: else it would be known. A kube-proxy that serves what we do not is such a case. */
INLINE bool from_pod_by_stack(struct __sk_buff *skb, const struct cali_ip *src)
{
	struct cali_route_value *rt;

	if (!came_by_stack(skb))
		return false;
	rt = route_lookup(src);
	return rt && rt_local_pod(rt->flags);
}

/* Packets at a host's interface that no flow, frontend or pod of ours has to do with: most of what a
 * node sends and receives for itself. They are not worth the long way. */
INLINE bool is_foreign(struct __sk_buff *skb, const struct pkt *p)
{
	struct cali_route_value *rt;

	if (IS_WEP || (IS_FROM && (IS_TUNNEL || IS_NAT)))
		return false;
	if (IS_TO)
		return !from_pod_by_stack(skb, &p->src);
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

/* A packet in whose sender's own words the tuple is: no program of ours has translated it. */
INLINE bool unmarked(struct __sk_buff *skb)
{
	return IS_FROM || !has_mark(skb, CALI_MARK_SEEN);
}

/* A datagram that the stack has translated hits an entry that knows nothing of that: made of an answer that
 * came in when nobody had seen the question yet, as happens when programs are attached to flows that live. */
INLINE bool taken_for_another(struct __sk_buff *skb, const struct pkt *p, const struct cali_ct_value *v)
{
	return IS_TO && p->proto != IPPROTO_TCP && v->type == CALI_CT_NORMAL &&
	       !(v->flags & CALI_CTF_VIA_STACK) && came_by_stack(skb);
}

/* Another packet of an established flow, that changes nothing about it. */
INLINE bool plain_packet(struct __sk_buff *skb, const struct pkt *p, const struct cali_ct_value *v, __u32 leg,
			 __u32 now)
{
	if (unlikely(p->proto == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST))))
		return false;
	if (ct_dead(v, now) || ct_twin_due(v, now) || CB(skb, CALI_CB_TRACE))
		return false;
	if (v->type == CALI_CT_NAT_REV && !leg && unmarked(skb))
		return false; /* collides with a translated flow */
	if (taken_for_another(skb, p, v))
		return false;
	if (IS_TO && IS_WEP && !leg && !(v->flags & CALI_CTF_APPROVED_1))
		return false; /* to be judged */
	return true;
}

#endif
