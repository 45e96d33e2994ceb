/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* types.h: keys and values of all pinned maps, and the per-CPU state. This file is the one source
 * of layouts: Go's types are generated from its BTF (bpf-go/layout), docs/maps.md explains them.
 *
 * Rules: no implicit padding (a test sums the members), spare bytes are zero, names of fields in
 * network byte order end in _be, times are jiffies or say their unit. Structs that hold an address
 * are compiled once for each family; all other offsets are the same in both. */
#ifndef FELIX_TYPES_H
#define FELIX_TYPES_H

#include "variant.h"
#include "reasons.h"
#include "jump.h"

/* An address of the family being compiled, in network byte order. */
struct cali_ip {
	__be32 w[IP_WORDS];
};

/* An address of either family: underlay next hops. IPv4 stands in w[0], the rest is zero. */
struct cali_ip_any {
	__be32 w[4];
};

/* ---- conntrack ------------------------------------------------------------------------- */

/* Both directions of a flow make the same key: the (address, port) pair that compares lower, as
 * raw big-endian words, is side a. ICMP echo uses the identifier as both ports; protocols without
 * ports use 0. */
struct cali_ct_key {
	struct cali_ip addr_a;
	struct cali_ip addr_b;
	__be16 port_a_be;
	__be16 port_b_be;
	__u8 proto;
	__u8 zone; /* 0; 1: the pre-NAT side of a direct flow that collided with a translated one */
	__u16 spare;
};

enum cali_ct_type {
	CALI_CT_NORMAL = 0,  /* no translation: one entry sees both legs */
	CALI_CT_NAT_FWD = 1, /* keyed by what the client sends (pre-NAT): sees leg 0 */
	CALI_CT_NAT_REV =
	    2, /* keyed by what the backend sees (post-NAT): sees leg 1, and leg 0 behind the NAT */
};

enum cali_ct_state {
	CALI_CT_NEW = 0,         /* first packet only */
	CALI_CT_REPLIED = 1,     /* both legs seen: SYN-ACK, or a reply */
	CALI_CT_ESTABLISHED = 2, /* handshake complete, or a reply seen where there is none */
	CALI_CT_CLOSING = 3,     /* one FIN seen */
	CALI_CT_CLOSED = 4,      /* both FINs seen */
	CALI_CT_RESET = 5,       /* a valid RST seen */
};

enum cali_ct_flag {
	CALI_CTF_KEY_SWAPPED = 1 << 0, /* leg 0's sender is side b of the key */
	CALI_CTF_APPROVED_0 = 1 << 1,  /* leg 0's end has judged the flow */
	CALI_CTF_APPROVED_1 = 1 << 2,  /* leg 1's end has judged the flow */
	CALI_CTF_VIA_STACK = 1 << 3, /* must take the kernel's stack, both ways: its NAT may know the flow */
	CALI_CTF_SKIP_FAST_PATH = 1 << 4, /* an endpoint is shaped or captured: no redirect_peer */
	CALI_CTF_HOST_ORIGIN = 1 << 5,    /* started by this host */
	CALI_CTF_NAT_OUT = 1 << 6,        /* masqueraded by the host */
	CALI_CTF_DSR = 1 << 7,
	CALI_CTF_NP_FWD = 1 << 8,  /* forwarded to another node's backend with the client's address kept */
	CALI_CTF_HAIRPIN = 1 << 9, /* client and backend are the same pod */
	CALI_CTF_SEND_RESET = 1 << 10, /* next segment is answered by RST (backend removed) */
	CALI_CTF_SNAT = 1 << 11,       /* source translated too: hairpin, or another port */
	CALI_CTF_TUN_PEER = 1 << 12,   /* tun_peer is set: replies go to that node by the tunnel */
	CALI_CTF_TUN_V6 = 1 << 13,     /* tun_peer is an IPv6 address */
	CALI_CTF_CONFLICT = 1 << 14,   /* made by the host-conflict rule; its forward key is in zone 1 */
	CALI_CTF_ADOPTED = 1 << 15,    /* kept for entries that are made from a mid-flow segment */
};

