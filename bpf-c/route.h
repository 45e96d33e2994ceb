/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* route.h: what the cluster knows of an address: whose it is and how it is reached. */
#ifndef FELIX_ROUTE_H
#define FELIX_ROUTE_H

#include "maps.h"

/* Longest match, or NULL: an address the cluster knows nothing of. */
INLINE struct cali_route_value *route_lookup(const struct cali_ip *addr)
{
	struct cali_route_key k;

	k.prefixlen = IP_WORDS * 32;
	k.addr = *addr;
	return bpf_map_lookup_elem(&FAM(routes), &k);
}

INLINE bool rt_local_pod(__u32 flags)
{
	return (flags & (CALI_RT_LOCAL | CALI_RT_WORKLOAD)) == (CALI_RT_LOCAL | CALI_RT_WORKLOAD);
}

INLINE bool rt_local_host(__u32 flags)
{
	return (flags & (CALI_RT_LOCAL | CALI_RT_HOST)) == (CALI_RT_LOCAL | CALI_RT_HOST);
}

INLINE bool rt_remote_host(__u32 flags)
{
	return (flags & (CALI_RT_LOCAL | CALI_RT_HOST)) == CALI_RT_HOST;
}

INLINE bool rt_remote_pod(__u32 flags)
{
	return (flags & (CALI_RT_LOCAL | CALI_RT_WORKLOAD)) == CALI_RT_WORKLOAD;
}

#endif
