/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* lo.h: what this host sends to itself, where that has to do with services: questions to a port of its
 * own that is a service's, and its own answers to what it asked of a service.
 *
 * A destination that is the host's own can not be translated here: the route is attached already, and
 * the packet would be delivered whatever it says. So it is taken out of lo and comes in again by
 * bpfout.cali, where it is translated and routed anew. Answers are translated by lo's ingress hook,
 * which looks at nothing but what was marked here. All else leaves after a lookup or two; the programs
 * are on lo only while the fallback is up. */
#ifndef FELIX_LO_H
#define FELIX_LO_H

#include "sight.h"

INLINE int leave_by_lo(struct __sk_buff *skb, const struct pkt *p, const struct cali_globals *g, __u64 now)
{
	struct cali_ct_value *v;
	struct cali_ct_key key;
	bool swapped;
	__u32 leg;

	if (is_loopback(&p->dst) || is_loopback(&p->src))
		return pass(skb, CALI_COUNT_TO_STACK); /* can not leave lo */
	swapped = ct_key_make(&key, &p->src, &p->dst, p->sport_be, p->dport_be, p->proto, 0);
	v = ct_find_any(&key);
	if (v && !ct_dead(v, now)) {
		leg = ct_leg(v, swapped);
		if (v->type == CALI_CT_NAT_REV && leg) {
			if (!CB(skb, CALI_CB_TRACE))
				set_mark(skb, CALI_MARK_LO_REPLY);
			return pass(skb, CALI_COUNT_TO_STACK);
		}
		if (v->type == CALI_CT_NAT_FWD && !leg)
			return send_natout(skb, g, 0);
		return pass(skb, CALI_COUNT_TO_STACK);
	}
	if (p->proto != PROTO_ICMP && opens_flow(p) && fe_lookup(&p->dst, p->dport_be, p->proto))
		return send_natout(skb, g, 0);
	return pass(skb, CALI_COUNT_TO_STACK);
}

#endif
