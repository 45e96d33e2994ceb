/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* reasons.h: everything the datapath counts. One row of cali_counters2 has one counter for each.
 * A name's first word says what it is: COUNT (informational) or DROP (the packet ended here).
 * Go's names and the CLI's texts are generated from this enum: write a reason here and nowhere else. */
#ifndef FELIX_REASONS_H
#define FELIX_REASONS_H

enum cali_counter {
	CALI_COUNT_TOTAL = 0,            /* packets that reached a main program */
	CALI_COUNT_BYPASS = 1,           /* passed on sight of our mark: judged by an earlier program */
	CALI_COUNT_FAST_PATH = 2,        /* established, both ends approved: one run */
	CALI_COUNT_NEW_FLOW = 3,         /* conntrack entries (or pairs) created */
	CALI_COUNT_PROMOTED = 4,         /* half-open flows confirmed */
	CALI_COUNT_SERVICE_NEW = 5,      /* new flows balanced to a backend */
	CALI_COUNT_DNAT = 6,             /* packets whose destination was translated */
	CALI_COUNT_UNNAT = 7,            /* replies whose source was translated back */
	CALI_COUNT_HAIRPIN = 8,          /* new flows of a pod to itself through a service */
	CALI_COUNT_SOURCE_PORT = 9,      /* new flows that got another source port (collision) */
	CALI_COUNT_AFFINITY_HIT = 10,    /* new flows that kept their backend by client affinity */
	CALI_COUNT_POLICY_ALLOW = 11,    /* flows accepted by policy */
	CALI_COUNT_TO_STACK = 12,        /* handed to the kernel's stack */
	CALI_COUNT_REDIRECT_PEER = 13,   /* into a local pod, past its to_wep program */
	CALI_COUNT_REDIRECT_NEIGH = 14,  /* to a neighbour of a chosen interface */
	CALI_COUNT_REDIRECT_TUNNEL = 15, /* into the tunnel, with a key */
	CALI_COUNT_REDIRECT_BACK = 16,   /* an ICMP error or RST back to the sender */
	CALI_COUNT_TUNNEL_KEY = 17,      /* kernel-routed packets that got their tunnel key */
	CALI_COUNT_ICMP_SENT = 18,       /* ICMP errors made here */
	CALI_COUNT_RST_SENT = 19,        /* TCP resets made here */
	CALI_COUNT_ICMP_RELATED = 20,    /* ICMP errors translated for a known flow */
	CALI_COUNT_MIDFLOW_STACK = 21,   /* unknown mid-flow segments left to the kernel's stack */
	CALI_COUNT_VXLAN_OUTER = 22,     /* outer tunnel packets let in */
	CALI_COUNT_VLAN_PASS = 23,       /* tagged packets left to the VLAN interface above */
	CALI_COUNT_RST_IGNORED = 24,     /* out-of-window RSTs that changed nothing */
	CALI_COUNT_NO_ENTRY_PASS = 25,   /* host traffic that went on without an entry: table full */
	CALI_COUNT_HOST_CONFLICT = 26,   /* direct flows that collided with a translated one */
	CALI_COUNT_REOPENED = 27,        /* SYNs that started a closed entry anew */
	CALI_COUNT_REDIRECT_NATOUT =
	    28, /* into this host by bpfout.cali: answers to it, and lo's share of services */
	CALI_COUNT_NAT_OUT = 29, /* new flows out of the cluster, to be masqueraded */

	CALI_DROP_POLICY = 32,           /* denied by policy */
	CALI_DROP_SHORT = 33,            /* header cut off */
	CALI_DROP_MALFORMED = 34,        /* header contradicts itself: version, ihl, lengths */
	CALI_DROP_FRAGMENT = 35,         /* IP fragment: not carried */
	CALI_DROP_EXT_HEADERS = 36,      /* more IPv6 extension headers than are parsed */
	CALI_DROP_NOT_IP = 37,           /* workload sent an Ethertype other than IP and ARP */
	CALI_DROP_VLAN = 38,             /* workload sent a VLAN tag */
	CALI_DROP_NO_PROGRAM = 39,       /* a tail call found its slot empty */
	CALI_DROP_CT_FULL = 40,          /* no room for the flow's conntrack entry */
	CALI_DROP_NO_BACKEND = 41,       /* service without endpoints (answered by RST or ICMP) */
	CALI_DROP_NO_LOCAL_BACKEND = 42, /* traffic policy Local and no endpoint on this node */
	CALI_DROP_BACKEND_MISSING = 43,  /* frontend points at a backend that is not there */
	CALI_DROP_PORT_EXHAUSTED = 44,   /* no free source port for a colliding flow */
	CALI_DROP_TTL = 45,              /* hop limit reached (answered) */
	CALI_DROP_TOO_BIG = 46,          /* larger than the path's MTU (answered) */
	CALI_DROP_TUNNEL_SOURCE = 47,    /* tunnel packet from an address that is no node's */
	CALI_DROP_NO_ROUTE = 48,         /* no way to the destination known, and not ours to guess */
	CALI_DROP_BLACKHOLE = 49,        /* destination is in a blackhole or reject route */
	CALI_DROP_UNKNOWN_FLOW = 50,     /* mid-flow segment of a flow that is gone (answered by RST) */
	CALI_DROP_EXPIRED_FLOW = 51,     /* segment of an entry that has timed out (answered by RST) */
	CALI_DROP_REWRITE = 52,          /* a helper refused to rewrite the packet */
	CALI_DROP_NO_STATE = 53,         /* per-CPU state or globals missing */
	CALI_DROP_ICMP_BUILD = 54,       /* an ICMP error or RST could not be built */
	CALI_DROP_IFACE_NOT_READY = 55,  /* destination workload is not programmed yet */
	CALI_DROP_SRC_RANGE = 56,        /* client outside the service's source ranges */
	CALI_DROP_ICMP_INNER = 57,       /* ICMP error whose inner packet is cut off or malformed */
	CALI_DROP_SPOOFED = 58,          /* source address is not the workload's */

	/* Packets that are counted once for all of: total, fast path, redirect-peer, and dnat or unnat. */
	CALI_COUNT_STRAIGHT = 60,       /* straight into another pod: counted in their other counters */
	CALI_COUNT_STRAIGHT_DNAT = 61,  /* the same, with the destination translated */
	CALI_COUNT_STRAIGHT_UNNAT = 62, /* the same, with the source translated back */

	CALI_COUNTER_MAX = 64,
};

#endif
