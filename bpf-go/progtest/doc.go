// SPDX-License-Identifier: Apache-2.0

// Package progtest runs the datapath's programs on built packets and looks at everything they leave behind: verdict,
// packet, mark, counters and conntrack entries. It has tests only; nothing imports it.
//
// A fixture is data: what the node knows, which packets come by which hooks, and what becomes of them. Each runs in both
// families; addresses are names ("podA", "vip"), so one text serves both. Reading the fixtures is reading the list of
// what the datapath does:
//
//	services_test.go   pods' flows to services, traffic policies
//	external_test.go   NodePorts, external IPs, backends that are hosts
//	choice_test.go     client affinity; flows that want the same tuple
//	forward_test.go    where packets go: pods, FIB, stack
//	tunnel_test.go     what goes and comes by the tunnel
//	mtu_test.go        hop limit and MTU, and the answers
//	tcp_test.go        states, resets, reopening
//	timeout_test.go    timeouts, looked at when a packet comes
//	midflow_test.go    segments without a flow; a full table
//	related_test.go    ICMP errors about flows
//	parse_test.go      odd, broken and foreign packets
//	mutation_test.go   packets spoilt at random
//	variants_test.go   marks, classes without a story of their own, dry runs, missing programs, the preamble
//
// The tables in coverage_test.go fail when a counter or drop reason of bpf-c/reasons.h has no fixture that produces it,
// and when one of the 24 variants has none that runs it. All checksums are verified by computing them anew. What
// BPF_PROG_TEST_RUN can not show (the device a redirect goes to, the tunnel key a packet leaves with, checksums that a
// device is to finish) is left to the functional tests.
package progtest
