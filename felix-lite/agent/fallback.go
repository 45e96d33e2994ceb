// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/internal/backoff"
	"github.com/felix-lite/felix-lite/routetable"
)

// fallbackPhase is how far the fallback for this host's own traffic is up or down.
type fallbackPhase uint8

const (
	fallbackOff      fallbackPhase = iota // nothing is there
	fallbackOn                            // wanted
	fallbackDraining                      // not wanted any more, but this host has connections that need it
	fallbackLeaving                       // its routes go; then its programs and the pair
)

// fallback keeps bpfin.cali, bpfout.cali and their routes while host traffic needs them, and takes them away when the
// last connection that does has ended.
//
// The order is what makes it safe: pair, netfilter chains, programs on bpfout.cali and lo, cali_globals2, routes; and back the
// other way.
// A route without the programs behind it would send packets round until their TTL ends.
type fallback struct {
	handle *netlink.Handle
	log    *logrus.Entry
	now    func() time.Time

	phase   fallbackPhase
	since   time.Time // of the phase
	spec    hostnat.Spec
	pair    hostnat.Pair
	routes  *hostnat.Routes
	dirty   bool // the pair is to be looked at
	told    int  // index of bpfout.cali that cali_globals2 has
	fresh   bool // nobody has used it yet, and its netfilter chains were not looked at
	used    bool // this run has seen it in use
	failure error
	retry   backoff.Backoff
}

// newFallback looks whether an earlier run has left a pair: its connections are to be drained, should it not be wanted.
func newFallback(h *netlink.Handle, log *logrus.Entry, now func() time.Time) (*fallback, error) {
	f := &fallback{handle: h, log: log.WithField("component", "fallback"), now: now, spec: hostnat.Spec{MTU: fallbackMTU},
		routes: hostnat.NewRoutes(), dirty: true, since: now()}
	left, err := hostnat.Present(h)
	if left {
		f.phase = fallbackDraining
	}
	return f, err
}

func (f *fallback) enter(p fallbackPhase) {
	if f.phase != p {
		f.fresh = f.phase == fallbackOff
		f.phase, f.since, f.dirty = p, f.now(), true
	}
}

// active reports whether bpfout.cali and lo are to carry programs.
func (f *fallback) active() bool { return f.phase != fallbackOff && f.pair.Out != 0 }

// chainsLimit is how long a new pair waits for its netfilter chains, which are there in less than a second, or in ten on a
// busy machine: a command that does not end must not keep the host from its services. What fails is not waited for.
const chainsLimit = 30 * time.Second

// held reports whether nothing is to go by the pair yet: on a node with a firewall, connections by a pair without
// chains would begin with segments that conntrack calls INVALID.
func (f *fallback) held() bool { return f.fresh && f.now().Before(f.since.Add(chainsLimit)) }

// chained says that the pair's chains are there, or will not be.
func (f *fallback) chained() { f.fresh = false }

// want sets what the pair must look like.
func (f *fallback) want(spec hostnat.Spec) {
	if spec != f.spec {
		f.spec, f.dirty = spec, true
	}
}

// onLinks looks whether somebody deleted or changed the pair.
func (f *fallback) onLinks(links map[int]endpoints.Link) {
	if f.pair == (hostnat.Pair{}) {
		return
	}
	in, out := links[f.pair.In], links[f.pair.Out]
	good := in.Name == hostnat.InName && out.Name == hostnat.OutName && in.Up && out.Up && in.MTU == f.spec.MTU &&
		out.MTU == f.spec.MTU && out.MAC == routetable.MAC(f.pair.OutMAC).String() && slices.Contains(out.Addrs, hostnat.OutAddress)
	f.dirty = f.dirty || !good
}

// ensure repairs the pair where that is due, and reports whether it is another one now.
func (f *fallback) ensure() bool {
	now := f.now()
	if f.phase == fallbackOff || f.phase == fallbackLeaving || !f.dirty || !f.retry.Due(now) {
		return false
	}
	before := f.pair
	pair, changed, err := hostnat.Ensure(f.handle, f.spec)
	if err != nil {
		f.failed(err)
		return false
	}
	f.retry.Succeeded()
	f.pair, f.dirty, f.failure = pair, false, nil
	if changed {
		f.log.WithFields(logrus.Fields{"in": pair.In, "out": pair.Out, "mtu": f.spec.MTU}).Info("pair for host traffic set up")
	}
	return before.In != pair.In || before.Out != pair.Out
}

func (f *fallback) failed(err error) {
	delay := f.retry.Failed(f.now())
	if f.failure == nil || f.failure.Error() != err.Error() {
		f.log.WithError(err).WithField("retry", delay.Round(time.Millisecond).String()).Error("pair for host traffic could not be set up")
	}
	f.failure = err
}

// ensureFallback decides in which phase the fallback is, and keeps the pair as it should be.
func (a *Agent) ensureFallback() {
	f := a.fallback
	off := f.phase == fallbackOff
	switch needed, known := a.fallbackNeeded(); {
	case !known: // what an earlier run has left stays
	case needed:
		f.enter(fallbackOn)
	case f.phase == fallbackOn:
		f.log.Info("host traffic is balanced at connect time: the pair stays until the last connection by it has ended")
		f.enter(fallbackDraining)
	case f.phase == fallbackDraining && a.drained():
		f.enter(fallbackLeaving)
	case f.phase == fallbackLeaving && f.routes.Len() == 0 && f.told == 0:
		a.removeFallback()
	}
	if off != (f.phase == fallbackOff) {
		a.ensureNetfilter()
	}
	// Before the links are known, so is the MTU not: a pair that is there must not be given another for a moment.
	if len(a.links) > 0 && f.ensure() {
		// What lo is for hangs on the pair. The pair's own links are told by the monitor.
		a.endpoints.Reclassify()
	}
}

