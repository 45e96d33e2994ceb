/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* marks.h: skb->mark values. All live in nine bits, shifted by cali_config.mark_shift (default 20: mask
 * 0x1ff00000), so one setting moves them all out of somebody else's way. Bits outside the mask
 * are kept. A mark never crosses into a pod: it is cleared before redirect_peer. */
#ifndef FELIX_MARKS_H
#define FELIX_MARKS_H

enum cali_mark {
	CALI_MARK_SEEN = 0x010,        /* went through a from_* program: entry exists, sender's side judged */
	CALI_MARK_BYPASS = 0x030,      /* all done: later programs pass it on sight */
	CALI_MARK_FALLTHROUGH = 0x050, /* unknown mid-flow segment: the kernel's stack decides */
	CALI_MARK_NAT_OUT = 0x018,     /* leaves the cluster: to be masqueraded by the host */
	CALI_MARK_STACK = 0x090,       /* the same, of a pod, and left to the kernel's stack */
	CALI_MARK_LO_REPLY =
	    0x110, /* this host's answer to a service of its own: lo's ingress translates it */
	CALI_MARK_BITS = 0x1ff,
};

#endif
