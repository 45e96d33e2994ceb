// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/internal/statefile"
)

// conditions are what readiness is made of: whether the agent can program. What is wrong with a
// single object is not among them.
func (a *Agent) conditions() []Condition {
	return []Condition{
		a.programsCondition(),
		{Name: "sources", OK: a.sourceSynced, Message: unless(a.sourceSynced, "the first full state of the cluster has not come yet")},
		a.interfacesCondition(),
		a.tunnelCondition(),
		a.mapsCondition(),
		a.kernelCondition(),
		a.fallbackCondition(),
		a.socketsCondition(),
	}
}

func unless(ok bool, message string) string {
	if ok {
		return ""
	}
	return message
}

func reasons(conditions []Condition) string {
	var out []string
	for _, c := range conditions {
		if !c.OK {
			out = append(out, c.Name+": "+c.Message)
		}
	}
	return strings.Join(out, "; ")
}

func (a *Agent) programsCondition() Condition {
	c := Condition{Name: "programs", OK: a.programs.current}
	switch {
	case a.programs.failure != nil && a.programs.complete():
		c.Message = "an earlier generation is in use: " + a.programs.failure.Error()
	case a.programs.failure != nil && !a.programs.empty:
		c.Message = "not all classes of interfaces are served: " + a.programs.failure.Error()
	case a.programs.failure != nil:
		c.Message = a.programs.failure.Error()
	case !a.programs.current:
		c.Message = "not installed yet"
	}
	return c
}

func (a *Agent) interfacesCondition() Condition {
	c := Condition{Name: "interfaces", OK: a.endpoints.Synced()}
	if !c.OK {
		c.Message = "links and endpoint files have not been read yet"
		return c
	}
	if !a.pruning {
		c.OK, c.Message = false, "not all interfaces have been attached to yet"
	}
	var failures []string
	for _, f := range a.endpoints.Failures() {
		failures = append(failures, f.String())
	}
	if len(failures) > 0 {
		c.OK, c.Message = false, strings.Join(failures[:min(most, len(failures))], "; ")
		if len(failures) > most {
			c.Message += fmt.Sprintf("; and %d more", len(failures)-most)
		}
	}
	return c
}

func (a *Agent) tunnelCondition() Condition {
	c := Condition{Name: "tunnel", OK: a.tunnel.ifindex != 0 && a.tunnel.failure == nil}
	switch {
	case a.tunnel.failure != nil:
		c.Message = a.tunnel.failure.Error()
	case a.tunnel.ifindex == 0:
		c.Message = endpoints.TunnelName + " is not set up yet"
	}
	return c
}

func (a *Agent) mapsCondition() Condition {
	c := Condition{Name: "maps", OK: true}
	var bad []string
	for table, n := range a.tables.counts() {
		if n.Failed > 0 {
			bad = append(bad, fmt.Sprintf("%d %s are refused", n.Failed, table))
		}
	}
	if a.globalsErr != nil {
		bad = append(bad, a.globalsErr.Error())
	}
	if len(bad) > 0 {
		c.OK, c.Message = false, strings.Join(bad, "; ")
	}
	return c
}

func (a *Agent) kernelCondition() Condition {
	c := Condition{Name: "kernelRoutes", OK: true}
	r, n := a.kernel.Counts()
	if r.Failed+n.Failed == 0 {
		return c
	}
	for _, p := range a.kernel.Problems() {
		// Somebody else's route of one service's address is that service's matter.
		if p.Status.Phase == reconcile.Failed && !a.fallback.routes.Has(p.Dst) {
			c.OK, c.Message = false, fmt.Sprintf("%s: %v", p.Object, p.Status.Err)
			break
		}
	}
	return c
}

// fallbackCondition does not hold where this host's traffic to services needs the pair and can not use it.
func (a *Agent) fallbackCondition() Condition {
	c := Condition{Name: "fallback", OK: true}
	f := a.fallback
	switch {
	case f.phase != fallbackOn:
	case f.failure != nil:
		c.OK, c.Message = false, f.failure.Error()
	case !f.used:
		c.OK, c.Message = false, "the pair for host traffic is not in use yet"
	}
	return c
}

// snapshot collects the figures that are read at the time of a scrape.
func (a *Agent) snapshot() *snapshot {
	s := &snapshot{pending: map[string]float64{}, entries: map[string]mapFill{}, writes: map[string]uint64{},
		conntrack: map[ctLabels]float64{}, retired: a.dataplane.retired, ifaces: a.dataplane.counted(), counters: a.maps.Counters}
	for table, n := range a.tables.counts() {
		s.pending[table] = float64(n.Pending + n.Failed)
	}
	r, n := a.kernel.Counts()
	s.pending["kernel_routes"], s.pending["neighbours"] = float64(r.Pending+r.Failed), float64(n.Pending+n.Failed)
	s.pending["interfaces"] = float64(a.endpoints.PendingInterfaces())
	t := a.tables
	s.entries["nat_fe3"] = mapFill{float64(t.frontends.Counts().Actual), float64(a.maps.Frontends.MaxEntries())}
	s.entries["nat_be"] = mapFill{float64(t.backends.Counts().Actual), float64(a.maps.Backends.MaxEntries())}
	s.entries["routes"] = mapFill{float64(t.routes.Counts().Actual), float64(a.maps.Routes.MaxEntries())}
	s.entries["iface2"] = mapFill{float64(len(a.dataplane.owners)), float64(a.maps.Interfaces.MaxEntries())}
	s.writes["nat_fe3"], s.writes["nat_be"] = a.maps.Frontends.Writes(), a.maps.Backends.Writes()
	s.writes["routes"], s.writes["iface2"] = a.maps.Routes.Writes(), a.maps.Interfaces.Writes()
	s.writes["globals2"] = a.maps.Globals.Writes()
	last := a.sweeper.Last()
	for _, fill := range last.Tables {
		s.entries[strings.TrimPrefix(fill.Name, "cali_")] = mapFill{float64(fill.Entries), float64(fill.MaxEntries)}
	}
	for key, n := range last.Live() {
		s.conntrack[ctLabels{key.Family, key.Proto}] = float64(n)
	}
	s.endpoints[0], s.endpoints[1] = a.endpoints.EndpointCounts()
	s.sockets = a.socketFigures()
	return s
}

// stateWriter leaves the names of things in the run directory. Its cost is that of all services, so
// it is given no more than a small share of the time.
type stateWriter struct {
	dirty bool
	at    time.Time // not before
	err   error
}

// share is the part of the time that writing names may take.
const share = 20

func (w *stateWriter) due() (time.Time, bool) { return w.at, w.dirty }

func (w *stateWriter) write(a *Agent) {
	start := a.now()
	if !w.dirty || start.Before(w.at) || !a.sourceSynced {
		return
	}
	s := statefile.State{Node: a.cfg.NodeName, PID: os.Getpid(), Build: a.opts.Version, Started: a.started.UTC(),
		Health: a.cfg.HealthAddress, SocketLB: a.socketsTold}
	for _, p := range a.services.Describe() {
		if p.ServiceID != 0 {
			s.Services = append(s.Services, statefile.Service{Family: layout.Family(p.Family).String(), ID: p.ServiceID,
				Service: p.Service.String(), Port: p.Port, Type: string(p.Type)})
		}
	}
	err := statefile.Write(a.cfg.RunDirectory, s)
	if err != nil && w.err == nil {
		a.log.WithError(err).Warn("names for the command line are out of date")
	}
	end := a.now()
	w.err, w.dirty = err, err != nil
	w.at = end.Add(max(200*time.Millisecond, share*end.Sub(start)))
}
