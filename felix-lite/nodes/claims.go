// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// usable reports whether an address can name a node or pod, in a family that is switched on.
func (c *Calculator) usable(a netip.Addr) bool {
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return false
	}
	return c.enabled(model.FamilyOf(a))
}

func (c *Calculator) enabled(f model.Family) bool {
	if f == model.IPv4 {
		return c.opts.IPv4
	}
	return c.opts.IPv6
}

// usableAddresses returns a node's addresses, internal ones first, otherwise in its own order.
func (c *Calculator) usableAddresses(n *model.Node) []netip.Addr {
	var out []netip.Addr
	for _, t := range []model.NodeAddressType{model.NodeInternalIP, model.NodeExternalIP} {
		for _, a := range n.Addresses {
			if addr := a.Addr.Unmap(); a.Type == t && c.usable(addr) && !slices.Contains(out, addr) {
				out = append(out, addr)
			}
		}
	}
	return out
}

// chosen returns the address of a node in a family, invalid if it has none. Link-local addresses
// are never chosen: they mean nothing without their interface.
func (c *Calculator) chosen(n *model.Node, f model.Family) netip.Addr {
	for _, a := range c.usableAddresses(n) {
		if model.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// underlay returns the address to which packets for a remote node are tunnelled, invalid if the
// two nodes have no family in common that may be used.
func (c *Calculator) underlay(n *model.Node) netip.Addr {
	own := c.Own()
	v4, v6 := c.chosen(n, model.IPv4), c.chosen(n, model.IPv6)
	unknown := !own.IPv4.IsValid() && !own.IPv6.IsValid()
	if c.opts.Underlay != UnderlayIPv6 && v4.IsValid() && (own.IPv4.IsValid() || unknown) {
		return v4
	}
	if c.opts.Underlay != UnderlayIPv4 && v6.IsValid() && (own.IPv6.IsValid() || unknown) {
		return v6
	}
	return netip.Addr{}
}

// updateOwn computes this node's claims anew, and those of all others where they depend on it.
func (c *Calculator) updateOwn(before OwnNode) {
	var claims []*claim
	addrs := slices.Clone(c.hostAddrs)
	var pools []netip.Prefix
	base := claim{kind: model.KindNode, name: model.ObjectName{Name: c.opts.NodeName}}
	if c.own != nil {
		base.created = c.own.Created
		for _, a := range c.usableAddresses(c.own) {
			if !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
		pools = c.podCIDRs(c.own)
	}
	for _, a := range addrs {
		cl := base
		cl.prefix, cl.rank, cl.field = single(a), ownAddress, "status.addresses"
		cl.route = RouteValue{Flags: Local | HostAddr}
		claims = append(claims, &cl)
	}
	for i, p := range pools {
		cl := base
		cl.prefix, cl.rank, cl.field = p, podCIDR, fmt.Sprintf("spec.podCIDRs[%d]", i)
		cl.route = RouteValue{Flags: Pool}
		// What no pod has must not leave by the default route: the network would send it back.
		cl.kernel = &KernelRoute{Dst: p, Unreachable: true}
		claims = append(claims, &cl)
	}
	c.setClaims(ownerID{model.KindNode, c.opts.NodeName}, claims, nil)

	// Which family leads to the others depends on which families this node has.
	if own := c.Own(); own.IPv4.IsValid() != before.IPv4.IsValid() || own.IPv6.IsValid() != before.IPv6.IsValid() {
		for _, name := range slices.Sorted(maps.Keys(c.remote)) {
			c.updateRemote(name)
		}
	}
}

// updateRemote computes a remote node's claims anew.
func (c *Calculator) updateRemote(name string) {
	id := ownerID{model.KindNode, name}
	n := c.remote[name]
	if n == nil {
		c.ids.release(name)
		c.setClaims(id, nil, nil)
		return
	}
	var claims []*claim
	var problems []model.ObjectError
	complain := func(field, format string, args ...any) {
		problems = append(problems, model.ObjectError{
			Kind: model.KindNode, Name: n.ObjectName(), Field: field, Message: fmt.Sprintf(format, args...),
		})
	}
	base := claim{kind: model.KindNode, name: n.ObjectName(), created: n.Created}
	value := RouteValue{NodeID: c.ids.of(n), NextHop: c.underlay(n)}
	if value.NextHop.Is6() {
		value.Flags |= NextHopV6
	}
	for _, a := range c.usableAddresses(n) {
		cl := base
		cl.prefix, cl.rank, cl.field = single(a), nodeAddress, "status.addresses"
		cl.route = value
		cl.route.Flags |= HostAddr
		if c.opts.Overlay != OverlayDirect && value.NextHop.IsValid() {
			cl.route.Flags |= Tunneled // for pods: the network between the nodes need not know their addresses
		}
		claims = append(claims, &cl)
	}
	for i, p := range c.podCIDRs(n) {
		cl := base
		cl.prefix, cl.rank, cl.field = p, podCIDR, fmt.Sprintf("spec.podCIDRs[%d]", i)
		cl.route = value
		cl.route.Flags |= Workload | Pool
		if c.opts.Overlay == OverlayDirect {
			gateway := c.chosen(n, model.FamilyOf(p.Addr()))
			if !gateway.IsValid() {
				complain(cl.field, "%s can not be routed to: the node has no %s address", p, model.FamilyOf(p.Addr()))
				continue
			}
			cl.kernel = &KernelRoute{Dst: p, Gateway: gateway}
		} else {
			if !value.NextHop.IsValid() {
				complain(cl.field, "%s can not be tunnelled to: the node has no address in the underlay's family", p)
				continue
			}
			cl.route.Flags |= Tunneled
			cl.kernel = &KernelRoute{Dst: p, Interface: TunnelInterface, Gateway: gatewayFor(p), Onlink: true}
		}
		claims = append(claims, &cl)
	}
	c.setClaims(id, claims, problems)
}

// updateEndpoint computes a local endpoint's claims anew.
func (c *Calculator) updateEndpoint(id string) {
	owner := ownerID{model.KindWorkloadEndpoint, id}
	e, ok := c.endpoints[id]
	if !ok {
		c.setClaims(owner, nil, nil)
		return
	}
	var claims []*claim
	for i, a := range e.Addresses {
		if !c.usable(a) {
			continue
		}
		cl := &claim{
			kind: model.KindWorkloadEndpoint, name: e.ObjectName(), field: fmt.Sprintf("addresses[%d]", i),
			alias: e.Pod, created: e.Created, prefix: single(a), rank: localWorkload,
			route: RouteValue{Flags: Local | Workload | Pool, Ifindex: e.Ifindex, EndpointSlot: e.Slot},
		}
		if c.opts.NATOutgoing {
			cl.route.Flags |= NATOut
		}
		cl.kernel = &KernelRoute{Dst: cl.prefix, Interface: e.HostInterface}
		cl.neighbour = &Neighbour{NeighbourKey{e.HostInterface, a}, e.PodMAC}
		claims = append(claims, cl)
	}
	c.setClaims(owner, claims, nil)
}

// claimExclusions claims the configured ranges that see pods' own addresses, in this node's name.
func (c *Calculator) claimExclusions() {
	if !c.opts.NATOutgoing {
		return
	}
	var claims []*claim
	for i, p := range c.opts.NATExclusions {
		if !c.enabled(model.FamilyOf(p.Addr())) || slices.Contains(c.table.exclusions, p) {
			continue
		}
		c.table.exclusions = append(c.table.exclusions, p)
		claims = append(claims, &claim{prefix: p, rank: exclusion, kind: model.KindNode, name: model.ObjectName{Name: c.opts.NodeName},
			field: fmt.Sprintf("natOutgoingExclusionCIDRs[%d]", i), route: RouteValue{Flags: Pool}})
	}
	c.setClaims(ownerID{model.KindNode, ""}, claims, nil)
}

func (c *Calculator) podCIDRs(n *model.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range n.PodCIDRs {
		if !p.IsValid() || p.Addr().Is4In6() || !c.enabled(model.FamilyOf(p.Addr())) {
			continue
		}
		if p = p.Masked(); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func gatewayFor(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return TunnelGateway4
	}
	return TunnelGateway6
}
