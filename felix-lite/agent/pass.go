// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/nodes"
	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/routetable"
)

// ensureTunnel repairs the overlay's device.
func (a *Agent) ensureTunnel() {
	a.updateSizes()
	if a.tunnel.ensure() {
		a.epochDue = true
	}
}

// routeWorkloads tells the node calculator which local workloads may be routed to.
func (a *Agent) routeWorkloads() {
	usable, gone := a.endpoints.Changed()
	for _, w := range usable {
		a.onNodes(a.nodes.SetEndpoint(localEndpoint(w)))
	}
	for _, id := range gone {
		a.onNodes(a.nodes.DeleteEndpoint(id))
	}
}

func localEndpoint(w endpoints.Workload) nodes.LocalEndpoint {
	return nodes.LocalEndpoint{
		WorkloadEndpoint: &model.WorkloadEndpoint{ID: w.ID, Pod: model.ObjectName{Namespace: w.Pod.Namespace, Name: w.Pod.Name},
			PodUID: w.Pod.UID, HostInterface: w.Interface, PodMAC: model.MAC(w.MAC), Addresses: w.Addresses},
		Ifindex: uint32(w.Ifindex), Slot: w.EPSlot,
	}
}

// allowPrune ends the time in which nothing is deleted: every source has told all it has, and what
// the interfaces of this node need has been tried once.
func (a *Agent) allowPrune() {
	if a.pruning || !a.sourceSynced || !a.endpoints.Synced() {
		return
	}
	a.pruning = true
	a.tables.allowPrune()
	a.kernel.AllowPrune()
	a.sockets.AllowPrune()
	a.log.Debug("all sources synced: what nobody wants is deleted from now on")
}

// applyTables writes the BPF maps.
func (a *Agent) applyTables(ctx context.Context) {
	r := a.tables.apply(ctx)
	if r.routes.Updated+r.routes.Deleted > 0 {
		a.epochDue = true
	}
	for _, table := range a.tables.attempts(r) {
		a.report(table)
	}
	failed := r.frontends.Failed + r.backends.Failed
	if len(a.triggered) > 0 && failed == 0 {
		now := a.now()
		for _, at := range a.triggered {
			a.metrics.programming.Observe(max(0, now.Sub(at).Seconds()))
		}
		a.triggered = a.triggered[:0]
	}
}

// applyKernel writes the kernel's routes and neighbours.
func (a *Agent) applyKernel(ctx context.Context) {
	a.report(a.kernelAttempt(a.kernel.Apply(ctx)))
}

// report counts every refusal, and logs what is new about them.
func (a *Agent) report(at attempt) {
	n := at.result.Failed
	if at.result.Err != nil && n == 0 {
		n = 1
	}
	if n > 0 {
		a.metrics.reconcileErrors.WithLabelValues(at.table).Add(float64(n))
		if m := mapOf(at.table); m != "" {
			a.metrics.mapErrors.WithLabelValues(m).Add(float64(n))
		}
	}
	a.refusals.note(at, a.log)
}

// mapOf names the map behind a table, for metrics; the two families count as one.
func mapOf(table string) string {
	switch table {
	case "frontends":
		return "nat_fe3"
	case "backends":
		return "nat_be"
	case "routes":
		return "routes"
	}
	return ""
}