/* How packets of a leg leave, remembered while the entry's epoch is current. */
enum cali_fwd {
	CALI_FWD_UNKNOWN = 0, /* not resolved yet */
	CALI_FWD_STACK = 1,   /* the kernel's stack */
	CALI_FWD_PEER = 2,    /* local pod: redirect_peer to ifindex[other leg] */
	CALI_FWD_VETH = 3,    /* local pod, the long way through its to_wep program */
	CALI_FWD_TUNNEL = 4,  /* tun_peer, by the tunnel device */
	CALI_FWD_FIB = 5,     /* what the FIB says, each time */
	CALI_FWD_NATOUT = 6,  /* this host, by bpfout.cali: the answer to something it asked a service */
};

enum cali_leg_flag {
	CALI_LEG_SYN = 1 << 0,
	CALI_LEG_ACK = 1 << 1, /* an ACK was seen: ack and win are valid */
	CALI_LEG_FIN = 1 << 2,
	CALI_LEG_RST = 1 << 3,
	CALI_LEG_SCALE = 1 << 4, /* window scale option seen in the SYN */
	CALI_LEG_END = 1 << 5,   /* end is valid */
};

/* TCP as seen in the packets one end sends. Enough to judge an RST of the other end (RFC 5961 3.2). */
struct cali_ct_leg {
	__u32 end;  /* sequence number after the last byte sent, host order */
	__u32 ack;  /* highest acknowledgement sent, host order */
	__u16 win;  /* last window advertised, unscaled, host order */
	__u8 scale; /* window scale */
	__u8 flags; /* enum cali_leg_flag */
};

/* The first 64 bytes (IPv4) are all that an established packet reads. Leg 0 is the end that sent
 * the first packet. A translated flow has two entries, each the other's twin: nat_* of either is
 * what its packets are rewritten to, and so the twin's key. */
struct cali_ct_value {
	__u32 last_seen;  /* low 32 bits of jiffies */
	__u32 timeout;    /* jiffies after last_seen at which the entry is dead */
	__u32 flags;      /* enum cali_ct_flag */
	__u8 type;        /* enum cali_ct_type */
	__u8 tcp_state;   /* enum cali_ct_state, for every protocol */
	__u8 fwd[2];      /* enum cali_fwd for the packets of leg 0 and leg 1 */
	__u32 epoch;      /* cali_globals2.route_epoch at which fwd and ifindex were resolved */
	__u32 ifindex[2]; /* interface behind which leg 0's and leg 1's end is; 0: this host or unknown */
	struct cali_ct_leg leg[2];
	__be16 nat_sport_be;
	__be16 nat_dport_be;
	struct cali_ip nat_src; /* NAT_REV: pre-NAT destination. NORMAL: the frontend that the client's socket
				   asked for */
	struct cali_ip nat_dst; /* NAT_FWD: backend. NAT_REV: original client */
	__u64 packets[2];
	__u64 bytes[2];      /* L3 bytes */
	__u32 policy_gen[2]; /* generation of each local endpoint's policy when it approved */
	__u16 ep_slot[2];    /* endpoint slots of the two ends; 0: not local */
	__u16 rule_out;      /* ordinal of the rule that let leg 0's end send */
	__u16 rule_in;       /* ordinal of the rule that let leg 1's end receive */
	__u32 svc_id;        /* service port id; 0: no service */
	__u32 backend_id;
	struct cali_ip_any tun_peer; /* node at the other end of the tunnel (underlay address) */
	__u64 created;               /* jiffies */
	/* Makes an IPv4 element of the hash 256 bytes: the hot part is one cache line of its own. */
	__u32 spare[12];
};

/* ---- services -------------------------------------------------------------------------- */

struct cali_fe_key {
	struct cali_ip addr; /* all ones: a NodePort on any other node's address */
	__be16 port_be;
	__u8 proto;
	__u8 spare;
};

enum cali_fe_flag {
	CALI_FE_EXTERNAL = 1 << 0,  /* NodePort, ExternalIP or LB IP; else ClusterIP */
	CALI_FE_ETP_LOCAL = 1 << 1, /* traffic from outside uses the local list */
	CALI_FE_ITP_LOCAL = 1 << 2, /* traffic from inside uses the local list */
	CALI_FE_SRC_RANGE = 1 << 3,
	CALI_FE_DENY_RANGE = 1 << 4,
	CALI_FE_MAGLEV = 1 << 5,
	CALI_FE_WEIGHTED = 1 << 6,
	CALI_FE_DSR = 1 << 7,
	CALI_FE_SNAT = 1 << 8,
	CALI_FE_LOCAL_REDIRECT = 1 << 9,
	CALI_FE_NO_SOCKET_LB = 1 << 10,
	CALI_FE_DROP_NO_LOCAL =
	    1 << 11, /* local list empty but the cluster list is not: drop, do not refuse */
	CALI_FE_NODEPORT = 1 << 12,
};

