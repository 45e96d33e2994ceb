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

/* linux/if_packet.h */
#define PACKET_HOST 0

#define zero(x) __builtin_memset(&(x), 0, sizeof(x))

#endif
