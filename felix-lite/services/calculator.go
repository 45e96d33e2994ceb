// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Calculator holds the services and their desired map entries. It is not safe for concurrent use.
//
// Life: New, Seed with what the maps hold, Apply while the sources bring their initial state
// (nothing is emitted, so that a half-known service never replaces a complete one), Synced, then
// Apply for every batch.
type Calculator struct {
	opts   Options
	zone   string
	synced bool

	entries map[model.ObjectName]*entry
	slices  map[model.ObjectName]*model.EndpointSlice
	addrs   addresses
	tables  [2]*table

	dirty []*entry // entries with work to do, each once
	delta Delta    // of the call in progress
	lists scratch
}

// entry is all that is known under one service's name: the Service, its slices, or both.
type entry struct {
	name   model.ObjectName
	svc    *model.Service
	slices []*model.EndpointSlice // ordered by name
	ports  [2][]*port
	// refused is what the service asked for and does not get, conflicts over frontends aside.
	refused []model.ObjectError

	queued bool // in Calculator.dirty
	// claimsDirty: which frontends it asks for may have changed; else only its endpoints have.
	claimsDirty bool
}

// New returns a Calculator without services.
func New(o Options) *Calculator {
	c := &Calculator{
		opts:    o,
		zone:    o.Zone,
		entries: map[model.ObjectName]*entry{},
		slices:  map[model.ObjectName]*model.EndpointSlice{},
		addrs:   newAddresses(),
	}
	for _, f := range model.Families {
		c.tables[f] = newTable(f)
	}
	return c
}

// Seed tells what the maps of one family hold, so that ids and list positions are kept over a
// restart. It must come before Synced.
func (c *Calculator) Seed(f model.Family, frontends []Frontend, backends []Backend) {
	if !c.synced {
		c.tables[f].seed(frontends, backends)
	}
}

// Apply takes changes in and returns what to do. Before Synced the Delta is empty. Changes of
// kinds that do not matter here are ignored.
func (c *Calculator) Apply(changes []model.Change) Delta {
	for _, ch := range changes {
		switch ch.Kind {
		case model.KindService:
			svc, _ := ch.Object.(*model.Service)
			c.setService(ch.Name, svc)
		case model.KindEndpointSlice:
			s, _ := ch.Object.(*model.EndpointSlice)
			c.setSlice(ch.Name, s)
		case model.KindNode:
			n, _ := ch.Object.(*model.Node)
			c.setNode(ch.Name.Name, n)
		case model.KindPod:
			p, _ := ch.Object.(*model.Pod)
			c.touch(c.addrs.setPod(ch.Name, p))
		}
	}
	return c.run()
}

// Synced ends the initial phase: all sources have brought their full state. The Delta turns the
// seeded maps into the desired ones, deletion of what nobody wants any more included.
func (c *Calculator) Synced() Delta {
	c.synced = true
	return c.run()
}

// SetOptions replaces the options: the node's addresses or zone, or the configuration, changed.
func (c *Calculator) SetOptions(o Options) Delta {
	old := c.opts
	c.opts = o
	if o.Zone != old.Zone {
		c.zone = o.Zone
	}
	endpoints := o.NodeName != old.NodeName || o.Zone != old.Zone
	nodePorts := o.NodePorts != old.NodePorts || !slices.Equal(o.NodePortCIDRs, old.NodePortCIDRs) ||
		!slices.Equal(o.Addresses, old.Addresses) || !slices.Equal(o.Primary, old.Primary)
	externals := o.ExternalIPs != old.ExternalIPs || !slices.Equal(o.AllowedExternalCIDRs, old.AllowedExternalCIDRs) ||
		!slices.Equal(o.ServiceCIDRs, old.ServiceCIDRs)
	for _, e := range c.entries {
		switch {
		case e.svc == nil:
		case nodePorts && hasNodePort(e.svc), externals && hasExternal(e.svc):
			c.mark(e, true)
		case endpoints:
			c.mark(e, false)
		}
	}
	return c.run()
}

