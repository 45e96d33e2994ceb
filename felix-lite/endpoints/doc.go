// SPDX-License-Identifier: Apache-2.0

// Package endpoints keeps the programs of this node's network interfaces in place.
//
// What comes in: links and addresses of the agent's network namespace (Monitor, a goroutine that
// only sends), and endpoint files (package files). What goes out: preambles attached to interfaces,
// entries in cali_iface2, the list of local workloads that may be routed to, and status files. The
// agent's loop calls everything but Monitor.Run, so nothing here is locked.
//
// One interface is one small state machine (fsm.go): absent, present, attached, ready. What a link
// is for is decided by the pure function the manager is given (interfaces.Classify). A failure keeps
// the programs that are attached, is reported with interface and variant, and is tried again with
// back-off. An interface that vanishes at any moment is a normal thing.
//
// This package must never touch an interface that is not classified as ours, never delete a qdisc
// that others use, and never report a workload ready before both of its hooks are attached.
package endpoints
