/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* addr.h: addresses of the family being compiled, for TC's programs and those at connect time. */
#ifndef FELIX_ADDR_H
#define FELIX_ADDR_H

#include "types.h"

/* Whether two addresses are the same. */
INLINE bool ip_equal(const struct cali_ip *a, const struct cali_ip *b)
{
#if IS_V6
	return !((a->w[0] ^ b->w[0]) | (a->w[1] ^ b->w[1]) | (a->w[2] ^ b->w[2]) | (a->w[3] ^ b->w[3]));
#else
	return a->w[0] == b->w[0];
#endif
}

/* Widens an address to one of either family. */
INLINE void ip_any_from(struct cali_ip_any *any, const struct cali_ip *ip)
{
	any->w[0] = ip->w[0];
#if IS_V6
	any->w[1] = ip->w[1];
	any->w[2] = ip->w[2];
	any->w[3] = ip->w[3];
#else
	any->w[1] = any->w[2] = any->w[3] = 0;
#endif
}

#endif
