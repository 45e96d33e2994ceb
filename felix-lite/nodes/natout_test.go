// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"
	"testing"
)

func masquerade(exclusions ...string) func(*Options) {
	return func(o *Options) {
		o.NATOutgoing = true
		for _, e := range exclusions {
			o.NATExclusions = append(o.NATExclusions, netip.MustParsePrefix(e))
		}
	}
}

func TestLocalPodsAreMasqueradedAndExclusionsAreOnlyKnown(t *testing.T) {
	f := newFixture(t, masquerade("10.0.0.0/8", "198.51.100.0/24", "2001:db8:9::/48", "198.51.100.0/24"))
	f.set(node("n0", "192.0.2.10", "10.65.0.0/24"), node("n1", "192.0.2.11", "10.65.1.0/24"))
	f.endpoint("e1", 1, "cali1", "10.65.0.2", "fd00:65::2")
	f.want("10.0.0.0/8 pool", "198.51.100.0/24 pool", "2001:db8:9::/48 pool",
		"192.0.2.10 local host", "192.0.2.11 host tunnel node 1 via 192.0.2.11", "10.65.0.0/24 pool", "kernel 10.65.0.0/24 unreachable",
		"10.65.1.0/24 workload pool tunnel node 1 via 192.0.2.11",
		"10.65.0.2 local workload pool nat-out if 7 slot 3", "fd00:65::2 local workload pool nat-out if 7 slot 3",
		"kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink", "kernel 10.65.0.2 dev cali1", "kernel fd00:65::2 dev cali1",
		"neighbour 10.65.0.2 02:00:00:00:00:31 dev cali1", "neighbour fd00:65::2 02:00:00:00:00:31 dev cali1")
	f.wantProblems()
}

func TestAnExclusionInsideAPodRangeIsRefusedForAsLongAsTheRangeIsThere(t *testing.T) {
	f := newFixture(t, masquerade("10.65.1.128/25", "10.65.0.0/24", "fd00:65:1::/64"), func(o *Options) { o.IPv6 = false })
	f.set(node("n0", "192.0.2.10"))
	f.want("192.0.2.10 local host", "10.65.1.128/25 pool", "10.65.0.0/24 pool")
	f.set(node("n0", "192.0.2.10", "10.65.0.0/24"), node("n1", "192.0.2.11", "10.65.1.0/24"))
	f.want("192.0.2.10 local host", "10.65.0.0/24 pool", "kernel 10.65.0.0/24 unreachable", "192.0.2.11 host tunnel node 1 via 192.0.2.11",
		"10.65.1.0/24 workload pool tunnel node 1 via 192.0.2.11", "kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink")
	f.wantProblems("node n0: natOutgoingExclusionCIDRs[0]: 10.65.1.128/25 is not used: it overlaps 10.65.1.0/24 of node n1",
		"node n0: natOutgoingExclusionCIDRs[1]: 10.65.0.0/24 is not used: it belongs to node n0")
	f.remove("n1")
	f.want("192.0.2.10 local host", "10.65.0.0/24 pool", "kernel 10.65.0.0/24 unreachable", "10.65.1.128/25 pool")
}

func TestWithoutNATOutgoingExclusionsMeanNothing(t *testing.T) {
	f := newFixture(t, masquerade("198.51.100.0/24"), func(o *Options) { o.NATOutgoing = false })
	f.set(node("n0", "192.0.2.10"))
	f.endpoint("e1", 1, "cali1", "10.65.0.2")
	f.want("192.0.2.10 local host", "10.65.0.2 local workload pool if 7 slot 3", "kernel 10.65.0.2 dev cali1",
		"neighbour 10.65.0.2 02:00:00:00:00:31 dev cali1")
}
