// SPDX-License-Identifier: Apache-2.0

package hostnat

import (
	"iter"
	"maps"
	"net/netip"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/routetable"
)

// Gateways that the routes of services' addresses name, one for each family: nobody has them, permanent
// neighbours lead to bpfout.cali.
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	Gateway6 = netip.MustParseAddr("fe80::1")
)

// Node is what the routes depend on beside the services.
type Node struct {
	// IPv4 and IPv6 are the addresses with which the host speaks to services; without one, a family's
	// services are not routed.
	IPv4, IPv6 netip.Addr
	// Own are all addresses of the node. A frontend on one of them is reached by lo: it gets no route.
	Own []netip.Addr
	// MTU of the routes; 0: the pair's.
	MTU int
}

// Delta is what must be set and removed, in this order.
type Delta struct {
	Neighbours       []routetable.Neighbour
	Routes           []routetable.Route
	DeleteRoutes     []netip.Prefix
	DeleteNeighbours []routetable.NeighbourKey
}

// Routes computes the routes and neighbours of the pair. It is pure and incremental: a call costs as much as what it
// changes. It is not safe for concurrent use.
type Routes struct {
	node    Node
	own     map[netip.Addr]bool
	enabled bool
	mac     routetable.MAC

	keys   map[services.FrontendKey]struct{}
	uses   map[netip.Addr]int // frontends with the address
	routes map[netip.Prefix]routetable.Route
	neighs map[routetable.NeighbourKey]routetable.MAC
	delta  Delta
}

// NewRoutes returns Routes that knows nothing and wants nothing.
func NewRoutes() *Routes {
	return &Routes{own: map[netip.Addr]bool{}, keys: map[services.FrontendKey]struct{}{}, uses: map[netip.Addr]int{},
		routes: map[netip.Prefix]routetable.Route{}, neighs: map[routetable.NeighbourKey]routetable.MAC{}}
}

// Enabled reports whether the routes are wanted: Enable has said that the pair is in use.
func (r *Routes) Enabled() bool { return r.enabled }

// Len is the number of routes that are wanted.
func (r *Routes) Len() int { return len(r.routes) }

// Has reports whether a route is wanted here.
func (r *Routes) Has(dst netip.Prefix) bool {
	_, ok := r.routes[dst]
	return ok
}

// Services takes in what the service calculator has changed.
func (r *Routes) Services(d services.Delta) Delta {
	for _, f := range d.Frontends {
		r.use(f.Key)
	}
	for _, k := range d.DeleteFrontends {
		r.drop(k)
	}
	return r.take()
}

// Replace takes in all frontends there are.
func (r *Routes) Replace(frontends iter.Seq2[services.FrontendKey, services.FrontendValue]) Delta {
	gone := maps.Clone(r.keys)
	for k := range frontends {
		delete(gone, k)
		r.use(k)
	}
	for k := range gone {
		r.drop(k)
	}
	return r.take()
}

// SetNode takes in the node's addresses and sizes. It costs all routes where what they have in common has changed, else
// the addresses that the node has won or lost.
func (r *Routes) SetNode(n Node) Delta {
	old := r.node
	r.node = n
	own := make(map[netip.Addr]bool, len(n.Own))
	for _, a := range n.Own {
		own[a] = true
	}
	before := r.own
	r.own = own
	if old.IPv4 != n.IPv4 || old.IPv6 != n.IPv6 || old.MTU != n.MTU {
		r.all()
		return r.take()
	}
	for a := range before {
		r.update(a)
	}
	for a := range own {
		r.update(a)
	}
	return r.take()
}

// Enable says whether the pair is in use, and bpfout.cali's Ethernet address.
func (r *Routes) Enable(enabled bool, outMAC [6]byte) Delta {
	if r.enabled == enabled && r.mac == outMAC {
		return Delta{}
	}
	switched := r.enabled != enabled
	r.enabled, r.mac = enabled, outMAC
	if switched {
		r.all()
	} else {
		r.gateways()
	}
	return r.take()
}

func (r *Routes) take() Delta {
	d := r.delta
	r.delta = Delta{}
	return d
}

func (r *Routes) use(k services.FrontendKey) {
	if _, known := r.keys[k]; known {
		return
	}
	r.keys[k] = struct{}{}
	if r.uses[k.Addr]++; r.uses[k.Addr] == 1 {
		r.update(k.Addr)
	}
}

func (r *Routes) drop(k services.FrontendKey) {
	if _, known := r.keys[k]; !known {
		return
	}
	delete(r.keys, k)
	if r.uses[k.Addr]--; r.uses[k.Addr] == 0 {
		delete(r.uses, k.Addr)
		r.update(k.Addr)
	}
}

// all looks at every address again. The gateways come first: the other routes need them.
func (r *Routes) all() {
	r.gateways()
	for a := range r.uses {
		r.update(a)
	}
}

// gateways are what the routes stand on: the neighbours and, for people who look, a route of IPv4's gateway.
func (r *Routes) gateways() {
	four, six := r.enabled && r.node.IPv4.IsValid(), r.enabled && r.node.IPv6.IsValid()
	r.neighbour(Gateway4, four)
	r.neighbour(Gateway6, six)
	r.set(netip.PrefixFrom(Gateway4, 32), routetable.Route{Interface: InName}, four)
}

func (r *Routes) neighbour(a netip.Addr, wanted bool) {
	key := routetable.NeighbourKey{Interface: InName, Addr: a}
	have, there := r.neighs[key]
	switch {
	case wanted && (!there || have != r.mac):
		r.neighs[key] = r.mac
		r.delta.Neighbours = append(r.delta.Neighbours, routetable.Neighbour{NeighbourKey: key, MAC: r.mac})
	case !wanted && there:
		delete(r.neighs, key)
		r.delta.DeleteNeighbours = append(r.delta.DeleteNeighbours, key)
	}
}

// update decides about one address.
func (r *Routes) update(a netip.Addr) {
	route := routetable.Route{Interface: InName, Onlink: true, MTU: uint32(r.node.MTU)}
	if a.Is4() {
		route.Gateway, route.Source = Gateway4, r.node.IPv4
	} else {
		route.Gateway, route.Source = Gateway6, r.node.IPv6
	}
	wanted := r.enabled && r.uses[a] > 0 && route.Source.IsValid() && !r.own[a] && !special(a)
	r.set(netip.PrefixFrom(a, a.BitLen()), route, wanted)
}

func (r *Routes) set(dst netip.Prefix, route routetable.Route, wanted bool) {
	route.Dst = dst
	have, there := r.routes[dst]
	switch {
	case wanted && (!there || have != route):
		r.routes[dst] = route
		r.delta.Routes = append(r.delta.Routes, route)
	case !wanted && there:
		delete(r.routes, dst)
		r.delta.DeleteRoutes = append(r.delta.DeleteRoutes, dst)
	}
}

// special are addresses that are never routed: the wildcard that stands for other nodes' addresses, and what is no
// address of a service.
func special(a netip.Addr) bool {
	return a == services.Wildcard(model.FamilyOf(a)) || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast()
}

// RouteMTU is the MTU that routes to services need: what fits into the overlay and into pods, or 0 where the pair's own is
// no larger.
func RouteMTU(pair, pod, tunnel int) int {
	if m := min(pod, tunnel); m < pair {
		return m
	}
	return 0
}
