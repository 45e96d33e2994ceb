// SPDX-License-Identifier: Apache-2.0

// Package progtest runs the datapath's programs on built packets and looks at everything they leave behind: verdict,
// packet, mark, counters and conntrack entries. It has tests only; nothing imports it.
//
// A fixture is data: what the node knows, which packets come by which hooks, and what becomes of them. Each runs in both
// families; addresses are names ("podA", "vip"), so one text serves both. Reading the fixtures is reading the list of
// what the datapath does:
//
//	services_test.go   new flows to services, affinity, traffic policies, collisions
//	forward_test.go    where packets go: pods, tunnel, FIB, stack; hop limit and MTU
//	tcp_test.go        states, timeouts, resets, reopening
//	related_test.go    ICMP errors about flows
//	parse_test.go      odd, broken and foreign packets
//	variants_test.go   classes without a story of their own, the preamble, dry runs
//
// The tables in coverage_test.go fail when a counter or drop reason of bpf-c/reasons.h has no fixture that produces it,
// and when one of the 24 variants has none that runs it. All checksums are verified by computing them anew. What
// BPF_PROG_TEST_RUN can not show (the device a redirect goes to, the tunnel key a packet leaves with, checksums that a
// device is to finish) is left to the functional tests.
package progtest
