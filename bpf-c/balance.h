/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* balance.h: frontend -> backend: which of a service's backends a client gets. It reads the service maps and
 * the affinity records, and nothing of a packet or a socket, so that TC (nat.h) and the programs at connect
 * time (ctlb.c) choose alike. */
#ifndef FELIX_BALANCE_H
#define FELIX_BALANCE_H

#include "maps.h"

enum nat_result {
	NAT_NONE = 0,       /* not a frontend */
	NAT_CHOSEN = 1,     /* there is a backend */
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

/* Whether the client is balanced over the backends of this node only. inside: the client is a pod or this
 * host, for whom externalTrafficPolicy is short-circuited to the cluster list (rule 7). */
INLINE bool fe_local(const struct cali_fe_value *fe, bool inside)
{
	return (fe->flags & CALI_FE_ITP_LOCAL) || ((fe->flags & CALI_FE_ETP_LOCAL) && !inside);
}

/* A backend that was chosen before, if it still is in the list that is balanced over (enum cali_be_flag). */
INLINE struct cali_be_value *be_again(__u32 svc_id, __u32 backend_id, bool local)
{
	struct cali_be_value *be = be_lookup(svc_id, CALI_BE_BY_ID | (backend_id & 0x3fffffff));

	return be && (be->flags & (local ? CALI_BEF_LOCAL : CALI_BEF_CLUSTER)) ? be : NULL;
}

/* A client for balance(): who it is, for affinity, and the time in jiffies. */
struct client {
	struct cali_aff_key ak; /* all but svc_id is the caller's to fill */
	__u64 now;              /* jiffies */
	__u32 hz;
	bool inside;
	bool dry;  /* a dry run: nothing is written */
	bool kept; /* out: the backend is the client's last one */
};

/* The client's last backend, if it was used lately enough. */
INLINE struct cali_be_value *affinity_lookup(struct client *c, const struct cali_fe_value *fe, bool local)
{
	struct cali_aff_value *av = bpf_map_lookup_elem(&FAM(nat_aff), &c->ak);
	struct cali_be_value *be;

	if (!av || c->now - av->last_used > (__u64)fe->affinity_timeout * c->hz)
		return NULL;
	be = be_again(fe->svc_id, av->backend_id, local);
	if (be && !c->dry)
		av->last_used = c->now; /* refreshed by use: rule 14 */
	return be;
}

/* Chooses a backend for a client that is new to fe. */
INLINE enum nat_result balance(struct client *c, const struct cali_fe_value *fe,
			       struct cali_be_value **chosen)
{
	bool local = fe_local(fe, c->inside);
	__u32 n = local ? fe->local_count : fe->cluster_count;
	struct cali_be_value *be = NULL;

	if (!n)
		return local && fe->cluster_count ? NAT_NO_LOCAL : NAT_NO_BACKEND;
	if (fe->affinity_timeout) {
		c->ak.svc_id = fe->svc_id;
		be = affinity_lookup(c, fe, local);
		c->kept = be;
	}
	if (!be) {
		be = be_lookup(fe->svc_id, (bpf_get_prandom_u32() % n) | (local ? CALI_BE_LOCAL : 0));
		if (!be)
			return NAT_BROKEN;
		if (fe->affinity_timeout && !c->dry) {
			struct cali_aff_value av = {.last_used = c->now, .backend_id = be->id};

			bpf_map_update_elem(&FAM(nat_aff), &c->ak, &av, BPF_ANY);
		}
	}
	*chosen = be;
	return NAT_CHOSEN;
}

#endif
