// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/nodes"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// tables are the reconciled BPF tables: what services and nodes want, against what the maps hold.
type tables struct {
	frontends *reconcile.Table[maps.FrontendKey, layout.FEValue]
	backends  *reconcile.Table[maps.BackendKey, maps.Backend]
	routes    *reconcile.Table[netip.Prefix, maps.Route]

	// held are the service ports with a backend that could not be written: a frontend must not
	// promise more backends than there are.
	held map[heldKey]bool
}

type heldKey struct {
	family layout.Family
	svcID  uint32
}

// tableOps is what the tables write to; the maps of a Set, or a test's.
type tableOps struct {
	frontends reconcile.Operations[maps.FrontendKey, layout.FEValue]
	backends  reconcile.Operations[maps.BackendKey, maps.Backend]
	routes    reconcile.Operations[netip.Prefix, maps.Route]
}

func newTables(ops tableOps) *tables {
	t := &tables{held: map[heldKey]bool{}}
	t.backends = reconcile.New(ops.backends, reconcile.Options[maps.Backend]{Equal: same[maps.Backend]})
	t.frontends = reconcile.New[maps.FrontendKey, layout.FEValue](&guarded{ops.frontends, t},
		reconcile.Options[layout.FEValue]{Equal: same[layout.FEValue]})
	t.routes = reconcile.New(ops.routes, reconcile.Options[maps.Route]{Equal: same[maps.Route]})
	return t
}

func same[V comparable](a, b V) bool { return a == b }

// guarded keeps frontends back whose backends are missing.
type guarded struct {
	reconcile.Operations[maps.FrontendKey, layout.FEValue]
	tables *tables
}

// Update writes the frontends that may be written; the others stay pending.
func (g *guarded) Update(ctx context.Context, batch []reconcile.Entry[maps.FrontendKey, layout.FEValue]) []error {
	if len(g.tables.held) == 0 {
		return g.Operations.Update(ctx, batch)
	}
	errs := make([]error, len(batch))
	var free []reconcile.Entry[maps.FrontendKey, layout.FEValue]
	var where []int
	for i, e := range batch {
		if g.tables.held[heldKey{layout.FamilyOf(e.Key.Addr), e.Value.SvcID}] {
			errs[i] = fmt.Errorf("backends of service port %d are not written: %w", e.Value.SvcID, reconcile.ErrPending)
			continue
		}
		free, where = append(free, e), append(where, i)
	}
	for j, err := range g.Operations.Update(ctx, free) {
		errs[where[j]] = err
	}
	return errs
}

// services takes in what the service calculator wants changed.
func (t *tables) services(d services.Delta) {
	for _, b := range d.Backends {
		t.backends.Set(backendKey(b.Key), backend(b.Value))
	}
	for _, f := range d.Frontends {
		t.frontends.Set(frontendKey(f.Key), frontend(f.Value))
	}
	for _, k := range d.DeleteFrontends {
		t.frontends.Delete(frontendKey(k))
	}
	for _, k := range d.DeleteBackends {
		t.backends.Delete(backendKey(k))
	}
}

// replaceServices makes the calculator's tables the whole desired state.
func (t *tables) replaceServices(c *services.Calculator) {
	t.backends.Replace(func(yield func(maps.BackendKey, maps.Backend) bool) {
		for _, f := range model.Families {
			for k, v := range c.Backends(f) {
				if !yield(backendKey(k), backend(v)) {
					return
				}
			}
		}
	})
	t.frontends.Replace(func(yield func(maps.FrontendKey, layout.FEValue) bool) {
		for _, f := range model.Families {
			for k, v := range c.Frontends(f) {
				if !yield(frontendKey(k), frontend(v)) {
					return
				}
			}
		}
	})
}

// nodes takes in the part of the node calculator's changes that goes into maps.
func (t *tables) nodes(d nodes.Delta) {
	for _, r := range d.Routes {
		t.routes.Set(r.Prefix, route(r.Value))
	}
	for _, p := range d.DeleteRoutes {
		t.routes.Delete(p)
	}
}

// allowPrune lets the tables delete what nobody wants.
func (t *tables) allowPrune() {
	t.frontends.AllowPrune()
	t.backends.AllowPrune()
	t.routes.AllowPrune()
}

// applyResult is what one pass over the tables did.
type applyResult struct {
	frontends, backends, routes reconcile.Result
}

