/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* nat.h: a packet's frontend -> its backend, written to the state; rewriting is rewrite.h's. */
#ifndef FELIX_NAT_H
#define FELIX_NAT_H

#include "balance.h"
#include "conntrack.h"

/* Chooses a backend for a new flow to fe and writes it to st. inside: see fe_local(). */
INLINE enum nat_result nat_choose(struct __sk_buff *skb, struct cali_state *st,
				  const struct cali_fe_value *fe, bool inside)
{
	struct client c = {
	    .ak.client = st->ev.src, .now = st->now, .hz = CFG(hz), .inside = inside, .dry = st->trace};
	struct cali_be_value *be;
	enum nat_result r;

	st->svc_id = fe->svc_id;
	st->fe_flags = fe->flags;
	r = balance(&c, fe, &be);
	if (r != NAT_CHOSEN)
		return r;
	if (c.kept)
		count(skb, CALI_COUNT_AFFINITY_HIT);
	st->ev.post_nat_dst = be->addr;
	st->ev.post_nat_dport_be = be->port_be;
	st->backend_id = be->id;
	return NAT_CHOSEN;
}

#endif
