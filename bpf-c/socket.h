/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* socket.h: what the programs at connect time (ctlb.c) keep beside the tables that they share with TC:
 * their constants, and the values of maps of their own. Same rules as types.h. */
#ifndef FELIX_SOCKET_H
#define FELIX_SOCKET_H

#include "types.h"

enum cali_ctlb_flag {
	CALI_CTLB_UDP = 1 << 0,          /* UDP is balanced too, else TCP alone */
	CALI_CTLB_HOST_ONLY = 1 << 1,    /* only sockets of the host's network namespace */
	CALI_CTLB_SET_RETVAL = 1 << 2,   /* the kernel lets us choose the error of a refused call */
	CALI_CTLB_NETNS_COOKIE = 1 << 3, /* the kernel tells network namespaces apart */
	CALI_CTLB_OPT_OUTS = 1 << 4,     /* pods have opted out: cali_ctlb_off2 is not empty */
};

/* Load-time constants of the programs at connect time. */
struct cali_ctlb_config {
	__u64 host_netns; /* cookie of the host's network namespace; 0: not known */
	__u32 hz;         /* jiffies a second */
	__u32 flags;      /* enum cali_ctlb_flag */
};

/* The destination that self-tests connect to: 169.254.1.9 port 9, and fe80::a9fe:109. Nothing is ever sent
 * there: the programs note the socket's network namespace in cali_ctlb_probe2 and turn it to the loopback. */
enum cali_ctlb_probe {
	CALI_CTLB_PROBE_ADDR = 0xa9fe0109, /* IPv4, host order; the last word of the IPv6 one */
	CALI_CTLB_PROBE_PORT = 9,          /* discard */
};

/* What a UDP socket asked for, in memory of its own: the way to its records when it is closed. */
enum cali_sock_dst_limit {
	CALI_SOCK_DST_MAX =
	    4, /* sockets that talk to more services at a time are rare: the LRU has the rest */
};

struct cali_sock_dst {
	struct cali_ip addr;
	__be16 port_be; /* 0: free */
	__u16 spare;
};

/* Value of cali_v*_sock_dst, which lives in the socket. */
struct cali_sock_dsts {
	__u32 next; /* place of the next one, modulo CALI_SOCK_DST_MAX */
	struct cali_sock_dst dst[CALI_SOCK_DST_MAX];
};

#endif
