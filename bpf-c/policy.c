// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* policy.c: the two policies that always stand in cali_policy2. Generated programs take the same way
 * out: the caller has left the indices to continue at in its state. */
#define PREAMBLE_MAPS
#include "maps.h"

/* Who calls a policy has put the indices to continue at into two words of skb->cb (jump.h), so that one
 * program serves both families and every variant. A slot that is empty denies. */
INLINE int leave(struct __sk_buff *skb, enum cali_cb word)
{
	bpf_tail_call(skb, &cali_jump2, skb->cb[word]);
	return TC_ACT_SHOT;
}

SEC("tc")
int cali_policy_deny(struct __sk_buff *skb)
{
	return leave(skb, CALI_CB_DENY);
}

SEC("tc")
int cali_policy_allow(struct __sk_buff *skb)
{
	return leave(skb, CALI_CB_ACCEPT);
}

char _license[] SEC("license") = "Dual BSD/GPL";