struct cali_fe_value {
	__u32 svc_id;
	__u32 flags;            /* enum cali_fe_flag */
	__u32 affinity_timeout; /* seconds; 0: no client affinity */
	__u32 cluster_count;    /* backends 0 .. cluster_count-1 of the cluster list */
	__u32 local_count;      /* backends of the local list */
	__u32 spare;
};

/* Which of a service port's lists an ordinal belongs to: the top two bits. */
enum cali_be_list {
	CALI_BE_CLUSTER = 0,
	CALI_BE_LOCAL = 0x80000000,
	CALI_BE_BY_ID = 0x40000000, /* by backend id: is what was chosen before still there? */
};

struct cali_be_key {
	__u32 svc_id;
	__u32 ordinal; /* list bits and position, or CALI_BE_BY_ID and backend id */
};

struct cali_be_value {
	struct cali_ip addr;
	__be16 port_be;
	__u16 weight;
	__u32 id;    /* stable for (service port, address, port) */
	__u32 flags; /* enum cali_be_flag; room for terminating, quarantined ... */
};

/* Set in CALI_BE_BY_ID entries only: which of the service port's lists the backend is in. An affinity
 * record is honoured only if its backend is in the list that the packet is balanced over. */
enum cali_be_flag {
	CALI_BEF_CLUSTER = 1 << 0,
	CALI_BEF_LOCAL = 1 << 1,
};

/* Client affinity: by service port, whichever VIP was used. */
struct cali_aff_key {
	struct cali_ip client; /* client's address; netns cookie at connect time (kind 1) */
	__u32 svc_id;
	__u32 kind;
};

struct cali_aff_value {
	__u64 last_used; /* jiffies */
	__u32 backend_id;
	__u32 spare;
};

/* ---- routes, neighbours, interfaces ------------------------------------------------------ */

struct cali_route_key {
	__u32 prefixlen;
	struct cali_ip addr;
};

enum cali_route_flag {
	CALI_RT_LOCAL = 1 << 0,    /* on this node */
	CALI_RT_WORKLOAD = 1 << 1, /* a pod, or a node's pod CIDR */
	CALI_RT_HOST = 1 << 2,     /* a node's own address */
	CALI_RT_POOL = 1 << 3,     /* inside the cluster's pod ranges */
	CALI_RT_NAT_OUT = 1 << 4,  /* to be masqueraded when leaving the cluster */
	CALI_RT_SAME_SUBNET = 1 << 5,
	CALI_RT_TUNNELED = 1 << 6, /* reached through the tunnel; next_hop is the node's underlay address */
	CALI_RT_NO_DSR = 1 << 7,
	CALI_RT_SKIP_FAST_PATH = 1 << 8, /* shaped or captured: never redirect_peer */
	CALI_RT_BLACKHOLE = 1 << 9,
	CALI_RT_REJECT = 1 << 10,
	CALI_RT_NEXT_HOP_V6 = 1 << 11, /* next_hop is IPv6 */
};

struct cali_route_value {
	__u32 flags;   /* enum cali_route_flag */
	__u32 ifindex; /* local workload: host side of its veth */
	__u32 node_id;
	__u32 ep_slot; /* local workload: endpoint slot */
	struct cali_ip_any next_hop;
};

struct cali_arp_key {
	struct cali_ip addr;
	__u32 ifindex;
};

struct cali_arp_value {
	__u8 mac_src[ETH_ALEN];
	__u8 mac_dst[ETH_ALEN];
	__u32 spare;
};

enum cali_iface_flag {
	CALI_IFF_READY = 1 << 0, /* both hooks and all policies are in place */
	CALI_IFF_MANAGED = 1 << 1,
	CALI_IFF_SKIP_FAST_PATH = 1 << 2,
	CALI_IFF_V4 = 1 << 3, /* family enabled on this interface */
	CALI_IFF_V6 = 1 << 4,
};

