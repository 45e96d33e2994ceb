// SPDX-License-Identifier: Apache-2.0

// Package socktest holds the tests of the programs at connect time (bpf-c/ctlb.c): real sockets of this
// process, in a cgroup and a network namespace of the test's own, over real maps.
//
// In: what the node knows (frontends, backends, routes) and what a socket does. Out: where it got to, and
// what it was told. It has no code but tests, and nothing may import it.
package socktest
