// SPDX-License-Identifier: Apache-2.0

// Package services computes what the datapath's service maps must hold.
//
// In: changes of Services, EndpointSlices, Nodes and Pods, and this node's name, zone and
// addresses. Out: a Delta, the few entries to write and delete for those changes, in an order in
// which a packet never meets a frontend whose backends are missing; and the complete tables, for
// reconciling. The agent's loop calls it and is the only caller. It is pure: no I/O, no clock, no
// goroutines, and it knows addresses and ports, not BPF maps.
//
// The rules are kube-proxy's; docs/services.md lists them, docs/deviations.md the differences.
//
// A "service port" here is one port of a Service in one family: it has an id, two lists of
// backends (cluster and local) and frontends that point at them. The families are independent.
//
// Cost is proportional to the service that changes, never to the number of services.
package services
