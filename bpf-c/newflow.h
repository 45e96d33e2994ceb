/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* newflow.h: the program that finds out what a new flow is and what it may want: a service, a pod, this
 * host, or nothing of ours. Its only way on is through policy.
 *
 * Before: st has the tuple as sent. After: st has the backend, the way ahead, and what the entries will say.
 */
#ifndef FELIX_NEWFLOW_H
#define FELIX_NEWFLOW_H

#include "known.h"

/* A TCP segment that opens nothing and belongs to nothing we know: a flow from before our time, or of
 * another NAT, or one that is over. Only the last is answered, and only for what is ours to answer. A pod
 * that is closed neither sends nor gets such a segment, and one with a policy does what that says, save as
 * long as flows from before our time are adopted: of those nobody knows which end has opened them. */
INLINE int mid_flow(struct __sk_buff *skb, struct cali_state *st, const struct cali_globals *g, bool ours)
{
	bool adopting = st->now < g->adoption_end;

	if (!ours || adopting) {
		if (IS_WEP && st->policy != CALI_POLICY_ALLOW &&
		    (st->policy == CALI_POLICY_DENY || !adopting)) {
			st->flags |= CALI_ST_MID_FLOW;
			jump_policy(skb, st);
			return no_program(skb);
		}
		return fall_through(skb);
	}
	if (st->tcp_flags & TCP_RST) /* never a reset for a reset */
		return drop(skb, CALI_DROP_UNKNOWN_FLOW);
	return answer_rst(skb, CALI_DROP_UNKNOWN_FLOW);
}

/* A flow whose socket was balanced when it connected: what it asked for, for policy and the flow's entry. */
INLINE void asked_by_socket(struct __sk_buff *skb, struct cali_state *st)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct cali_sock_value *v;
	struct cali_sock_key k;

	k.cookie[0] = cookie;
	k.cookie[1] = cookie >> 32;
	k.addr = st->ev.dst;
	k.port_be = st->ev.dport_be;
	k.proto = st->ev.proto;
	k.spare = 0;
	v = cookie ? bpf_map_lookup_elem(&FAM(ct_nats), &k) : NULL;
	if (!v)
		return;
	st->ev.pre_nat_dst = v->addr;
	st->ev.pre_nat_dport_be = v->port_be;
	st->svc_id = v->svc_id;
	st->backend_id = v->backend_id;
	st->flags |= CALI_ST_FROM_SOCKET;
}

/* bpfout.cali takes nothing but what this host asks of services: anything else came by a route that
 * will go in a moment, or asks for a port that the service does not have, and would go round in circles. */
INLINE int refuse_at_nat(struct __sk_buff *skb, struct cali_state *st)
{
	if (st->ev.proto == IPPROTO_TCP && (st->tcp_flags & TCP_RST))
		return drop(skb, CALI_DROP_UNKNOWN_FLOW);
	if (st->ev.proto == IPPROTO_TCP || st->ev.proto == IPPROTO_UDP)
		return refuse(skb, st, CALI_DROP_NO_BACKEND);
	return drop(skb, CALI_DROP_NO_ROUTE);
}

/* Whether the pod behind an interface takes whatever comes: then its end has judged the flow, too, and the
 * first packet need not go by its program. Only what is attached and complete counts. */
INLINE bool takes_everything(__u32 ifindex)
{
	struct cali_iface_value *iface = bpf_map_lookup_elem(&cali_iface2, &ifindex);

	return iface && (iface->flags & CALI_IFF_READY) &&
	       iface->policy[CALI_HOOK_EGRESS * 2 + FAMILY] == CALI_POLICY_ALLOW;
}

