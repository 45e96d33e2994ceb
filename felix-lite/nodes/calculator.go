// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Calculator holds nodes and local endpoints and the routes that follow from them. It is not safe
// for concurrent use.
type Calculator struct {
	opts Options

	own       *model.Node // as last known, nil if never seen
	ownGone   bool
	hostAddrs []netip.Addr
	remote    map[string]*model.Node
	endpoints map[string]LocalEndpoint

	ids    nodeIDs
	owners map[ownerID]*owner
	table  table
	delta  Delta
	began  bool // the static entries have been emitted
}

// ownerID names what claims belong to: a node, an endpoint, or this node's interfaces.
type ownerID struct {
	kind model.Kind
	name string
}

// owner is one object's claims and what is wrong with it apart from them.
type owner struct {
	claims   []*claim
	problems []model.ObjectError
}

// New returns a Calculator that knows nothing yet.
func New(o Options) *Calculator {
	c := &Calculator{
		opts:      o,
		remote:    map[string]*model.Node{},
		endpoints: map[string]LocalEndpoint{},
		ids:       newNodeIDs(),
		owners:    map[ownerID]*owner{},
		table:     newTable(),
	}
	c.claimExclusions()
	return c
}

// Seed tells the routes that the maps hold, so that node ids are kept over a restart. It must come
// before the first change.
func (c *Calculator) Seed(routes []Route) {
	for _, r := range routes {
		if r.Value.NodeID == 0 {
			continue
		}
		if r.Value.Flags&HostAddr != 0 && r.Prefix.IsSingleIP() {
			c.ids.seeded[r.Prefix.Addr()] = r.Value.NodeID
		}
		c.ids.reserve(r.Value.NodeID)
	}
}

// Apply takes changes of Nodes in and returns what to do; other kinds are ignored.
func (c *Calculator) Apply(changes []model.Change) Delta {
	var altered []string
	for _, ch := range changes {
		if ch.Kind != model.KindNode {
			continue
		}
		n, _ := ch.Object.(*model.Node)
		name := ch.Name.Name
		if name == c.opts.NodeName {
			c.setOwn(n)
			continue
		}
		if n == nil {
			delete(c.remote, name)
		} else {
			c.remote[name] = n
		}
		altered = append(altered, name)
	}
	for _, name := range altered {
		c.updateRemote(name)
	}
	return c.run()
}

// SetEndpoint adds or replaces a local endpoint, by its ID.
func (c *Calculator) SetEndpoint(e LocalEndpoint) Delta {
	c.endpoints[e.ID] = e
	c.updateEndpoint(e.ID)
	return c.run()
}

// DeleteEndpoint removes a local endpoint; an unknown one is no error.
func (c *Calculator) DeleteEndpoint(id string) Delta {
	delete(c.endpoints, id)
	c.updateEndpoint(id)
	return c.run()
}

// SetHostAddresses tells the addresses of this node's interfaces: all of them, whatever the Node
// object says, those of the uplinks first. Loopback, link-local and multicast ones are ignored.
func (c *Calculator) SetHostAddresses(addrs []netip.Addr) Delta {
	before := c.Own()
	c.hostAddrs = nil
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); c.usable(a) && !slices.Contains(c.hostAddrs, a) {
			c.hostAddrs = append(c.hostAddrs, a)
		}
	}
	c.updateOwn(before)
	return c.run()
}

// setOwn takes this node's Node object in. What it has lost since is kept: a node without address
// or pod range is a node that somebody is working on, not one that should stop.
func (c *Calculator) setOwn(n *model.Node) {
	before := c.Own()
	c.ownGone = n == nil
	if n == nil {
		return
	}
	merged := *n
	if c.own != nil {
		if len(c.usableAddresses(n)) == 0 {
			merged.Addresses = c.own.Addresses
		}
		if len(n.PodCIDRs) == 0 {
			merged.PodCIDRs = c.own.PodCIDRs
		}
		if n.Zone == "" {
			merged.Zone = c.own.Zone
		}
	}
	c.own = &merged
	c.updateOwn(before)
}

// Own returns what is known of this node.
func (c *Calculator) Own() OwnNode {
	o := OwnNode{Deleting: c.ownGone}
	if c.own != nil {
		o.IPv4, o.IPv6 = c.chosen(c.own, model.IPv4), c.chosen(c.own, model.IPv6)
		o.PodCIDRs = slices.Clone(c.own.PodCIDRs)
		o.Zone = c.own.Zone
		o.Deleting = c.ownGone || c.own.Deleting
	}
	// Without a Node object, or one without addresses: the first address of the uplinks will do.
	if !o.IPv4.IsValid() && !o.IPv6.IsValid() {
		for _, a := range c.hostAddrs {
			if model.FamilyOf(a) == model.IPv4 && !o.IPv4.IsValid() {
				o.IPv4 = a
			} else if model.FamilyOf(a) == model.IPv6 && !o.IPv6.IsValid() {
				o.IPv6 = a
			}
		}
	}
	o.Underlay, o.UnderlayFamily = o.IPv4, model.IPv4
	if c.opts.Underlay == UnderlayIPv6 || (c.opts.Underlay != UnderlayIPv4 && !o.IPv4.IsValid() && o.IPv6.IsValid()) {
		o.Underlay, o.UnderlayFamily = o.IPv6, model.IPv6
	}
	return o
}