// apply writes everything that is due, in the order in which a packet may look at it: backends,
// frontends, routes, and then what is to go, the other way round.
func (t *tables) apply(ctx context.Context) applyResult {
	var r applyResult
	r.backends = t.backends.ApplyUpdates(ctx)
	t.hold()
	r.frontends = t.frontends.ApplyUpdates(ctx)
	r.routes = t.routes.Apply(ctx)
	r.frontends = r.frontends.Add(t.frontends.ApplyDeletes(ctx))
	// A backend may only go when no frontend counts it any more.
	if c := t.frontends.Counts(); c.Failed == 0 && c.Pending == 0 {
		r.backends = r.backends.Add(t.backends.ApplyDeletes(ctx))
	}
	return r
}

// hold finds the service ports whose backends were refused. It costs a walk only while there are any.
func (t *tables) hold() {
	before := len(t.held)
	clear(t.held)
	if c := t.backends.Counts(); c.Failed == 0 {
		if before > 0 {
			t.releaseHeld()
		}
		return
	}
	for k, s := range t.backends.All() {
		if s.Phase == reconcile.Failed && !s.Delete {
			t.held[heldKey{k.Family, k.SvcID}] = true
		}
	}
}

// releaseHeld tries frontends that were kept back at once.
func (t *tables) releaseHeld() {
	var waiting []maps.FrontendKey
	for k, s := range t.frontends.All() {
		if s.Phase == reconcile.Pending && s.Attempts > 0 {
			waiting = append(waiting, k)
		}
	}
	for _, k := range waiting {
		t.frontends.Retry(k)
	}
}

// drift is what a comparison with the kernel found changed by others, by table.
type drift map[string]reconcile.Drift

// resync reads all maps again; the next apply repairs what differs.
func (t *tables) resync(ctx context.Context) (drift, error) {
	d := drift{}
	var err error
	if d["backends"], err = t.backends.Resync(ctx); err != nil {
		return nil, fmt.Errorf("backends: %w", err)
	}
	if d["frontends"], err = t.frontends.Resync(ctx); err != nil {
		return nil, fmt.Errorf("frontends: %w", err)
	}
	if d["routes"], err = t.routes.Resync(ctx); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return d, nil
}

// counts are the tables' figures, by table.
func (t *tables) counts() map[string]reconcile.Counts {
	return map[string]reconcile.Counts{
		"frontends": t.frontends.Counts(), "backends": t.backends.Counts(), "routes": t.routes.Counts(),
	}
}

func frontendKey(k services.FrontendKey) maps.FrontendKey {
	return maps.FrontendKey{Addr: k.Addr, Port: k.Port, Proto: uint8(k.Proto)}
}

func frontend(v services.FrontendValue) layout.FEValue {
	return layout.FEValue{SvcID: v.ServiceID, Flags: uint32(v.Flags), AffinityTimeout: v.AffinityTimeout,
		ClusterCount: v.ClusterCount, LocalCount: v.LocalCount}
}

func frontendFrom(k maps.FrontendKey, v layout.FEValue) services.Frontend {
	return services.Frontend{
		Key: services.FrontendKey{Addr: k.Addr, Port: k.Port, Proto: model.Protocol(k.Proto)},
		Value: services.FrontendValue{ServiceID: v.SvcID, Flags: services.Flags(v.Flags), AffinityTimeout: v.AffinityTimeout,
			ClusterCount: v.ClusterCount, LocalCount: v.LocalCount},
	}
}

func backendKey(k services.BackendKey) maps.BackendKey {
	return maps.BackendKey{Family: layout.Family(k.Family), SvcID: k.ServiceID, Ordinal: k.Ordinal}
}

func backend(v services.BackendValue) maps.Backend {
	return maps.Backend{Addr: v.Addr, Port: v.Port, Weight: v.Weight, ID: v.ID, Flags: v.Flags}
}

func backendFrom(k maps.BackendKey, v maps.Backend) services.Backend {
	return services.Backend{
		Key:   services.BackendKey{Family: model.Family(k.Family), ServiceID: k.SvcID, Ordinal: k.Ordinal},
		Value: services.BackendValue{Addr: v.Addr, Port: v.Port, Weight: v.Weight, ID: v.ID, Flags: v.Flags},
	}
}

func route(v nodes.RouteValue) maps.Route {
	return maps.Route{Flags: layout.RouteFlag(v.Flags) &^ layout.RTNextHopV6, Ifindex: v.Ifindex, NodeID: v.NodeID,
		EPSlot: v.EndpointSlot, NextHop: v.NextHop}
}

func routeFrom(p netip.Prefix, r maps.Route) nodes.Route {
	flags := nodes.Flags(r.Flags)
	if r.NextHop.Is6() {
		flags |= nodes.NextHopV6
	}
	return nodes.Route{Prefix: p, Value: nodes.RouteValue{Flags: flags, Ifindex: r.Ifindex, EndpointSlot: r.EPSlot,
		NodeID: r.NodeID, NextHop: r.NextHop}}
}
