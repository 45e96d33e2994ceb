// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Route is what the datapath knows about a prefix.
type Route struct {
	Flags   layout.RouteFlag // RTNextHopV6 is set and read by this package
	Ifindex uint32           // local workload: host side of its veth
	NodeID  uint32
	EPSlot  uint32
	NextHop netip.Addr // underlay address of the node; the zero Addr if there is none
}

// Routes are cali_v4_routes and cali_v6_routes, keyed by masked prefixes.
type Routes struct{ *Dual[netip.Prefix, Route] }

func routeFamily(p netip.Prefix) layout.Family { return layout.FamilyOf(p.Addr()) }

func routeCodec[A layout.Address]() codec[netip.Prefix, Route, layout.RouteKey[A], layout.RouteValue] {
	return codec[netip.Prefix, Route, layout.RouteKey[A], layout.RouteValue]{
		key: func(p netip.Prefix) (layout.RouteKey[A], error) {
			addr, err := layout.AddrFrom[A](p.Masked().Addr())
			return layout.RouteKey[A]{Prefixlen: uint32(p.Bits()), Addr: addr}, err
		},
		unkey: func(k layout.RouteKey[A]) netip.Prefix {
			return netip.PrefixFrom(k.Addr.Addr(), int(k.Prefixlen))
		},
		value: func(r Route) (layout.RouteValue, error) {
			flags := r.Flags &^ layout.RTNextHopV6
			if r.NextHop.IsValid() && layout.FamilyOf(r.NextHop) == layout.FamilyV6 {
				flags |= layout.RTNextHopV6
			}
			return layout.RouteValue{
				Flags: uint32(flags), Ifindex: r.Ifindex, NodeID: r.NodeID, EPSlot: r.EPSlot,
				NextHop: layout.AnyFrom(r.NextHop),
			}, nil
		},
		unvalue: func(v layout.RouteValue) Route {
			flags := layout.RouteFlag(v.Flags)
			return Route{
				Flags: flags &^ layout.RTNextHopV6, Ifindex: v.Ifindex, NodeID: v.NodeID, EPSlot: v.EPSlot,
				NextHop: v.NextHop.Addr(flags&layout.RTNextHopV6 != 0),
			}
		},
	}
}
