/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* variant.h: which of the 24 variants of tc.c is being compiled, and what it is able to do.
 *
 * The compiler gets DIR_{FROM,TO}, CLASS_{WEP,HEP,LO,NAT,TUNNEL,L3DEV} and FAMILY_{V4,V6}; the
 * object's name is the same three words (from_wep_v4.o). All class differences are named here as
 * capabilities, constants 0 or 1, so that the other headers ask what a class can do, never which
 * class it is; what a class can not do is compiled out.
 *
 * "from" means: from the thing behind the interface (pod, wire, tunnel) towards this host. For a
 * workload that is TC ingress of the host-side veth. "to" is the egress hook.
 */
#ifndef FELIX_VARIANT_H
#define FELIX_VARIANT_H

#include "bpf.h"

/* Interface classes; the numbers are part of cali_iface2 and of the jump indices. */
enum cali_class {
	CALI_CLASS_WEP = 0,    /* host side of a pod's veth */
	CALI_CLASS_HEP = 1,    /* host interface: uplink, bond, VLAN */
	CALI_CLASS_LO = 2,     /* loopback */
	CALI_CLASS_NAT = 3,    /* bpfout.cali */
	CALI_CLASS_TUNNEL = 4, /* vxlan.calico, tunl0 */
	CALI_CLASS_L3DEV = 5,  /* no Ethernet header: WireGuard, TUN */
	CALI_CLASS_COUNT = 6,
};

/* Hook of an interface, as in cali_counters2's key: TC ingress or TC egress. */
enum cali_hook {
	CALI_HOOK_INGRESS = 0,
	CALI_HOOK_EGRESS = 1,
};

enum cali_family {
	CALI_FAMILY_V4 = 0,
	CALI_FAMILY_V6 = 1,
};

#if defined(FAMILY_V6)
#define FAMILY     CALI_FAMILY_V6
#define IS_V6      1
#define IP_WORDS   4
#define FAM(name)  cali_v6_##name
#define ETH_P_FAM  ETH_P_IPV6
#define PROTO_ICMP IPPROTO_ICMPV6
#else
#define FAMILY     CALI_FAMILY_V4
#define IS_V6      0
#define IP_WORDS   1
#define FAM(name)  cali_v4_##name
#define ETH_P_FAM  ETH_P_IP
#define PROTO_ICMP IPPROTO_ICMP
#endif

#if defined(DIR_TO)
#define IS_FROM 0
#define HOOK    CALI_HOOK_EGRESS
#else
#define IS_FROM 1
#define HOOK    CALI_HOOK_INGRESS
#endif
#define IS_TO (!IS_FROM)

#if defined(CLASS_HEP)
#define CLASS CALI_CLASS_HEP
#elif defined(CLASS_LO)
#define CLASS CALI_CLASS_LO
#elif defined(CLASS_NAT)
#define CLASS CALI_CLASS_NAT
#elif defined(CLASS_TUNNEL)
#define CLASS CALI_CLASS_TUNNEL
#elif defined(CLASS_L3DEV)
#define CLASS CALI_CLASS_L3DEV
#else
#define CLASS CALI_CLASS_WEP
#endif

#define IS_WEP    (CLASS == CALI_CLASS_WEP)
#define IS_HEP    (CLASS == CALI_CLASS_HEP)
#define IS_LO     (CLASS == CALI_CLASS_LO)
#define IS_NAT    (CLASS == CALI_CLASS_NAT)
#define IS_TUNNEL (CLASS == CALI_CLASS_TUNNEL)
#define IS_L3DEV  (CLASS == CALI_CLASS_L3DEV)

/* Capabilities (seed table: FIB, VXLAN, NAT by class). */

/* The program itself chooses the next hop and redirects; else the kernel's stack routes. */
#define CAN_FIB (IS_FROM && (IS_WEP || IS_HEP || IS_TUNNEL))
/* Outer VXLAN packets pass through here in the clear and must be recognised. */
#define CAN_VXLAN (IS_FROM && IS_HEP)
/* New flows to a frontend are balanced here: packets that come in from outside the kernel's stack. */
#define CAN_DNAT (IS_FROM && !IS_LO)
/* Answers to what this host asked of a service enter its stack by bpfout.cali: there, and only there,
 * sources that are the host's own or a service's are accepted. */
#define CAN_NATOUT CAN_FIB
/* Packets may leave by the tunnel device from here: a tunnel key is set and a redirect returned. */
#define CAN_ENCAP ((IS_FROM && (IS_WEP || IS_HEP)) || (IS_TO && IS_HEP))
/* Packets come from or go to a pod: an unknown or unjudged packet is dropped, never passed. */
#define FAIL_CLOSED IS_WEP
/* The tunnel device's egress: whatever the kernel routed here needs its key. */
#define NEEDS_TUNNEL_KEY (IS_TO && IS_TUNNEL)
/* Offset of the network header in the packet as this hook sees it. */
#define L2_LEN (IS_L3DEV ? 0 : ETH_HLEN)
/* Most packets go straight from here into another local pod: known.h has a short way for them. */
#define STRAIGHT (IS_FROM && IS_WEP)
/* A flow without an entry gets one here; host classes leave what is the host's own alone. */
#define TRACKS_ALL IS_WEP

#endif