// run compares what has changed with what was last emitted.
func (c *Calculator) run() Delta {
	if !c.began && c.opts.Overlay != OverlayDirect {
		c.delta.Neighbours = append(c.delta.Neighbours, c.gateways()...)
	}
	c.began = true
	c.table.emit(&c.delta)
	d := c.delta
	c.delta = Delta{}
	return d
}

// gateways are the neighbours that kernel routes into the tunnel point at.
func (c *Calculator) gateways() []Neighbour {
	var out []Neighbour
	if c.opts.IPv4 {
		out = append(out, Neighbour{NeighbourKey{TunnelInterface, TunnelGateway4}, TunnelMAC})
	}
	if c.opts.IPv6 {
		out = append(out, Neighbour{NeighbourKey{TunnelInterface, TunnelGateway6}, TunnelMAC})
	}
	return out
}

// setClaims replaces an owner's claims and problems.
func (c *Calculator) setClaims(id ownerID, claims []*claim, problems []model.ObjectError) {
	old := c.owners[id]
	if old == nil {
		old = &owner{}
	}
	for _, p := range problems {
		if !slices.Contains(old.problems, p) {
			c.delta.Problems = append(c.delta.Problems, p)
		}
	}
	// A claim that stays as it was keeps its place, and its prefix is not looked at.
	kept := claims[:0:0]
	for _, cl := range claims {
		if i := slices.IndexFunc(old.claims, cl.same); i >= 0 {
			kept = append(kept, old.claims[i])
			continue
		}
		kept = append(kept, cl)
		c.table.add(cl)
	}
	for _, cl := range old.claims {
		if !slices.Contains(kept, cl) {
			c.table.remove(cl)
		}
	}
	if len(kept) == 0 && len(problems) == 0 {
		delete(c.owners, id)
		return
	}
	c.owners[id] = &owner{kept, problems}
}

// Routes iterates over the desired route map of a family.
func (c *Calculator) Routes(f model.Family) iter.Seq2[netip.Prefix, RouteValue] {
	return func(yield func(netip.Prefix, RouteValue) bool) {
		for p, s := range c.table.slots {
			if s.winner != nil && model.FamilyOf(p.Addr()) == f && !yield(p, s.winner.route) {
				return
			}
		}
	}
}

// KernelRoutes iterates over the desired kernel routes of both families.
func (c *Calculator) KernelRoutes() iter.Seq2[netip.Prefix, KernelRoute] {
	return func(yield func(netip.Prefix, KernelRoute) bool) {
		for p, s := range c.table.slots {
			if s.winner != nil && s.winner.kernel != nil && !yield(p, *s.winner.kernel) {
				return
			}
		}
	}
}

// Neighbours iterates over the desired neighbour entries.
func (c *Calculator) Neighbours() iter.Seq2[NeighbourKey, model.MAC] {
	return func(yield func(NeighbourKey, model.MAC) bool) {
		if c.opts.Overlay != OverlayDirect {
			for _, n := range c.gateways() {
				if !yield(n.NeighbourKey, n.MAC) {
					return
				}
			}
		}
		for _, s := range c.table.slots {
			if s.winner != nil && s.winner.neighbour != nil && !yield(s.winner.neighbour.NeighbourKey, s.winner.neighbour.MAC) {
				return
			}
		}
	}
}

// Problems returns all that stands in the way of programming nodes and endpoints as they ask,
// ordered by object.
func (c *Calculator) Problems() []model.ObjectError {
	var out []model.ObjectError
	for _, o := range c.owners {
		out = append(out, o.problems...)
		for _, cl := range o.claims {
			if cl.beatenBy != nil {
				out = append(out, cl.problem())
			}
		}
	}
	slices.SortFunc(out, func(a, b model.ObjectError) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Name.Compare(b.Name), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// nodeIDs gives out ids of remote nodes, by name; ids found in the maps go to the nodes whose
// address they stood at.
type nodeIDs struct {
	byName map[string]uint32
	used   map[uint32]struct{}
	seeded map[netip.Addr]uint32
	taken  map[uint32]string // seeded ids that have found their node
	last   uint32
}

func newNodeIDs() nodeIDs {
	return nodeIDs{byName: map[string]uint32{}, used: map[uint32]struct{}{}, seeded: map[netip.Addr]uint32{}, taken: map[uint32]string{}}
}

func (s *nodeIDs) reserve(id uint32) {
	s.used[id] = struct{}{}
	s.last = max(s.last, id)
}

func (s *nodeIDs) of(n *model.Node) uint32 {
	if id, ok := s.byName[n.Name]; ok {
		return id
	}
	for _, a := range n.Addresses {
		if id, ok := s.seeded[a.Addr]; ok && s.taken[id] == "" {
			s.taken[id] = n.Name
			s.byName[n.Name] = id
			return id
		}
	}
	for {
		s.last++
		if _, taken := s.used[s.last]; !taken && s.last != 0 {
			s.used[s.last] = struct{}{}
			s.byName[n.Name] = s.last
			return s.last
		}
	}
}

func (s *nodeIDs) release(name string) {
	if id, ok := s.byName[name]; ok {
		delete(s.byName, name)
		delete(s.used, id)
	}
}
