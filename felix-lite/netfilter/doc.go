// SPDX-License-Identifier: Apache-2.0

// Package netfilter keeps the agent's own iptables chains: what the datapath needs of the kernel's
// netfilter, and nothing else.
//
// What comes in: a Spec (mark bits, names of workload interfaces, whether pods are masqueraded), by
// Keeper.Want. What goes out: chains named FELIX-LITE-*, a jump to each as the first rule of its parent,
// and a Result for each look by Keeper.Results. The agent is the only caller; the iptables commands are
// slow, so Keeper.Run does everything in a goroutine of its own.
//
// Rules (what is to stand where) is a pure function. Who applies it compares with what iptables prints, and
// writes nothing where that is right. Netfilter tells nobody of changes, so all is looked at again at an
// interval. Other people's rules and chains are never changed; between two back-ends the one is used where
// rules already are.
package netfilter
