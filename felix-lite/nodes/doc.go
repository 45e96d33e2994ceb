// SPDX-License-Identifier: Apache-2.0

// Package nodes computes who is where: which routes the datapath's route maps and the kernel's
// routing table must hold for this node's pods, the other nodes and their pods.
//
// In: changes of Node objects, this node's interface addresses and its workload endpoints. Out: a
// Delta of BPF routes, kernel routes and neighbours, and the complete sets, for reconciling. The
// agent's loop calls it and is the only caller. It is pure: no I/O, no clock; a kernel route names
// its interface, who applies it looks up the index.
//
// A node must not be cut off by what its own Node object does: when that object is deleted, or
// arrives without addresses, what was last known of it stays.
package nodes
