// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* clock.c: user space's only way to read the clock that conntrack's times are in. bpf-go/features
 * runs it by BPF_PROG_TEST_RUN and reads the map; it is never attached to anything. */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} cali_clock_out SEC(".maps");

SEC("tc")
int cali_clock(struct __sk_buff *skb)
{
	__u32 zero_key = 0;
	__u64 *out = bpf_map_lookup_elem(&cali_clock_out, &zero_key);

	if (out)
		*out = bpf_jiffies64();
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
