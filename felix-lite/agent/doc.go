// SPDX-License-Identifier: Apache-2.0

// Package agent is the one loop that owns the node's dataplane.
//
// What comes in: changes of cluster objects (felix-lite/source), of links and addresses
// (endpoints.Monitor), of endpoint files (endpoints/files), and timers. Each arrives on a channel
// from a goroutine that does nothing but send. What goes out: programs in the inactive bank and the
// switch to it, entries in the BPF maps, attachments, kernel routes and neighbours, the overlay's
// device, status files; and for people a health page, metrics and a state file with the services'
// names. felix-lite/cmd/felix-lite is the only caller.
//
// The loop's one rule is the order of a pass: programs, interfaces, backends, frontends, routes,
// deletions, status files. Nothing is deleted before every source has told all it has once. An error
// never ends the loop: what failed is tried again with back-off, and readiness says what is missing.
// When the agent ends, or is killed, it takes nothing away: the next one adopts what is there.
//
// It must never touch a network namespace other than its own, or anything that it did not make.
package agent
