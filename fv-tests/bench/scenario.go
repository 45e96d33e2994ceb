// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// scenario is one measurement, in which the modes stand side by side: who does what.
type scenario struct {
	name  string
	title string
	kind  workload
	node  bool // the client is the node itself, else a pod
	width int  // connections at a time to the service with many backends; 0: one client, one backend
	// mapped: the client's socket is IPv6 and its addresses are IPv4-mapped.
	mapped bool
	v4only bool // in IPv4 alone: what is compared does not depend on the family
	quick  int  // families in which a quick run measures it: 0, 1 (IPv4), 2
}

// crowdWidth is how many connections the crowd has.
const crowdWidth = 64

// scenarios in the order of the tables.
var scenarios = []scenario{
	{name: "tcp_short", title: "short TCP", kind: tcpShort, quick: 2},
	{name: "udp_established", title: "UDP established", kind: udpEstablished, quick: 2},
	{name: "udp_unconnected", title: "UDP unconnected", kind: udpUnconnected, quick: 1},
	{name: "udp_new_flow", title: "UDP new flow", kind: udpNewFlow, quick: 2},
	{name: "tcp_rr", title: "TCP_RR", kind: tcpRR, quick: 1},

	{name: "host_tcp_short", title: "short TCP", kind: tcpShort, node: true, quick: 1},
	{name: "host_udp_established", title: "UDP established", kind: udpEstablished, node: true, quick: 1},
	{name: "host_udp_new_flow", title: "UDP new flow", kind: udpNewFlow, node: true},

	{name: "crowd_tcp_short", title: "short TCP", kind: tcpShort, width: crowdWidth, quick: 1},
	{name: "crowd_http_close", title: "HTTP, a connection each", kind: httpClose, width: crowdWidth, v4only: true, quick: 1},
	{name: "crowd_http_keep", title: "HTTP, kept connections", kind: httpKeep, width: crowdWidth, v4only: true},
}

// mappedScenarios are for the costs of programs only: IPv6 sockets that talk IPv4.
var mappedScenarios = []scenario{
	{name: "mapped_tcp_short", title: "short TCP, v4-mapped", kind: tcpShort, mapped: true, v4only: true},
	{name: "mapped_udp_unconnected", title: "UDP unconnected, v4-mapped", kind: udpUnconnected, mapped: true, v4only: true},
}

// group is the table that a scenario stands in.
func (s scenario) group() string {
	switch {
	case s.node:
		return "host"
	case s.width > 0:
		return "crowd"
	}
	return "pod"
}

// in says whether the scenario is measured in a family.
func (s scenario) in(o options, f family) bool {
	if o.workloads != "" {
		return listed(o.workloads, s.name) && (f == 4 || !s.v4only)
	}
	if o.quick {
		return s.quick == 2 || s.quick == 1 && f == 4
	}
	return f == 4 || !s.v4only
}

// slices are how long one mode runs before the next, and what before that does not count: the mode before
// left the caches to itself. A crowd takes longer to come to a steady state.
func (s scenario) slices(o options) (warm, slice time.Duration) {
	if s.width > 0 {
		return 5 * o.slice / 6, 4 * o.slice
	}
	return warmup, o.slice
}

// targets are where clients of a mode connect to: the service, or without services the pods behind it.
func (s scenario) targets(services int, f family) []netip.AddrPort {
	l, pods, vip := s.kind.listener(), []netip.Addr{serverAddr[f]}, measuredVIP(services, f)
	if s.width > 0 {
		if s.kind == tcpShort {
			l = crowdListeners[crowdShort]
		}
		pods, vip = crowdAddrs(f), crowdVIP(services, f)
	}
	if services > 0 {
		return []netip.AddrPort{netip.AddrPortFrom(s.form(vip), l.servicePort)}
	}
	var out []netip.AddrPort
	for _, a := range pods {
		out = append(out, netip.AddrPortFrom(s.form(a), l.targetPort))
	}
	return out
}

// form is an address as the client's socket sees it.
func (s scenario) form(a netip.Addr) netip.Addr {
	if s.mapped {
		return netip.AddrFrom16(a.As16())
	}
	return a
}

// request asks a mode's worker to make the client and to try it.
func (s scenario) request(st *stage, services, client int, f family) request {
	from, where := clientSources(f), st.site.client.path()
	if s.node {
		from, where = nodeSources(f), st.site.node.path()
	}
	r := request{Verb: "prepare", Client: client, Where: where, Workload: s.kind, Width: s.width, Duration: 30 * time.Millisecond}
	if s.width > 0 {
		r.Duration *= 4
	}
	for _, t := range s.targets(services, f) {
		r.Targets = append(r.Targets, t.String())
	}
	for _, a := range from {
		r.Sources = append(r.Sources, s.form(a).String())
	}
	return r
}

// entrant is a mode, or a second way to use it, in one scenario.
type entrant struct {
	*stage
	services int // that its clients use; 0: they talk to pods, whatever the mode could do
	client   int // number of the client in the worker
}

func (e entrant) label() string {
	if e.services == 0 && e.mode.services > 0 {
		return e.name + " to pod"
	}
	return e.mode.label()
}

// result is a result's identity.
func (e entrant) result(s scenario, f family) result {
	return result{Name: s.name, Mode: e.name, Services: e.services, Family: int(f)}
}

// entrants of a scenario, the two direct ones first. On the node the modes with an agent also show what
// a pod's own address costs: that and the service's together say what the service costs.
func (b *bench) entrants(s scenario) []entrant {
	var out []entrant
	for _, st := range b.stages {
		if !strings.Contains(st.groups, s.group()) || st.without == s.kind {
			continue
		}
		out = append(out, entrant{st, st.mode.services, 0})
		if s.node && st.agent {
			out = append(out, entrant{st, 0, 1})
		}
	}
	return out
}

// prepare makes every mode ready for a scenario. A mode in which it does not work, or in which another
// mechanism than the mode's own carries it, is left out of this measurement, loudly.
func (b *bench) prepare(s scenario, f family, try func(entrant) error) []entrant {
	var out []entrant
	for _, e := range b.entrants(s) {
		if err := try(e); err != nil {
			fmt.Printf("  %s %s: %s is left out: %v\n", s.name, f, e.label(), err)
			b.leftOut++
			continue
		}
		out = append(out, e)
	}
	return out
}
