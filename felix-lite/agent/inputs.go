// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/nodes"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/routetable"
)

// onObjects takes in what a source says.
func (a *Agent) onObjects(b model.Batch) {
	a.problems.replace(b.Changes, b.Errors, a.log)
	for _, c := range b.Changes {
		switch c.Kind {
		case model.KindNode:
			if c.Name.Name == a.cfg.NodeName {
				a.onOwnNode(c)
			}
		case model.KindService:
			a.state.dirty = true // names belong to services; their endpoints change far more often
		case model.KindEndpointSlice:
			if s, ok := c.Object.(*model.EndpointSlice); ok && a.sourceSynced && !s.Triggered.IsZero() {
				a.triggered = append(a.triggered, s.Triggered)
			}
		}
	}
	a.sockets.Objects(b.Changes)
	a.onNodes(a.nodes.Apply(b.Changes))
	delta := a.services.Apply(b.Changes)
	a.logProblems(delta.Problems)
	a.tables.services(delta)
	a.onHostRoutes(a.fallback.routes.Services(delta))
	if b.Synced && !a.sourceSynced {
		a.sourceSynced = true
		// The seeded ids and places turn into desired entries; from here on changes are enough.
		a.logProblems(a.services.Synced().Problems)
		a.tables.replaceServices(a.services)
		a.onHostRoutes(a.fallback.routes.Replace(a.frontends()))
		a.state.dirty = true
		a.log.Debug("source synced")
	}
}

