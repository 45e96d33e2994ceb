// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* preamble.c: the only program that stands on a hook itself. It hands on what is particular to the
 * interface in skb->cb[] and jumps to the main program of the interface's class, direction and
 * family. Loaded once for each interface and hook, so it stays small. */
#define PREAMBLE_MAPS
#include "maps.h"

#define CFG(field) LOAD_CONSTANT(struct cali_preamble_cfg, field)

/* Jumps to the main program whose index, without the bank, is in a field of the constants. */
#define JUMP_MAIN(skb, bank, field)                                                                          \
	TAIL_CALL(skb, &cali_jump2, CONSTANT_OPERAND(struct cali_preamble_cfg, field), bank)

/* What happens when no main program can be reached: workloads are closed, the host stays open. */
INLINE int no_program(void)
{
	__u32 row = (CFG(iface_slot) * 2 + CFG(hook)) * 2;
	struct cali_counter_row *r = bpf_map_lookup_elem(&cali_counters2, &row);

	if (!CFG(fail_closed))
		return TC_ACT_UNSPEC;
	if (r)
		r->count[CALI_DROP_NO_PROGRAM]++;
	return TC_ACT_SHOT;
}

SEC("tc")
int cali_preamble(struct __sk_buff *skb)
{
	__u32 zero_key = 0;
	struct cali_globals *g = bpf_map_lookup_elem(&cali_globals2, &zero_key);
	__u32 v6;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		v6 = 0;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		v6 = 1;
	else if (skb->protocol == bpf_htons(ETH_P_ARP))
		return TC_ACT_UNSPEC;
	else
		v6 = 0; /* main counts what is neither, and decides by class */

	if (!g)
		return no_program();
	skb->cb[CALI_CB_IFACE] = CFG(iface_slot);
	skb->cb[CALI_CB_FLAGS] = CFG(flags);
	skb->cb[CALI_CB_POLICY] = v6 ? CFG(policy[1]) : CFG(policy[0]);
	skb->cb[CALI_CB_EP] = CFG(ep_slot);
	skb->cb[CALI_CB_TRACE] = 0;
	if (READ_ONCE(g->jump_base)) {
		if (v6)
			JUMP_MAIN(skb, CALI_BANK_STRIDE, main[1]);
		else
			JUMP_MAIN(skb, CALI_BANK_STRIDE, main[0]);
	} else {
		if (v6)
			JUMP_MAIN(skb, 0, main[1]);
		else
			JUMP_MAIN(skb, 0, main[0]);
	}
	return no_program();
}

char _license[] SEC("license") = "Dual BSD/GPL";
