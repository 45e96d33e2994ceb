/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ctx.h: what every stage carries: load-time constants, the packet as parsed, counters, marks, the
 * per-CPU state, and the ways out of a program. */
#ifndef FELIX_CTX_H
#define FELIX_CTX_H

#include "maps.h"
#include "addr.h"
#include "marks.h"

/* Load-time constants, by their field of struct cali_config. */
#define CFG(field) LOAD_CONSTANT(struct cali_config, field)

/* The packet on the stack of main. Header fields are as on the wire, TCP numbers in host order. */
struct pkt {
	struct cali_ip src;
	struct cali_ip dst;
	__be16 sport_be;
	__be16 dport_be;
	__u8 proto;
	__u8 tcp_flags; /* byte 13 of the TCP header */
	__u8 ttl;
	__u8 icmp_type;
	__u16 l4_off; /* from skb->data */
	__u16 l3_len; /* whole packet, GSO included */
	__u16 tcp_win;
	__u8 df; /* IPv4 don't-fragment; 1 for IPv6 */
	__u8 spare;
	__u32 tcp_seq;
	__u32 tcp_ack;
	__u32 tcp_end; /* sequence number after this segment */
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Reads a word of skb->cb[] by one load from the context itself: the compiler would otherwise keep a
 * pointer into it, which the verifier refuses ("dereference of modified ctx ptr"). */
#define CB(skb, word)                                                                                        \
	({                                                                                                   \
		__u32 v_;                                                                                    \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                                        \
			     : "=r"(v_)                                                                      \
			     : "r"(skb), "i"(offsetof(struct __sk_buff, cb[word])));                         \
		v_;                                                                                          \
	})

#define MARK(m) ((__u32)(m) << CFG(mark_shift))

/* Index of this variant's main program in a bank. */
#define VARIANT_INDEX (((CLASS * 2 + HOOK) * 2 + FAMILY) * CALI_SLOT_STRIDE)

/* Goes on in another program of this variant. slot is a constant; returns only when the slot is empty. */
#define jump(skb, slot)                                                                                      \
	TAIL_CALL(skb, &cali_jump2, CONSTANT_OPERAND(struct cali_config, jump_bank), VARIANT_INDEX + (slot))

/* This hook's row of counters; NULL in a dry run, and where the interface's slot is out of range. */
INLINE struct cali_counter_row *counter_row(struct __sk_buff *skb)
{
	__u32 row = (CB(skb, CALI_CB_IFACE) * 2 + HOOK) * 2 + FAMILY;

	if (unlikely(CB(skb, CALI_CB_TRACE)))
		return NULL;
	return bpf_map_lookup_elem(&cali_counters2, &row);
}

INLINE void count(struct __sk_buff *skb, enum cali_counter c)
{
	struct cali_counter_row *r = counter_row(skb);

	/* The reason may come from far: the verifier must see here that it is inside the row. */
	if (r)
		r->count[(__u32)c & (CALI_COUNTER_MAX - 1)]++;
}

/* Counts in a row that the caller has looked up already, or looks it up: NULL is known at compile time. */
INLINE void bump(struct __sk_buff *skb, struct cali_counter_row *r, enum cali_counter c)
{
	if (r)
		r->count[(__u32)c & (CALI_COUNTER_MAX - 1)]++;
	else
		count(skb, c);
}

/* Drops the packet for a reason. The only way a program ends a packet's life. */
INLINE int drop(struct __sk_buff *skb, enum cali_counter reason)
{
	count(skb, reason);
	return TC_ACT_SHOT;
}

/* Leaves the packet to whatever comes behind us on this hook, and then to the kernel. */
INLINE int pass(struct __sk_buff *skb, enum cali_counter why)
{
	count(skb, why);
	return TC_ACT_UNSPEC;
}

/* After a failed tail call: workloads are closed, the host stays open. */
INLINE int no_program(struct __sk_buff *skb)
{
	count(skb, CALI_DROP_NO_PROGRAM);
	return FAIL_CLOSED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

INLINE void set_mark(struct __sk_buff *skb, enum cali_mark m)
{
	skb->mark = (skb->mark & ~MARK(CALI_MARK_BITS)) | MARK(m);
}

INLINE bool has_mark(struct __sk_buff *skb, enum cali_mark m)
{
	return (skb->mark & MARK(CALI_MARK_BITS)) == MARK(m);
}

/* Whether a program of ours had the packet before, and made or found its entry. */
INLINE bool seen(struct __sk_buff *skb)
{
	return skb->mark & MARK(CALI_MARK_SEEN);
}

/* Whether a pod's program left the packet to the kernel's stack, which may have translated it. */
INLINE bool came_by_stack(struct __sk_buff *skb)
{
	return has_mark(skb, CALI_MARK_STACK) || has_mark(skb, CALI_MARK_NAT_OUT);
}

/* The state that tail-called programs share; dry runs have one of their own. */
INLINE struct cali_state *get_state(struct __sk_buff *skb)
{
	__u32 i = CB(skb, CALI_CB_TRACE) ? 1 : 0;

	return bpf_map_lookup_elem(&FAM(state2), &i);
}

INLINE struct cali_scratch *get_scratch(struct __sk_buff *skb)
{
	__u32 i = CB(skb, CALI_CB_TRACE) ? 1 : 0;

	return bpf_map_lookup_elem(&FAM(scratch2), &i);
}

INLINE struct cali_globals *get_globals(void)
{
	__u32 i = 0;

	return bpf_map_lookup_elem(&cali_globals2, &i);
}

/* This node's address in the family; false when it has none. */
INLINE bool host_ip(const struct cali_globals *g, struct cali_ip *ip)
{
#if IS_V6
	ip->w[0] = g->host_ip6[0];
	ip->w[1] = g->host_ip6[1];
	ip->w[2] = g->host_ip6[2];
	ip->w[3] = g->host_ip6[3];
	return ip->w[0] | ip->w[1] | ip->w[2] | ip->w[3];
#else
	ip->w[0] = g->host_ip4;
	return ip->w[0] != 0;
#endif
}

/* L3 length of what goes over a wire: one segment of a GSO packet, else the packet. */
INLINE __u32 wire_len(struct __sk_buff *skb, const struct pkt *p)
{
	__u32 gso = skb->gso_size;

	if (!gso)
		return p->l3_len;
	/* The L4 header of a GSO packet is TCP's or UDP's; 20 bytes of options are the most that
	 * Linux sends, and a segment is only judged too big when it surely is. */
	return (p->l4_off - L2_LEN) + (p->proto == IPPROTO_TCP ? 20 : 8) + gso;
}

#endif
