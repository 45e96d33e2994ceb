// SPDX-License-Identifier: Apache-2.0

// Package hostnat leads what this host itself sends to a service through the datapath, where it is not
// balanced at connect time: by routes of the services' addresses into a pair of veth devices.
//
//	socket -> VIP route -> bpfin.cali ==veth==> bpfout.cali: from_nat translates -> routed again -> backend
//
// What comes in: the frontends that the service calculator wants, the node's addresses and sizes, and
// whether the pair is in use. What goes out: the pair itself with its sysctls and address (Ensure,
// Remove), and routes and neighbours for package routetable (Routes). The agent's loop calls it.
//
// Only bpfout.cali gets sysctls and an address of its own, so that no other interface's settings need be
// touched: everything with a local or a service's source address enters by it, replies too. The programs
// on it are the endpoint manager's; bpfin.cali carries none, and its routes must not be there before
// bpfout's programs are: the kernel would send such a packet round until its TTL ends.
//
// The decision whether the fallback is needed is not made here, and nothing but what carries one of the
// two names is ever changed.
package hostnat
