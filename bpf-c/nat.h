/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* nat.h: frontend -> backend. Reads the service maps and chooses; rewriting is rewrite.h's. */
#ifndef FELIX_NAT_H
#define FELIX_NAT_H

#include "conntrack.h"

enum nat_result {
	NAT_NONE = 0,       /* not a frontend */
	NAT_CHOSEN = 1,     /* st: backend, service, flags */
	NAT_NO_BACKEND = 2, /* to be refused */
	NAT_NO_LOCAL = 3,   /* dropped silently: traffic policy Local (rules 6 and 7) */
	NAT_BROKEN = 4,     /* a frontend that points at nothing */
};

INLINE struct cali_fe_value *fe_lookup(const struct cali_ip *addr, __be16 port_be, __u8 proto)
{
	struct cali_fe_key k;

	k.addr = *addr;
	k.port_be = port_be;
	k.proto = proto;
	k.spare = 0;
	return bpf_map_lookup_elem(&FAM(nat_fe3), &k);
}

/* A NodePort on the address of another node: one entry serves them all. */
INLINE struct cali_fe_value *fe_lookup_any_node(__be16 port_be, __u8 proto)
{
	struct cali_ip any;

	__builtin_memset(&any, 0xff, sizeof(any));
	return fe_lookup(&any, port_be, proto);
}

INLINE struct cali_be_value *be_lookup(__u32 svc_id, __u32 ordinal)
{
	struct cali_be_key k = {.svc_id = svc_id, .ordinal = ordinal};

	return bpf_map_lookup_elem(&FAM(nat_be), &k);
}

/* The client's last backend, if it is still in the list that is balanced over (enum cali_be_flag) and
 * was used lately enough. */
INLINE struct cali_be_value *affinity_lookup(struct cali_aff_key *ak, const struct cali_fe_value *fe,
					     __u32 list, const struct cali_state *st)
{
	struct cali_aff_value *av = bpf_map_lookup_elem(&FAM(nat_aff), ak);
	struct cali_be_value *be;

	if (!av || st->now - av->last_used > (__u64)fe->affinity_timeout * CFG.hz)
		return NULL;
	be = be_lookup(ak->svc_id, CALI_BE_BY_ID | (av->backend_id & 0x3fffffff));
	if (be && !(be->flags & list))
		be = NULL;
	if (be && !st->trace)
		av->last_used = st->now; /* refreshed by use: rule 14 */
	return be;
}

/* Chooses a backend for a new flow to fe and writes it to st. inside: the client is a pod or this
 * host, for whom externalTrafficPolicy is short-circuited to the cluster list (rule 7). */
INLINE enum nat_result nat_choose(struct __sk_buff *skb, struct cali_state *st,
				  const struct cali_fe_value *fe, bool inside)
{
	bool local = (fe->flags & CALI_FE_ITP_LOCAL) || ((fe->flags & CALI_FE_ETP_LOCAL) && !inside);
	__u32 n = local ? fe->local_count : fe->cluster_count;
	struct cali_be_value *be = NULL;
	struct cali_aff_key ak;

	st->svc_id = fe->svc_id;
	st->fe_flags = fe->flags;
	if (!n) {
		if (local && fe->cluster_count)
			return NAT_NO_LOCAL;
		return NAT_NO_BACKEND;
	}
	if (fe->affinity_timeout) {
		ak.client = st->ev.src;
		ak.svc_id = fe->svc_id;
		ak.kind = 0;
		be = affinity_lookup(&ak, fe, local ? CALI_BEF_LOCAL : CALI_BEF_CLUSTER, st);
		if (be)
			count(skb, CALI_COUNT_AFFINITY_HIT);
	}
	if (!be) {
		be = be_lookup(fe->svc_id, (bpf_get_prandom_u32() % n) | (local ? CALI_BE_LOCAL : 0));
		if (!be)
			return NAT_BROKEN;
		if (fe->affinity_timeout && !st->trace) {
			struct cali_aff_value av = {.last_used = st->now, .backend_id = be->id};

			bpf_map_update_elem(&FAM(nat_aff), &ak, &av, BPF_ANY);
		}
	}
	st->ev.post_nat_dst = be->addr;
	st->ev.post_nat_dport_be = be->port_be;
	st->backend_id = be->id;
	return NAT_CHOSEN;
}

#endif