/* Value of cali_iface2, keyed by ifindex (u32). */
struct cali_iface_value {
	__u32 flags;      /* enum cali_iface_flag */
	__u32 iface_slot; /* row of cali_counters2 */
	__u32 ep_slot;
	__u8 class; /* enum cali_class */
	__u8 spare[3];
	__u32 policy[4]; /* index into cali_policy2 by hook * 2 + family */
	char name[16];
};

/* ---- counters, events ------------------------------------------------------------------- */

/* Row of cali_counters2: index = (iface_slot * 2 + hook) * 2 + family. */
struct cali_counter_row {
	__u64 count[CALI_COUNTER_MAX];
};

struct cali_rule_key {
	__u32 program; /* policy program id */
	__u32 ordinal;
};

struct cali_ipset_key {
	__u32 prefixlen;
	__be32 set_hi;
	__be32 set_lo;
	struct cali_ip addr;
	__be16 port_be;
	__u8 proto;
	__u8 spare;
};

struct cali_failsafe_key {
	__u32 prefixlen;
	__be16 port_be;
	__u8 proto;
	__u8 outbound;
	struct cali_ip addr;
};

/* ---- connect time (cgroup hooks) ---------------------------------------------------------- */

struct cali_sock_key {
	__u32 cookie[2]; /* socket cookie, low word first: two words, so that no family needs padding */
	struct cali_ip addr;
	__be16 port_be;
	__u8 proto;
	__u8 spare;
};

struct cali_sock_value {
	struct cali_ip addr;
	__be16 port_be;
	__u16 spare;
	__u32 svc_id;
	__u32 backend_id;
};

/* ---- node-wide globals --------------------------------------------------------------------- */

/* One entry, written by the agent: what may change while programs stay. */
struct cali_globals {
	/* What packets read comes first: one cache line. */
	__u32 jump_base;   /* bank that preambles jump to */
	__u32 route_epoch; /* raised when a local workload, node or route is changed or removed */
	__u32 tunnel_ifindex;
	__u32 tunnel_mtu; /* largest inner L3 packet */
	__u32 vni;
	__u32 flags; /* enum cali_global_flag */
	__be16 vxlan_port_be;
	__u16 pod_mtu; /* MTU of workload interfaces; 0: not checked */
	__u32 spare0;
	__u64 adoption_end;   /* jiffies until which unknown mid-flow segments are left to the stack */
	__u32 natin_ifindex;  /* bpfin.cali; 0: none */
	__u32 natout_ifindex; /* bpfout.cali; 0: none */
	__be32 host_ip4;      /* this node's address; 0: none */
	__be32 tunnel_ip4;    /* this node's address inside the overlay; 0: none */
	__u16 psnat_start;    /* ports for colliding flows, host order */
	__u16 psnat_count;
	__u32 spare1;
	__be32 host_ip6[4];
	__be32 tunnel_ip6[4];
	__u32 spare[4];
};

enum cali_global_flag {
	CALI_GF_UNDERLAY_V6 = 1 << 0, /* tunnel runs over IPv6: send an outer UDP checksum */
	CALI_GF_V4 = 1 << 1,
	CALI_GF_V6 = 1 << 2,
	CALI_GF_CTLB = 1 << 3, /* sockets may have been balanced: cali_v*_ct_nats knows what they asked for */
};

/* Load-time constants of every object; the verifier removes what they switch off. */
struct cali_config {
	__u32 jump_bank; /* base index of the bank this object is loaded into */
	__u32 mark_shift;
	__u32 hz; /* jiffies a second */
	__u32 to_syn_sent, to_established, to_fins, to_reset, to_udp, to_generic, to_icmp; /* jiffies */
	__u32 to_ticks_shift; /* a twin entry is refreshed when last_seen >> shift changes */
	__u32 features;       /* enum cali_feature */
	__u32 log_level;      /* 0: off */
	__u32 spare[3];
};

enum cali_feature {
	CALI_FEAT_REDIRECT_PEER = 1 << 0,  /* 5.10 */
	CALI_FEAT_REDIRECT_NEIGH = 1 << 1, /* 5.10 */
	CALI_FEAT_FIB_SKIP_NEIGH = 1 << 2, /* 6.1 list; 6.3 upstream */
};

/* ---- per-CPU state --------------------------------------------------------------------------- */