func (c *Calculator) setService(name model.ObjectName, svc *model.Service) {
	e := c.entry(name)
	c.touch(c.addrs.setService(e, svc))
	e.svc = svc
	c.mark(e, true)
}

func (c *Calculator) setSlice(name model.ObjectName, s *model.EndpointSlice) {
	if old := c.slices[name]; old != nil {
		e := c.entry(old.Service)
		if i, ok := e.findSlice(name); ok {
			e.slices = slices.Delete(e.slices, i, i+1)
		}
		c.mark(e, false)
		delete(c.slices, name)
	}
	if s == nil || s.Service.Name == "" {
		return
	}
	e := c.entry(s.Service)
	i, _ := e.findSlice(name)
	e.slices = slices.Insert(e.slices, i, s)
	c.slices[name] = s
	c.mark(e, false)
}

func (c *Calculator) setNode(name string, n *model.Node) {
	c.touch(c.addrs.setNode(name, n))
	// A Node object that vanishes, or has lost its label, does not move this node out of its zone.
	if name != c.opts.NodeName || n == nil || n.Zone == "" || n.Zone == c.zone {
		return
	}
	c.zone = n.Zone
	for _, e := range c.entries {
		c.mark(e, false)
	}
}

func (e *entry) findSlice(name model.ObjectName) (int, bool) {
	return slices.BinarySearchFunc(e.slices, name, func(s *model.EndpointSlice, n model.ObjectName) int {
		return s.Name.Compare(n)
	})
}

func (c *Calculator) entry(name model.ObjectName) *entry {
	e := c.entries[name]
	if e == nil {
		e = &entry{name: name}
		c.entries[name] = e
	}
	return e
}

func (c *Calculator) mark(e *entry, claims bool) {
	e.claimsDirty = e.claimsDirty || claims
	if !e.queued {
		e.queued = true
		c.dirty = append(c.dirty, e)
	}
}

// touch marks services whose external addresses must be judged again.
func (c *Calculator) touch(users []*entry) {
	for _, e := range users {
		c.mark(e, true)
	}
}

// run does the work that is due, in three steps: who owns which frontend, which backends stand
// behind a service port, what a frontend's entry says. Each step's changes lead to the next's.
func (c *Calculator) run() Delta {
	if !c.synced {
		return Delta{}
	}
	c.delta = Delta{}
	// The order decides only how new ids are given out; with it equal inputs give equal maps.
	slices.SortFunc(c.dirty, func(a, b *entry) int { return a.name.Compare(b.name) })
	for _, e := range c.dirty {
		if e.claimsDirty {
			c.updateClaims(e)
		}
	}
	for _, t := range c.tables {
		c.electOwners(t)
		for _, e := range c.dirty {
			for _, p := range e.ports[t.family] {
				t.queueLists(p)
			}
		}
		for _, p := range t.listQueue {
			c.updateLists(t, p)
		}
		c.emitFrontends(t)
		c.dropSeeds(t)
		t.settle()
	}
	for _, e := range c.dirty {
		e.queued, e.claimsDirty = false, false
		if e.svc == nil && len(e.slices) == 0 {
			delete(c.entries, e.name)
		}
	}
	c.dirty = c.dirty[:0]
	d := c.delta
	c.delta = Delta{}
	return d
}

// Problems returns all that stands in the way of programming the services as they ask, ordered by
// service.
func (c *Calculator) Problems() []model.ObjectError {
	var out []model.ObjectError
	for _, e := range c.entries {
		out = append(out, e.refused...)
		for _, ports := range e.ports {
			for _, p := range ports {
				for _, problem := range p.lost {
					out = append(out, problem)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b model.ObjectError) int {
		return cmp.Or(a.Name.Compare(b.Name), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return out
}
