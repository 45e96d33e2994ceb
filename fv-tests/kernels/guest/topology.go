// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// The smoke test's world: two nodes and an outside client on one Ethernet segment, two pods on the
// first node and one on the second. Every address exists in both families.
//
//	pod a1 ─ cali1 ┐                                   ┌ cali1 ─ pod b1
//	pod a2 ─ cali2 ┴ node a ─ eth0 ─ fabric ─ eth0 ─ node b
//	                                   └ outside
const (
	uplink    = "eth0"
	tunnel    = "vxlan.calico"
	vxlanPort = 4789
	vni       = 4096
	fabricMTU = 1500
	// A pod's packets leave some room for the tunnel's headers, the larger ones of the two underlays.
	podMTU = fabricMTU - 70
	// Routes and neighbours carry the agent's protocol number.
	routeProtocol = 241
)

var (
	hostMAC   = mac("ee:ee:ee:ee:ee:ee") // host side of every pod's veth
	tunnelMAC = mac("02:fe:11:0c:00:01") // of the tunnel's gateways; no device has it

	gateway4       = netip.MustParseAddr("169.254.1.1") // a pod's default gateway
	gateway6       = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
	tunnelGateway4 = netip.MustParseAddr("169.254.1.2") // next hop of kernel routes into the tunnel
	tunnelGateway6 = netip.MustParseAddr("fe80::2")
	tunnelAddr4    = netip.MustParseAddr("169.254.1.4") // loose rp_filter wants an address on the device
)

// addrs is an address in both families.
type addrs struct{ v4, v6 netip.Addr }

// of returns the address of a family.
func (a addrs) of(family layout.Family) netip.Addr {
	if family == layout.FamilyV6 {
		return a.v6
	}
	return a.v4
}

func (a addrs) both() []netip.Addr { return []netip.Addr{a.v4, a.v6} }

func dual(v4, v6 string) addrs { return addrs{netip.MustParseAddr(v4), netip.MustParseAddr(v6)} }

// serviceVIP, and the address of the machine outside.
var (
	serviceVIP  = dual("10.96.0.10", "fd00:96::10")
	outsideAddr = dual("192.168.77.100", "fd00:77::100")
)

type pod struct {
	ns    *namespace
	name  string
	host  string // interface on the node
	mac   net.HardwareAddr
	addrs addrs
	slot  uint32 // of the interface and of the endpoint
	index int    // of the interface on the node
}

type node struct {
	ns    *namespace
	name  string
	id    uint32
	addrs addrs
	cidrs []netip.Prefix
	pods  []*pod

	uplinkIndex, tunnelIndex int
	extra                    []slotted // the fallback's interfaces, once it is there
	dp                       *dataplane
}

// describeNode plans a node and its pods: node 1 is 192.168.77.1, with pods in 10.65.1.0/24.
func describeNode(id uint32, name string, pods ...string) *node {
	n := &node{
		name:  name,
		id:    id,
		addrs: dual(fmt.Sprintf("192.168.77.%d", id), fmt.Sprintf("fd00:77::%d", id)),
		cidrs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.65.%d.0/24", id)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:65:%d::/64", id)),
		},
	}
	for i, p := range pods {
		n.pods = append(n.pods, &pod{
			name:  p,
			host:  fmt.Sprintf("cali%d", i+1),
			mac:   mac(fmt.Sprintf("02:00:00:00:%02x:%02x", id, i+2)),
			addrs: dual(fmt.Sprintf("10.65.%d.%d", id, i+2), fmt.Sprintf("fd00:65:%d::%d", id, i+2)),
			slot:  uint32(firstPodSlot + i),
		})
	}
	return n
}

// Interface slots of a node: row numbers in the counters.
const (
	uplinkSlot   = 1
	tunnelSlot   = 2
	firstPodSlot = 3
)

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err) // a constant of this file
	}
	return m
}

// hostPrefix is an address as a prefix of one.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
