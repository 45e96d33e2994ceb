/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* maps.h: every pinned map of the datapath, with its default size. Sizes can be set by the agent's
 * configuration before a map is created; types, keys and values are frozen by docs/maps.md, and the
 * number at the end of a name is the layout's version. */
#ifndef FELIX_MAPS_H
#define FELIX_MAPS_H

#include "types.h"
#include "socket.h"

#define PINNED_MAP(map_name, map_type, key_type, value_type, entries, mflags)                                \
	struct {                                                                                             \
		__uint(type, map_type);                                                                      \
		__type(key, key_type);                                                                       \
		__type(value, value_type);                                                                   \
		__uint(max_entries, entries);                                                                \
		__uint(map_flags, mflags);                                                                   \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                         \
	} map_name SEC(".maps")

/* ---- both families ---- */

/* Static jump map: two banks of variant x slot (jump.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, CALI_BANK_STRIDE *CALI_BANK_COUNT);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} cali_jump2 SEC(".maps");

PINNED_MAP(cali_globals2, BPF_MAP_TYPE_ARRAY, __u32, struct cali_globals, 1, 0);
/* 1,024 interface slots x hook x family. */
PINNED_MAP(cali_counters2, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cali_counter_row, 4096, 0);

#ifndef PREAMBLE_MAPS /* a preamble needs no more than the above */

/* Policy programs; 0 denies, 1 allows, each shared by every endpoint with the same rules. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 16384);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} cali_policy2 SEC(".maps");

PINNED_MAP(cali_iface2, BPF_MAP_TYPE_HASH, __u32, struct cali_iface_value, 4096, BPF_F_NO_PREALLOC);
PINNED_MAP(cali_rule_ctrs2, BPF_MAP_TYPE_PERCPU_HASH, struct cali_rule_key, __u64, 16384, BPF_F_NO_PREALLOC);

/* ---- one of each family ---- */

/* [0] is live traffic's, [1] belongs to test runs (a run may be interrupted by live packets). */
PINNED_MAP(FAM(state2), BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cali_state, 2, 0);
/* The same two entries, for what tail calls need not see of each other. */
PINNED_MAP(FAM(scratch2), BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cali_scratch, 2, 0);
/* Confirmed flows: preallocated, never evicts. */
PINNED_MAP(FAM(ct3), BPF_MAP_TYPE_HASH, struct cali_ct_key, struct cali_ct_value, 262144, 0);
/* Half-open flows: an LRU of their own, so that a SYN flood evicts nobody else. */
PINNED_MAP(FAM(ct_half), BPF_MAP_TYPE_LRU_HASH, struct cali_ct_key, struct cali_ct_value, 65536, 0);
PINNED_MAP(FAM(nat_fe3), BPF_MAP_TYPE_HASH, struct cali_fe_key, struct cali_fe_value, 131072,
	   BPF_F_NO_PREALLOC);
PINNED_MAP(FAM(nat_be), BPF_MAP_TYPE_HASH, struct cali_be_key, struct cali_be_value, 524288,
	   BPF_F_NO_PREALLOC);
PINNED_MAP(FAM(nat_aff), BPF_MAP_TYPE_LRU_HASH, struct cali_aff_key, struct cali_aff_value, 65536, 0);
PINNED_MAP(FAM(routes), BPF_MAP_TYPE_LPM_TRIE, struct cali_route_key, struct cali_route_value, 262144,
	   BPF_F_NO_PREALLOC);
/* What sockets asked for whose connection was balanced as they opened it, by socket and backend: TC gives new
 * flows their pre-NAT destination, recvmsg and getpeername show it. */
PINNED_MAP(FAM(ct_nats), BPF_MAP_TYPE_LRU_HASH, struct cali_sock_key, struct cali_sock_value, 131072, 0);

/* ---- connect time (ctlb.c) ---- */

#if defined(CTLB_MAPS) || defined(ALL_MAPS)
/* The other way round, for UDP: the backend that a socket has for a service it sends to. */
PINNED_MAP(FAM(srmsg), BPF_MAP_TYPE_LRU_HASH, struct cali_sock_key, struct cali_sock_value, 131072, 0);
/* Where a UDP socket's records are; goes with the socket. */
PINNED_MAP(FAM(sock_dst), BPF_MAP_TYPE_SK_STORAGE, int, struct cali_sock_dsts, 0, BPF_F_NO_PREALLOC);
/* Network namespaces (cookies) of pods that have opted out. */
PINNED_MAP(cali_ctlb_off2, BPF_MAP_TYPE_HASH, __u64, __u32, 16384, BPF_F_NO_PREALLOC);
/* Network namespaces of sockets that connected to the probe's destination, by socket cookie. */
PINNED_MAP(cali_ctlb_probe2, BPF_MAP_TYPE_LRU_HASH, __u64, __u64, 1024, 0);
#endif

/* Laid out now, used from the policy work on; created and pinned by the agent so that their layout is fixed
 * with the others. */
#ifdef ALL_MAPS
/* Policy generation of each endpoint slot: what an entry's policy_gen is compared with, so that a change of
 * policy re-judges flows without a sweep of the table. */
PINNED_MAP(cali_ep_gen2, BPF_MAP_TYPE_ARRAY, __u32, __u32, 4096, 0);
PINNED_MAP(FAM(arp2), BPF_MAP_TYPE_LRU_HASH, struct cali_arp_key, struct cali_arp_value, 10000, 0);
PINNED_MAP(FAM(ip_sets), BPF_MAP_TYPE_LPM_TRIE, struct cali_ipset_key, __u32, 1048576, BPF_F_NO_PREALLOC);
PINNED_MAP(FAM(fsafes2), BPF_MAP_TYPE_LPM_TRIE, struct cali_failsafe_key, __u32, 65536, BPF_F_NO_PREALLOC);
#endif

#endif /* PREAMBLE_MAPS */

#endif
