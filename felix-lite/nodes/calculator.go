// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"iter"
	"net/netip"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Calculator holds nodes and local endpoints and the routes that follow from them. It is not safe
// for concurrent use.
type Calculator struct {
}

// New returns a Calculator that knows nothing yet.
func New(o Options) *Calculator { return &Calculator{} }

// Seed tells the routes that the map of one family holds, so that node ids are kept over a
// restart. It must come before the first change.
func (c *Calculator) Seed(routes []Route) {}

// Apply takes changes of Nodes in and returns what to do; other kinds are ignored.
func (c *Calculator) Apply(changes []model.Change) Delta { return Delta{} }

// SetEndpoint adds or replaces a local endpoint, by its ID.
func (c *Calculator) SetEndpoint(e LocalEndpoint) Delta { return Delta{} }

// DeleteEndpoint removes a local endpoint; an unknown one is no error.
func (c *Calculator) DeleteEndpoint(id string) Delta { return Delta{} }

// SetHostAddresses tells the addresses of this node's interfaces (all of them, whatever the Node
// object says). Loopback, link-local and multicast ones are ignored.
func (c *Calculator) SetHostAddresses(addrs []netip.Addr) Delta { return Delta{} }

// Own returns what is known of this node.
func (c *Calculator) Own() OwnNode { return OwnNode{} }

// Routes iterates over the desired route map of a family.
func (c *Calculator) Routes(f model.Family) iter.Seq2[netip.Prefix, RouteValue] {
	return func(func(netip.Prefix, RouteValue) bool) {}
}

// KernelRoutes iterates over the desired kernel routes of both families.
func (c *Calculator) KernelRoutes() iter.Seq2[netip.Prefix, KernelRoute] {
	return func(func(netip.Prefix, KernelRoute) bool) {}
}

// Neighbours iterates over the desired neighbour entries.
func (c *Calculator) Neighbours() iter.Seq2[NeighbourKey, model.MAC] {
	return func(func(NeighbourKey, model.MAC) bool) {}
}

// Problems returns all that stands in the way of programming nodes and endpoints as they ask.
func (c *Calculator) Problems() []model.ObjectError { return nil }
