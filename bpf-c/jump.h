/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* jump.h: the slots of the static jump map, and the words a preamble hands on in skb->cb[].
 *
 * cali_jump2 is one flat prog_array: index = bank + variant * CALI_SLOT_STRIDE + slot, where
 * variant = (class * 2 + hook) * 2 + family. A bank holds one generation of programs; all of a
 * bank's slots are written before cali_globals2.jump_base points the preambles at it, so programs
 * of two builds never call each other.
 */
#ifndef FELIX_JUMP_H
#define FELIX_JUMP_H

#include "bpf.h"

enum cali_slot {
	CALI_SLOT_MAIN = 0,
	CALI_SLOT_NEW_FLOW = 1,
	CALI_SLOT_POLICY = 2, /* reserved number: policies stand in cali_policy2 */
	CALI_SLOT_ACCEPTED = 3,
	CALI_SLOT_ICMP = 4,
	CALI_SLOT_ICMP_INNER = 5,
	CALI_SLOT_RST = 6,
	CALI_SLOT_DROP = 7,
	CALI_SLOT_FRAG = 8,
	CALI_SLOT_MAGLEV = 9,
	CALI_SLOT_DSR = 10,
	CALI_SLOT_SNAT = 11,
	CALI_SLOT_HOST_CONFLICT = 12,
	CALI_SLOT_TRACE = 13,
	CALI_SLOT_FLOW = 14,
	CALI_SLOT_EXT_HEADERS = 15,
	CALI_SLOT_STRIDE = 16,
};

enum cali_bank {
	CALI_BANK_STRIDE = 512, /* 24 variants x 16 slots = 384, rounded up */
	CALI_BANK_COUNT = 2,
};

/* Indices into cali_policy2 that always hold a program. */
enum cali_policy_index {
	CALI_POLICY_DENY = 0,
	CALI_POLICY_ALLOW = 1,
	CALI_POLICY_FIRST_FREE = 16,
};

/* The five words of skb->cb[], written by every preamble and by progrun (which runs main directly). */
enum cali_cb {
	CALI_CB_IFACE = 0,  /* interface slot: row of cali_counters2 */
	CALI_CB_FLAGS = 1,  /* enum cali_iface_flag of the interface */
	CALI_CB_POLICY = 2, /* index into cali_policy2 for this direction and family */
	CALI_CB_EP = 3,     /* endpoint slot (policy generations) */
	/* The same two words when a policy program is called: where it continues. */
	CALI_CB_ACCEPT = 1,
	CALI_CB_DENY = 3,
	CALI_CB_TRACE = 4, /* 0 on live packets; a nonce in a dry run: writes nothing, redirects nothing */
};

/* Constants of one attached preamble, set by the agent when it is loaded. */
struct cali_preamble_cfg {
	__u32 iface_slot;
	__u32 flags;     /* enum cali_iface_flag */
	__u32 policy[2]; /* by family */
	__u32 ep_slot;
	__u32 main[2];     /* main's index without the bank, by family */
	__u32 hook;        /* enum cali_hook */
	__u32 fail_closed; /* 1: drop when no main program is there (workloads) */
};

#endif
