// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* layout.c: compiled once for each family, never loaded as a program: its BTF carries every map
 * key, value and enum, from which bpf-go/layout is generated, and all maps' specifications. */
#define ALL_MAPS
#include "maps.h"
#include "marks.h"

/* A global of each type that no map mentions keeps it in the BTF. */
struct cali_preamble_cfg emit_preamble_cfg;
struct cali_config emit_config;
struct cali_ctlb_config emit_ctlb_config;
enum cali_class emit_class;
enum cali_hook emit_hook;
enum cali_family emit_family;
enum cali_slot emit_slot;
enum cali_bank emit_bank;
enum cali_policy_index emit_policy_index;
enum cali_cb emit_cb;
enum cali_counter emit_counter;
enum cali_mark emit_mark;
enum cali_ct_type emit_ct_type;
enum cali_ct_state emit_ct_state;
enum cali_ct_flag emit_ct_flag;
enum cali_fwd emit_fwd;
enum cali_leg_flag emit_leg_flag;
enum cali_fe_flag emit_fe_flag;
enum cali_be_list emit_be_list;
enum cali_be_flag emit_be_flag;
enum cali_route_flag emit_route_flag;
enum cali_iface_flag emit_iface_flag;
enum cali_global_flag emit_global_flag;
enum cali_feature emit_feature;
enum cali_ctlb_flag emit_ctlb_flag;
enum cali_ctlb_probe emit_ctlb_probe;
enum cali_sock_dst_limit emit_sock_limit;
enum cali_state_flag emit_state_flag;

char _license[] SEC("license") = "Dual BSD/GPL";
