// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
)

// The address plan. Every lab uses the same one; namespaces keep labs apart.
var (
	nodeNet4    = netip.MustParsePrefix("172.30.0.0/24")
	nodeNet6    = netip.MustParsePrefix("fd30::/64")
	uplink2Net4 = netip.MustParsePrefix("172.30.1.0/24")
	uplink2Net6 = netip.MustParsePrefix("fd30:0:0:1::/64")
	vlanNet4    = netip.MustParsePrefix("172.30.2.0/24")
	vlanNet6    = netip.MustParsePrefix("fd30:0:0:2::/64")

	// ServiceCIDR4 and ServiceCIDR6 are the ranges ClusterIPs are taken from.
	ServiceCIDR4 = netip.MustParsePrefix("10.96.0.0/16")
	ServiceCIDR6 = netip.MustParsePrefix("fd96::/112")
	// ExternalNet4 and ExternalNet6 are routed by the router towards node 1: ExternalIPs.
	ExternalNet4 = netip.MustParsePrefix("198.51.100.0/24")
	ExternalNet6 = netip.MustParsePrefix("2001:db8:100::/64")
	// LoadBalancerNet4 and LoadBalancerNet6 are routed towards node 1 too: load balancer addresses.
	LoadBalancerNet4 = netip.MustParsePrefix("203.0.113.0/24")
	LoadBalancerNet6 = netip.MustParsePrefix("2001:db8:203::/64")
)

// Addresses inside a pod's namespace and on its host side, as the CNI plugin makes them.
const (
	podGateway4  = "169.254.1.1"
	podGateway6  = "fe80::ecee:eeff:feee:eeee"
	hostVethMAC  = "ee:ee:ee:ee:ee:ee"
	podInterface = "eth0"
	uplinkName   = "eth0"
	uplink2Name  = "eth1"
)

// routerIn is the router's address in a network: the first one.
func routerIn(p netip.Prefix) netip.Addr { return nth(p, 1) }

// nth returns the n-th address of a prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	last := len(bytes) - 1
	bytes[last] += byte(n)
	bytes[last-1] += byte(n >> 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// OutsideNets returns the networks of the k-th outside client, counted from 1.
func OutsideNets(k int) (v4, v6 netip.Prefix) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(100 + k), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd30:0:0:%d::/64", 100+k))
}

// podCIDRs returns the pod ranges of the i-th node, counted from 1.
func podCIDRs(i int) (v4, v6 netip.Prefix) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, byte(i), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd00:65:%d::/64", i))
}

// hostInterfaceName names the host side of a pod's veth: cali and eleven characters that only this
// pod of the cluster has.
func hostInterfaceName(namespace, pod string) string {
	return "cali" + shortHash(namespace + "/" + pod)[:11]
}

// macFor makes a locally administered address from a name, the same in each run.
func macFor(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	return net.HardwareAddr{0x02, 0xf1, sum[0], sum[1], sum[2], sum[3]}
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