/* First part of the state, in the shape of a flow event, so that it can be emitted as it is. */
struct cali_event_header {
	__u32 type;
	__u32 size;
	struct cali_ip src;
	struct cali_ip dst; /* as the packet carries it now */
	struct cali_ip pre_nat_dst;
	struct cali_ip post_nat_src;
	struct cali_ip post_nat_dst;
	__be16 sport_be;
	__be16 dport_be; /* ICMP: type and code */
	__be16 pre_nat_dport_be;
	__be16 post_nat_sport_be;
	__be16 post_nat_dport_be;
	__u8 proto;
	__u8 reason; /* enum cali_counter of the drop, 0 none */
	__u32 ifindex;
	__u32 iface_slot;
	__u32 spare[IS_V6 ? 1 : 2];
};

enum cali_state_flag {
	CALI_ST_DNAT = 1 << 0, /* a backend was chosen */
	CALI_ST_SNAT = 1 << 1, /* the source is translated too */
	CALI_ST_HAIRPIN = 1 << 2,
	CALI_ST_DST_LOCAL_POD = 1 << 3,
	CALI_ST_SRC_LOCAL_HOST = 1 << 7,
	CALI_ST_CONFLICT = 1 << 8,
	CALI_ST_CT_HIT = 1 << 9,    /* an entry exists; this end has not judged it yet */
	CALI_ST_NO_TRACK = 1 << 10, /* goes on without an entry */
	CALI_ST_ICMP_TO_STACK = 1 << 11,
	CALI_ST_MID_FLOW = 1 << 12, /* a segment of no known flow: policy is asked, then the kernel's stack */
	CALI_ST_TUN_SRC = 1 << 13,  /* tun_peer holds the outer source */
	CALI_ST_TUN_V6 = 1 << 14,
	CALI_ST_SKIP_PEER = 1 << 15,
	CALI_ST_SRC_POD = 1 << 16,       /* source is a pod of the cluster */
	CALI_ST_EXPIRED = 1 << 17,       /* its entry had timed out */
	CALI_ST_NOT_CONFIRMED = 1 << 18, /* main did not find its entry among the confirmed ones */
	CALI_ST_FLOW_SEEN = 1 << 19,     /* cali_flow has looked at the packet, and at its options */
	CALI_ST_NAT_OUT = 1 << 20,       /* leaves the cluster: to be masqueraded */
	CALI_ST_FROM_SOCKET =
	    1 << 21,                /* balanced at connect time: pre_nat_dst is what the socket asked for */
	CALI_ST_DST_OPEN = 1 << 22, /* the destination is a pod that takes everything: nothing to ask there */
};

struct cali_state {
	struct cali_event_header ev;
	__u64 flags; /* enum cali_state_flag */
	__u64 now;   /* jiffies, read once for each packet */
	__u32 rule_count;
	__u32 rules[8]; /* ordinals of rules that were hit */
	__u16 l3_off;
	__u16 l4_off;
	__u16 l3_len; /* L3 length of the packet on the wire: of one segment where it is GSO */
	__u16 frag_off;
	__u32 frag_id;
	__u8 tcp_flags;
	__u8 ttl;
	__u8 icmp_type; /* of an error to be sent */
	__u8 icmp_code;
	__u32 icmp_info; /* MTU, host order */
	__u32 svc_id;
	__u32 backend_id;
	__u32 fe_flags;
	__u32 dst_flags; /* enum cali_route_flag of the (post-NAT) destination */
	__u32 dst_ifindex;
	__u16 src_ep_slot;
	__u16 dst_ep_slot;
	__u32 iface_flags;
	__u32 policy;       /* index into cali_policy2 */
	__u32 rule_program; /* policy program that hit rules[] */
	__u32 ep_slot;      /* of this interface */
	__u32 tcp_seq;      /* host order */
	__u32 tcp_ack;
	__u32 tcp_end; /* sequence number after this segment */
	__u16 tcp_win;
	__u8 tcp_scale; /* 0xff: no option */
	__u8 hook;
	struct cali_ip_any tun_peer;
	struct cali_ct_key ct_key;
	__u32 trace; /* nonce of a dry run, 0 on live packets */
	__u8 fwd;    /* enum cali_fwd for this packet */
	__u8 ct_type;
	__u8 leg;
	__u8 spare0;
	__u32 spare[4];
};

/* Room for an entry while it is being made; the stack has too little. */
struct cali_scratch {
	struct cali_ct_value v;
	struct cali_ct_key fwd;
	struct cali_ct_key rev;
	struct cali_ct_key twin;
};

#endif