/* Finds out what a new flow is: to a service, a pod, this host, or none of our business. */
SEC("tc")
int cali_new_flow(struct __sk_buff *skb)
{
	struct cali_globals *g = get_globals();
	struct cali_state *st = get_state(skb);
	struct cali_fe_value *fe = NULL;
	struct cali_route_value *rt, *src_rt = NULL;
	struct fwd_dst d;
	__u32 dst_flags;
	bool syn, translated = false, by_stack = false;

	if (!g || !st)
		return drop(skb, CALI_DROP_NO_STATE);
	syn = (st->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
	if (IS_TO && !IS_WEP && !(st->flags & CALI_ST_CONFLICT)) {
		/* The answer would look like a new flow, or like none at all, where it comes in: an entry
		 * sends it back through the stack. */
		by_stack = (st->ev.proto != IPPROTO_TCP || syn) && from_pod_by_stack(skb, &st->ev.src);
		if (!by_stack) {
			struct pkt p;

			pkt_from_state(&p, st);
			return not_ours(skb, &p, g);
		}
	}
	if (st->ev.proto == IPPROTO_TCP && syn && !(st->flags & CALI_ST_FLOW_SEEN))
		st->tcp_scale = tcp_scale_option(skb, st->l4_off);

	if (CAN_DNAT &&
	    (st->ev.proto == IPPROTO_TCP || st->ev.proto == IPPROTO_UDP || st->ev.proto == IPPROTO_SCTP))
		fe = fe_lookup(&st->ev.dst, st->ev.dport_be, st->ev.proto);
	rt = fe ? NULL : route_lookup(&st->ev.dst);
	dst_flags = rt ? rt->flags : 0;
	if (IS_WEP && IS_FROM && !fe && rt_remote_host(dst_flags))
		fe = fe_lookup_any_node(st->ev.dport_be, st->ev.proto);

	if ((st->flags & CALI_ST_EXPIRED) && st->ev.proto == IPPROTO_TCP && !syn)
		return st->tcp_flags & TCP_RST ? drop(skb, CALI_DROP_EXPIRED_FLOW)
					       : answer_rst(skb, CALI_DROP_EXPIRED_FLOW);
	if (IS_NAT && (!fe || (st->ev.proto == IPPROTO_TCP && !syn)))
		return refuse_at_nat(skb, st);
	if (st->ev.proto == IPPROTO_TCP && !syn)
		return mid_flow(skb, st, g, fe || rt_local_pod(dst_flags));

	if (fe) {
		enum nat_result nat;

		if (!IS_WEP)
			src_rt = route_lookup(&st->ev.src);
		nat = nat_choose(skb, st, fe,
				 IS_WEP || (src_rt && (src_rt->flags & (CALI_RT_WORKLOAD | CALI_RT_LOCAL))));
		if (nat == NAT_NO_LOCAL)
			return drop(skb, CALI_DROP_NO_LOCAL_BACKEND);
		if (nat == NAT_NO_BACKEND)
			return refuse(skb, st, CALI_DROP_NO_BACKEND);
		if (nat != NAT_CHOSEN)
			return drop(skb, CALI_DROP_BACKEND_MISSING);
		count(skb, CALI_COUNT_SERVICE_NEW);
		translated = true;
		st->flags |= CALI_ST_DNAT;
		rt = route_lookup(&st->ev.post_nat_dst);
		dst_flags = rt ? rt->flags : 0;
		if (IS_WEP && ip_equal(&st->ev.src, &st->ev.post_nat_dst)) {
			/* The pod would not take a packet with its own source from outside. */
			if (!host_ip(g, &st->ev.post_nat_src))
				st->ev.post_nat_src = st->ev.pre_nat_dst;
			st->flags |= CALI_ST_HAIRPIN | CALI_ST_SNAT;
			count(skb, CALI_COUNT_HAIRPIN);
		}
	}
	if (st->flags & CALI_ST_CONFLICT) {
		count(skb, CALI_COUNT_HOST_CONFLICT);
		translated = true;
		st->flags |= CALI_ST_DNAT;
	}
	/* Tunnel packets are made by nodes, never by pods. */
	if (IS_WEP && IS_FROM && st->ev.proto == IPPROTO_UDP && st->ev.dport_be == g->vxlan_port_be &&
	    (dst_flags & CALI_RT_HOST))
		return drop(skb, CALI_DROP_TUNNEL_SOURCE);
	if (dst_flags & CALI_RT_BLACKHOLE)
		return drop(skb, CALI_DROP_BLACKHOLE);
	if (dst_flags & CALI_RT_REJECT)
		return refuse(skb, st, CALI_DROP_BLACKHOLE);

	st->dst_flags = dst_flags;
	if (rt_local_pod(dst_flags)) {
		st->flags |= CALI_ST_DST_LOCAL_POD;
		st->dst_ep_slot = rt ? rt->ep_slot : 0;
	}
	if (IS_WEP && IS_FROM) {
		st->src_ep_slot = st->ep_slot;
		if (!translated && (g->flags & CALI_GF_CTLB))
			asked_by_socket(skb, st);
		if (!dst_flags) {
			src_rt = route_lookup(&st->ev.src);
			if (src_rt && (src_rt->flags & CALI_RT_NAT_OUT)) {
				st->flags |= CALI_ST_NAT_OUT;
				count(skb, CALI_COUNT_NAT_OUT);
			}
		}
	}
	if (IS_WEP && IS_TO) {
		st->dst_ep_slot = st->ep_slot;
		src_rt = route_lookup(&st->ev.src);
		if (src_rt && rt_local_host(src_rt->flags))
			st->flags |= CALI_ST_SRC_LOCAL_HOST;
	}
	if (st->iface_flags & CALI_IFF_SKIP_FAST_PATH)
		st->flags |= CALI_ST_SKIP_PEER;

	if (!IS_WEP && !translated && !rt_local_pod(dst_flags)) {
		/* The host's own, or transit: the kernel's. Only a client whose address another node kept
		 * needs an entry: the reply must find its way back through the tunnel. */
		bool keep = IS_FROM && IS_TUNNEL && rt_local_host(dst_flags);

		if (keep) {
			src_rt = route_lookup(&st->ev.src);
			keep = !src_rt || !(src_rt->flags & (CALI_RT_WORKLOAD | CALI_RT_HOST));
		}
		if (keep && st->ev.proto == IPPROTO_TCP)
			clamp_mss(skb, st->l4_off, g->tunnel_mtu);
		if (!keep && !by_stack)
			return pass(skb, CALI_COUNT_TO_STACK);
	}

	fwd_resolve(&d, rt, translated ? XLATE_DNAT : XLATE_NONE, g);
	if (st->flags & CALI_ST_SKIP_PEER && d.kind == CALI_FWD_PEER)
		d.kind = CALI_FWD_VETH;
	if (IS_FROM && d.kind == CALI_FWD_PEER && takes_everything(d.ifindex))
		st->flags |= CALI_ST_DST_OPEN;
	st->fwd = d.kind;
	st->dst_ifindex = d.ifindex;
	if (d.kind == CALI_FWD_TUNNEL) {
		st->tun_peer = d.tun;
		if (d.tun_v6)
			st->flags |= CALI_ST_TUN_V6;
	} else if (IS_TUNNEL && IS_FROM) {
		struct bpf_tunnel_key tk;
		bool v6 = g->flags & CALI_GF_UNDERLAY_V6;

		zero(tk);
		if (!bpf_skb_get_tunnel_key(skb, &tk, offsetof(struct bpf_tunnel_key, local_ipv4),
					    v6 ? BPF_F_TUNINFO_IPV6 : 0)) {
			st->flags |= CALI_ST_TUN_SRC | (v6 ? CALI_ST_TUN_V6 : 0);
			if (v6)
				__builtin_memcpy(&st->tun_peer, tk.remote_ipv6, sizeof(st->tun_peer));
			else
				st->tun_peer.w[0] = bpf_htonl(tk.remote_ipv4);
		}
	}

	/* Nothing to ask where everything is allowed. */
	if (st->policy != CALI_POLICY_ALLOW) {
		jump_policy(skb, st);
		if (FAIL_CLOSED)
			return no_program(skb);
	}
	jump(skb, CALI_SLOT_ACCEPTED);
	return no_program(skb);
}

#endif
