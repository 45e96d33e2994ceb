/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* bpf.h: what every program includes first: kernel UAPI, libbpf helpers, and the few
 * macros the whole datapath is written in. No map and no policy lives here. */
#ifndef FELIX_BPF_H
#define FELIX_BPF_H

#include <stddef.h>
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define INLINE static inline __attribute__((always_inline))
#define PACKED __attribute__((packed))

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A value the compiler must take from memory again: keeps a load from being merged or moved. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))

/* Stores x in one piece, and after what was stored so before. */
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

/* Keeps the compiler from folding a variable into an expression the verifier can not follow. */
#define opaque(x) asm volatile("" : "+r"(x))

/* Makes the verifier forget what it knows of x: it does not see that adding and taking away an unknown
 * r changes nothing. Used where paths meet again, so that what lies behind is verified once and not
 * once for each value that x may have. Costs two instructions. */
#define forget(x, r)                                                                                         \
	({                                                                                                   \
		__u64 x_ = (x), r_ = (r);                                                                    \
		asm volatile("%0 += %1\n%0 -= %1" : "+r"(x_) : "r"(r_));                                     \
		x_;                                                                                          \
	})

/* A constant that is known when the program is loaded: a field, of 4 or 8 bytes, of the struct that the
 * loader was given (bpf-go/load). It puts the value into this instruction, so a packet fetches it with the
 * text, and not from a page of constants that would seldom be in the caches. */
#define LOAD_CONSTANT(type, field)                                                                           \
	({                                                                                                   \
		__u64 v_;                                                                                    \
		asm("%0 = %1 ll" : "=r"(v_) : "i"(CONSTANT_OPERAND(type, field)));                           \
		(typeof(((type *)0)->field))v_;                                                              \
	})

/* What stands in the instruction until then: the field's place, and a mark that tells its size. */
#define CONSTANT_OPERAND(type, field)                                                                        \
	((sizeof(((type *)0)->field) == 8 ? 0xfe11c0df00000000 : 0xfe11c0de00000000) | offsetof(type, field))

/* Tail-calls the program at index constant + add of a prog array. The verifier knows the index, so the
 * kernel makes it a jump in the program's text, to be patched when the slot changes. An index from memory
 * costs 100 ns more in live traffic: the map, the program's descriptor and an indirect jump are seldom in the
 * caches. In assembler, because the compiler would merge calls into one whose index nobody can foretell. */
#define TAIL_CALL(ctx, map, constant, add)                                                                   \
	asm volatile("r1 = %0\n"                                                                             \
		     "r2 = %1\n"                                                                             \
		     "r3 = %2 ll\n"                                                                          \
		     "r3 += %3\n"                                                                            \
		     "call 12" /* bpf_tail_call */                                                           \
		     :                                                                                       \
		     : "r"(ctx), "r"(map), "i"(constant), "i"(add)                                           \
		     : "r0", "r1", "r2", "r3", "r4", "r5", "memory")

/* linux/if_packet.h */
#define PACKET_HOST 0

#define zero(x) __builtin_memset(&(x), 0, sizeof(x))

#endif