// drained reports whether conntrack was searched since the fallback is not wanted any more, and nothing was found.
func (a *Agent) drained() bool {
	last := a.sweeper.Last()
	return a.pruning && last.Started.After(a.fallback.since) && last.Errors == 0 && last.HostFlows == 0
}

// removeFallback takes the programs off and deletes the pair.
func (a *Agent) removeFallback() {
	f := a.fallback
	if !f.retry.Due(f.now()) {
		return
	}
	pair := f.pair
	f.pair = hostnat.Pair{}
	a.endpoints.Reclassify()
	if _, err := hostnat.Remove(f.handle); err != nil {
		f.pair = pair
		a.endpoints.Reclassify() // it may be wanted again
		f.failed(err)
		return
	}
	f.retry.Succeeded()
	f.failure = nil
	f.enter(fallbackOff)
	f.log.Info("pair for host traffic removed")
}

// serving is the index of bpfout.cali where everything that routes need stands behind it; 0 else.
func (a *Agent) serving() (out int) {
	f := a.fallback
	if f.phase == fallbackLeaving || !f.active() || f.held() || !a.programs.complete() || !a.endpoints.Usable(f.pair.Out) {
		return 0
	}
	return f.pair.Out
}

// natInterfaces is what cali_globals2 is to say of the pair. What an earlier run said stays until all has been looked at.
func (a *Agent) natInterfaces(g *layout.Globals) (in, out uint32) {
	switch out := a.serving(); {
	case out != 0:
		return uint32(a.fallback.pair.In), uint32(out)
	case !a.pruning:
		return g.NatinIfindex, g.NatoutIfindex
	}
	return 0, 0
}

// routeFallback wants the services' routes for as long as the datapath knows of the pair.
func (a *Agent) routeFallback() {
	f := a.fallback
	out := a.serving()
	use := out != 0 && out == f.told
	f.used = f.used || use
	a.onHostRoutes(f.routes.Enable(use, f.pair.OutMAC))
}

// onHostRoutes hands on what the routes of services' addresses want changed.
func (a *Agent) onHostRoutes(d hostnat.Delta) {
	for _, n := range d.Neighbours {
		a.refuseKernel(a.kernel.SetNeighbour(n))
	}
	for _, r := range d.Routes {
		a.refuseKernel(a.kernel.SetRoute(r))
	}
	for _, dst := range d.DeleteRoutes {
		a.kernel.DeleteRoute(dst)
	}
	for _, k := range d.DeleteNeighbours {
		a.kernel.DeleteNeighbour(k)
	}
}

// adviseNode says, at the start and when that has changed, which settings of the node that are none of ours keep traffic from
// going on.
func (a *Agent) adviseNode() {
	if !a.adviceDue || len(a.links) == 0 {
		return
	}
	a.adviceDue = false
	var uplinks []string
	for _, index := range interfaces.Uplinks(a.view, a.patterns()) {
		uplinks = append(uplinks, a.view.Links[index].Name)
	}
	advice, err := hostnat.Check(uplinks, a.cfg.IPv4Enabled, a.cfg.IPv6Enabled)
	if err != nil {
		a.log.WithError(err).Warn("settings of the node can not be read")
		return
	}
	if slices.Equal(advice, a.advice) {
		return
	}
	a.advice = advice
	for _, one := range advice {
		a.log.WithFields(logrus.Fields{"sysctl": one.Path, "value": one.Value, "set": one.Need}).Warn(one.Why)
	}
}

// updateHostNode tells the routes of services' addresses what they have in common.
func (a *Agent) updateHostNode() {
	own := a.nodes.Own()
	overlay := a.sizes.tunnel
	if a.cfg.Overlay == config.OverlayDirect {
		overlay = a.sizes.uplink // what this host asks of a service never goes by the tunnel
	}
	n := hostnat.Node{Own: slices.Clone(a.hostAddrs), MTU: hostnat.RouteMTU(a.sizes.uplink, a.sizes.pod, overlay)}
	if a.cfg.IPv4Enabled {
		n.IPv4 = own.IPv4
	}
	if a.cfg.IPv6Enabled {
		n.IPv6 = own.IPv6
	}
	for _, addr := range []netip.Addr{own.IPv4, own.IPv6} {
		if addr.IsValid() {
			n.Own = append(n.Own, addr)
		}
	}
	a.fallback.want(hostnat.Spec{MTU: a.sizes.uplink})
	a.onHostRoutes(a.fallback.routes.SetNode(n))
}

// due is when the next step can be made.
func (f *fallback) due(serving int) (time.Time, bool) {
	if at, waiting := f.retry.Waiting(); waiting {
		return at, true
	}
	if f.held() && !f.dirty {
		return f.since.Add(chainsLimit), true
	}
	// Routes are switched in the pass after the one that told the datapath.
	routes := (serving != 0 && serving == f.told) != f.routes.Enabled()
	return f.now(), f.dirty && f.phase != fallbackOff || f.phase == fallbackLeaving || serving != f.told || routes
}
