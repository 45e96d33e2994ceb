// SPDX-License-Identifier: Apache-2.0

// Package lab builds a small cluster on one machine: nodes, pods and outside clients are network
// namespaces joined by a router namespace, and each node runs one real agent process.
//
// What comes in: Options (how many nodes, which pods, which overlay). What goes out: a Lab, whose
// nodes, pods and clients can be told to send traffic (package probe), to start, stop or lose their
// agent, and to read the dataplane's own counters. Callers are the functional tests, the demo and
// bin/lab; everything a Lab knows is also in its state file, so that another process can open it.
//
// Addresses are the same in every lab: labs cannot see each other. What is unique is the lab's name,
// and everything made on the machine carries it: namespaces fl-<lab>-*, the cgroup subtree
// felix-lite-lab/<lab>, the directory /run/felix-lite-lab/<lab> with its bpffs mounts. Down removes
// these by name; it needs no memory of how far Up had got.
//
// A lab that belongs to a process (a test) is removed when that process ends, however it ends: a
// guard process waits for it, and Janitor, called by every Up, removes what even the guard missed.
//
// The lab never touches the machine's own interfaces, routes, sysctls or /sys/fs/bpf. Network
// namespaces are entered with setns on a locked thread, never through "ip netns exec", which hides
// bpffs mounts.
package lab