// frontends are the desired ones of both families.
func (a *Agent) frontends() iter.Seq2[services.FrontendKey, services.FrontendValue] {
	return func(yield func(services.FrontendKey, services.FrontendValue) bool) {
		for _, f := range model.Families {
			for k, v := range a.services.Frontends(f) {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

func (a *Agent) logProblems(errs []model.ObjectError) {
	for _, e := range errs {
		a.log.WithField("object", e.Name.String()).Warn(e.Error())
	}
}

// onOwnNode keeps the addresses of this node's object. What was last known stays when it goes, or
// comes without any: the node must not be cut off by that.
func (a *Agent) onOwnNode(c model.Change) {
	n, ok := c.Object.(*model.Node)
	if !ok || len(n.Addresses) == 0 {
		return
	}
	addrs := make([]netip.Addr, 0, len(n.Addresses))
	for _, na := range n.Addresses {
		addrs = append(addrs, na.Addr)
	}
	if !slices.Equal(addrs, a.view.NodeAddresses) {
		a.view.NodeAddresses = addrs
		a.endpoints.Reclassify()
	}
}

// onNodes takes in what the node calculator wants changed.
func (a *Agent) onNodes(d nodes.Delta) {
	a.logProblems(d.Problems)
	a.tables.nodes(d)
	for _, n := range d.Neighbours {
		a.refuseKernel(a.kernel.SetNeighbour(routetable.Neighbour{
			NeighbourKey: routetable.NeighbourKey(n.NeighbourKey), MAC: routetable.MAC(n.MAC)}))
	}
	for _, r := range d.KernelRoutes {
		a.refuseKernel(a.kernel.SetRoute(routetable.Route{Dst: r.Dst, Interface: r.Interface, Gateway: r.Gateway, Onlink: r.Onlink,
			Unreachable: r.Unreachable}))
	}
	for _, dst := range d.DeleteKernel {
		a.kernel.DeleteRoute(dst)
	}
	for _, k := range d.DeleteNeighbours {
		a.kernel.DeleteNeighbour(routetable.NeighbourKey(k))
	}
	a.sizesDirty = true
}

func (a *Agent) refuseKernel(err error) {
	if err != nil {
		a.log.WithError(err).Error("route can not be used")
	}
}

// onLinks takes in what the link monitor says.
func (a *Agent) onLinks(b endpoints.LinkBatch) {
	if b.Full {
		clear(a.links)
		clear(a.view.Links)
	}
	for _, l := range b.Links {
		a.links[l.Index], a.view.Links[l.Index] = l, classifiable(l)
	}
	for _, index := range b.Removed {
		delete(a.links, index)
		delete(a.view.Links, index)
	}
	defaults := !slices.Equal(a.view.DefaultRoutes, b.Defaults)
	a.view.DefaultRoutes = b.Defaults
	a.endpoints.OnLinks(b)
	if defaults {
		a.endpoints.Reclassify()
	}
	a.tunnel.onLinks(a.links)
	a.fallback.onLinks(a.links)
	a.updateHostAddresses()
	a.sizesDirty = true
}

// updateHostAddresses tells the calculators the addresses of this node's interfaces. Workload
// interfaces have none of the node's.
func (a *Agent) updateHostAddresses() {
	seen := map[netip.Addr]bool{}
	for _, l := range a.links {
		if a.cfg.WorkloadInterfacePattern.MatchString(l.Name) {
			continue
		}
		for _, p := range l.Addrs {
			seen[p.Addr()] = true
		}
	}
	addrs := slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare)
	if slices.Equal(addrs, a.hostAddrs) {
		return
	}
	a.hostAddrs = addrs
	a.onNodes(a.nodes.SetHostAddresses(addrs))
}

// updateSizes brings what follows from the node's own addresses and uplinks up to date.
func (a *Agent) updateSizes() {
	if !a.sizesDirty {
		return
	}
	a.sizesDirty = false
	own := a.nodes.Own()
	a.sizes = a.mtus()
	a.tunnel.want(a.sizes.tunnel)
	a.updateHostNode()
	a.ensureNetfilter()
	a.adviseNode()
	next := a.svcOptions
	next.Addresses, next.Zone, next.Primary = a.hostAddrs, own.Zone, nil
	for _, p := range []netip.Addr{own.IPv4, own.IPv6} {
		if p.IsValid() {
			next.Primary = append(next.Primary, p)
		}
	}
	if slices.Equal(next.Addresses, a.svcOptions.Addresses) && slices.Equal(next.Primary, a.svcOptions.Primary) &&
		next.Zone == a.svcOptions.Zone {
		return
	}
	a.svcOptions = next
	delta := a.services.SetOptions(next)
	a.logProblems(delta.Problems)
	a.tables.services(delta)
	a.onHostRoutes(a.fallback.routes.Services(delta))
}

// mtus are the sizes by the smallest MTU of the uplinks.
func (a *Agent) mtus() mtus {
	uplink := 0
	for _, index := range interfaces.Uplinks(a.view, a.patterns()) {
		if mtu := a.view.Links[index].MTU; uplink == 0 || mtu < uplink {
			uplink = mtu
		}
	}
	return mtusOf(uplink, a.nodes.Own().UnderlayFamily == model.IPv6, &a.cfg)
}

func classifiable(l endpoints.Link) interfaces.Link {
	return interfaces.Link{Index: l.Index, Name: l.Name, Kind: l.Kind, Ethernet: l.Ethernet, Loopback: l.Loopback, Up: l.Up,
		MAC: l.MAC, MTU: l.MTU, Master: l.Master, Parent: l.Parent, Addresses: l.Addrs}
}

func (a *Agent) patterns() interfaces.Config {
	return interfaces.Config{Workload: a.cfg.WorkloadInterfacePattern, Uplink: a.cfg.UplinkInterfacePattern,
		L3: a.cfg.L3InterfacePattern}
}

// classify is the endpoint manager's question. lo and bpfout.cali carry programs only while this host's
// traffic needs them: all local traffic of the node would pass by lo's.
func (a *Agent) classify(l endpoints.Link) (layout.Class, bool) {
	class := interfaces.Classify(classifiable(l), a.view, a.patterns())
	switch {
	case class == interfaces.Loopback && !a.fallback.active(), class == interfaces.NAT && l.Index != a.fallback.pair.Out:
		return 0, false
	}
	n, ok := class.Number()
	return layout.Class(n), ok
}