// routed reports what of a workload's routes is not in place.
func (a *Agent) routed(w endpoints.Workload) error {
	if !a.programs.active[layout.ClassWEP] {
		return errors.New("the datapath's programs are not loaded")
	}
	for _, addr := range w.Addresses {
		if !a.familyEnabled(addr) {
			continue
		}
		dst := netip.PrefixFrom(addr, addr.BitLen())
		s, ok := a.tables.routes.Status(dst)
		if err := inPlace("route entry "+dst.String(), s, ok); err != nil {
			return err
		}
		s, ok = a.kernel.RouteStatus(dst)
		if err := inPlace("route "+dst.String(), s, ok); err != nil {
			return err
		}
		key := routetable.NeighbourKey{Interface: w.Interface, Addr: addr}
		s, ok = a.kernel.NeighbourStatus(key)
		if err := inPlace("neighbour "+key.String(), s, ok); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) familyEnabled(addr netip.Addr) bool {
	if addr.Is4() {
		return a.cfg.IPv4Enabled
	}
	return a.cfg.IPv6Enabled
}

func inPlace(what string, s reconcile.Status, known bool) error {
	switch {
	case !known:
		return fmt.Errorf("%s: not asked for yet", what)
	case s.Phase == reconcile.Done && !s.Delete:
		return nil
	case s.Err != nil:
		return fmt.Errorf("%s: %w", what, s.Err)
	}
	return fmt.Errorf("%s: %s", what, s.Phase)
}

// writeGlobals brings the one value that programs read for every packet up to date.
func (a *Agent) writeGlobals() {
	jiffies := uint64(0)
	var natIn, natOut uint32
	err := a.maps.Globals.Change(func(g *layout.Globals) {
		own := a.nodes.Own()
		m, natOutBefore := a.sizes, g.NatoutIfindex
		natIn, natOut = a.natInterfaces(g)
		globals{
			tunnelIfindex: uint32(a.tunnel.ifindex), tunnelMTU: uint32(m.tunnel), podMTU: uint16(m.pod),
			natIn: natIn, natOut: natOut, host4: own.IPv4, host6: own.IPv6,
			underlay6: own.UnderlayFamily == model.IPv6 && own.Underlay.IsValid(), sockets: a.sockets.Balancing(), cfg: &a.cfg,
		}.write(g)
		if g.AdoptionEnd == 0 {
			// The very first start on this node; later ones keep it.
			var err error
			if jiffies, err = a.clock.Jiffies(); err == nil {
				g.AdoptionEnd = jiffies + max(1, a.clock.ToJiffies(a.cfg.AdoptionWindow))
			}
		}
		if a.epochDue || g.NatoutIfindex != natOutBefore {
			g.RouteEpoch++ // flows find their way anew
		}
	})
	if err != nil {
		a.metrics.mapErrors.WithLabelValues("globals2").Inc()
		if a.globalsErr == nil {
			a.log.WithError(err).Error("globals could not be written, trying again")
		}
	} else {
		a.epochDue, a.fallback.told = false, int(natOut)
	}
	a.globalsErr = err
}

// sweep lets the conntrack sweeper work for its budget where that is due.
func (a *Agent) sweep() {
	if a.now().Before(a.sweeper.Next()) {
		return
	}
	_, err := a.sweeper.Step()
	if err != nil && (a.sweepErr == nil || a.sweepErr.Error() != err.Error()) {
		a.log.WithError(err).Warn("conntrack could not be swept")
	}
	a.sweepErr = err
}

// resync compares everything with the kernel, every resync interval.
func (a *Agent) resync(ctx context.Context) {
	now := a.now()
	first := a.resyncAt.IsZero()
	if now.Before(a.resyncAt) {
		return
	}
	a.resyncAt = now.Add(a.cfg.ResyncInterval)
	if err := a.dataplane.attacher.CleanStale(); err != nil {
		a.log.WithError(err).Warn("pins of vanished interfaces are left behind")
	}
	a.adviceDue = true
	if first {
		return // the tables read everything before their first write
	}
	d, err := a.tables.resync(ctx)
	if err != nil {
		a.log.WithError(err).Warn("maps could not be compared with what they should hold")
	}
	for table, x := range d {
		a.logDrift(table, x)
	}
	x, err := a.kernel.Resync(ctx)
	if err != nil {
		a.log.WithError(err).Warn("kernel routes could not be compared with what they should be")
	}
	a.logDrift("kernel_routes", x)
	a.sockets.Resync()
	a.endpoints.Resync()
	a.tunnel.dirty, a.fallback.dirty, a.netfilter.dirty = true, true, true
	a.sizesDirty = true
}

func (a *Agent) logDrift(table string, d reconcile.Drift) {
	if d.Total() > 0 {
		a.log.WithFields(logrus.Fields{"table": table, "missing": d.Missing, "changed": d.Changed, "extra": d.Extra}).
			Warn("entries were changed by somebody else, repairing them")
	}
}

// publish tells people what the loop knows: health, metrics, names.
func (a *Agent) publish() {
	h := a.health.set(a.conditions())
	a.metrics.ready.Set(one(h.Ready))
	for _, c := range h.Conditions {
		a.metrics.condition.WithLabelValues(c.Name).Set(one(c.OK))
	}
	if h.Ready != a.wasReady {
		a.wasReady = h.Ready
		if h.Ready {
			a.log.WithField("after", a.now().Sub(a.started).Round(time.Millisecond).String()).Info("ready")
		} else {
			a.log.WithField("reasons", reasons(h.Conditions)).Warn("not ready")
		}
	}
	a.metrics.snapshot.Store(a.snapshot())
	a.noteSockets()
	a.state.write(a)
}
