// SPDX-License-Identifier: Apache-2.0

// Package socketlb keeps the programs at connect time (bpf-c/ctlb.c) where they belong: on the cgroup whose
// sockets they balance, with the constants of the configured mode, and away from pods that have opted out.
//
// What comes in: the mode, what the kernel can do, pods, namespaces and endpoint files. What goes out: pinned
// cgroup links, the map of namespaces to be left alone, and the answer to whether host traffic still has to
// be balanced packet by packet. The agent's loop owns a Manager and calls it in every pass; what starts a process
// (the self-test, and on old kernels the question for a network namespace's cookie) is a goroutine that only
// sends its result. It must never decide about a packet or a service, touch programs of others on the cgroup, or
// take away what serves the host before something else does.
package socketlb
