// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Flags of a route, with the values of enum cali_route_flag (bpf-c/types.h).
type Flags uint32

// The flags that are set today.
const (
	Local     Flags = 1 << 0  // on this node
	Workload  Flags = 1 << 1  // a pod, or a node's pod CIDR
	HostAddr  Flags = 1 << 2  // a node's own address
	Pool      Flags = 1 << 3  // inside the cluster's pod ranges
	NATOut    Flags = 1 << 4  // what it sends out of the cluster is masqueraded
	Tunneled  Flags = 1 << 6  // reached through the tunnel
	NextHopV6 Flags = 1 << 11 // NextHop is IPv6
)

// Route is one entry of a route map; its family is the prefix's.
type Route struct {
	Prefix netip.Prefix
	Value  RouteValue
}

// RouteValue says whose the addresses of a prefix are and how they are reached.
type RouteValue struct {
	Flags Flags
	// Ifindex and EndpointSlot belong to a local workload.
	Ifindex      uint32
	EndpointSlot uint32
	// NodeID is the id of the remote node, 0 on this node's own.
	NodeID uint32
	// NextHop is the remote node's underlay address; invalid on this node's own, and for nodes
	// that have no address in the underlay's family.
	NextHop netip.Addr
}

// KernelRoute is a route for the kernel's main table; its key is Dst.
type KernelRoute struct {
	Dst netip.Prefix
	// Interface is the device's name; empty for a gateway that the kernel finds itself.
	Interface string
	// Gateway is invalid for what is directly on the interface (scope link).
	Gateway netip.Addr
	// Onlink: the gateway is on the interface although no address of it says so.
	Onlink bool
	// Unreachable: there is nothing but what other routes say.
	Unreachable bool
}

// NeighbourKey names a neighbour entry.
type NeighbourKey struct {
	Interface string
	Addr      netip.Addr
}

// Neighbour is a permanent neighbour entry.
type Neighbour struct {
	NeighbourKey
	MAC model.MAC
}

// Delta is what must be set and removed. Updates come before removals.
type Delta struct {
	Routes           []Route
	KernelRoutes     []KernelRoute
	Neighbours       []Neighbour
	DeleteRoutes     []netip.Prefix
	DeleteKernel     []netip.Prefix
	DeleteNeighbours []NeighbourKey
	// Problems that are new with this change; Calculator.Problems has all that stand.
	Problems []model.ObjectError
}

// RoutesChanged reports whether forwarding decisions that conntrack remembers may be wrong now, so
// that cali_globals2.route_epoch must be raised.
func (d Delta) RoutesChanged() bool { return len(d.Routes) > 0 || len(d.DeleteRoutes) > 0 }

// Empty reports whether there is nothing to do.
func (d Delta) Empty() bool {
	return !d.RoutesChanged() && len(d.KernelRoutes) == 0 && len(d.Neighbours) == 0 && len(d.DeleteKernel) == 0 && len(d.DeleteNeighbours) == 0
}

// Overlay says how packets travel between pods on different nodes.
type Overlay string

// The overlays, named as in the configuration.
const (
	OverlayVXLAN  Overlay = "VXLAN"  // encapsulated, to the node's address
	OverlayDirect Overlay = "Direct" // routed by the nodes' addresses
	// OverlayVXLANCrossSubnet will route directly inside a subnet. Nodes' prefix lengths are not
	// known yet, so every pair of nodes counts as different subnets: all is encapsulated.
	OverlayVXLANCrossSubnet Overlay = "VXLANCrossSubnet"
)

// Underlay chooses the family of the tunnel's outer packets.
type Underlay string

// The choices, named as in the configuration.
const (
	UnderlayAuto Underlay = "Auto" // IPv4 if this node has an IPv4 address, else IPv6
	UnderlayIPv4 Underlay = "IPv4"
	UnderlayIPv6 Underlay = "IPv6"
)

// TunnelInterface is the device that kernel routes to remote pods use.
const TunnelInterface = "vxlan.calico"

// The tunnel device's gateways, one for each family, and their (made up) Ethernet address: kernel
// routes to remote pods point at them, the device's egress program finds the node itself.
var (
	TunnelGateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 2})
	TunnelGateway6 = netip.MustParseAddr("fe80::2")
	TunnelMAC      = model.MAC{0x02, 0xfe, 0x11, 0x0c, 0x00, 0x01}
)

// Options is what the calculator must know of this node and its configuration.
type Options struct {
	NodeName string
	Overlay  Overlay
	Underlay Underlay
	// IPv4 and IPv6 switch the families on.
	IPv4, IPv6 bool
	// NATOutgoing: what this node's pods send out of the cluster gets the node's address, unless it goes to one of the
	// NATExclusions.
	NATOutgoing   bool
	NATExclusions []netip.Prefix
}

// LocalEndpoint is a workload endpoint whose interface is there.
type LocalEndpoint struct {
	*model.WorkloadEndpoint
	Ifindex uint32
	// Slot is the endpoint slot: conntrack and policy know the endpoint by it.
	Slot uint32
}

// OwnNode is what is known of this node.
type OwnNode struct {
	// IPv4 and IPv6 are its chosen addresses, invalid if it has none.
	IPv4, IPv6 netip.Addr
	// Underlay is its address in the underlay's family, and that family.
	Underlay       netip.Addr
	UnderlayFamily model.Family
	// PodCIDRs are its pods' ranges.
	PodCIDRs []netip.Prefix
	Zone     string
	// Deleting: the Node object is being deleted, or gone.
	Deleting bool
}
