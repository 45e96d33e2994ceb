// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

const (
	// megabyte is what a TCP cell moves each way.
	megabyte = 1 << 20
	// refusalLimit is the longest a refusal may take.
	refusalLimit = 3 * time.Second
	// cellTimeout is far more than a cell needs.
	cellTimeout = 20 * time.Second
)

// Outcome is what one cell did.
type Outcome struct {
	Cell     Cell
	Result   probe.Result
	Carried  string // the mechanism's name and the counters that show it
	Problems []string
	Entry    lab.Counters // what node 1 counted
	Far      lab.Counters // what node 2 counted
}

// Run sends a cell's traffic and judges it, mechanism included.
func (c Cell) Run(ctx context.Context, l *lab.Lab) Outcome {
	entry, far, err := counters(l)
	if err != nil {
		return Outcome{Cell: c, Problems: []string{err.Error()}}
	}
	o := c.Deliver(ctx, l)
	// Counters of the last packets are there before the answer is: no wait is needed.
	entryAfter, farAfter, err := counters(l)
	if err != nil {
		o.problem("%v", err)
		return o
	}
	o.Entry, o.Far = entryAfter.Since(entry), farAfter.Since(far)
	c.judgeMechanism(&o)
	return o
}

// Deliver sends a cell's traffic and judges what arrived, whatever carried it.
func (c Cell) Deliver(ctx context.Context, l *lab.Lab) Outcome {
	ctx, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	o := Outcome{Cell: c}
	if err := c.forgetPathMTUs(ctx, l); err != nil {
		o.problem("%v", err)
		return o
	}
	var err error
	if o.Result, err = c.probe(ctx, l); err != nil {
		o.problem("%v", err)
		return o
	}
	c.judge(&o, l)
	return o
}

// forgetPathMTUs lets a cell find its path's MTU anew: another cell may have had a smaller one to the same
// address. TCP would adapt; datagrams of exactly the path's MTU would become fragments.
func (c Cell) forgetPathMTUs(ctx context.Context, l *lab.Lab) error {
	if !c.Socket.udp() {
		return nil
	}
	places := []*lab.Place{c.client(l), &l.Nodes[0].Place, &l.Nodes[1].Place}
	if server := c.server(l); server != nil {
		places = append(places, server)
	}
	for _, p := range places {
		if err := p.ForgetPathMTUs(ctx, c.IPv6); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outcome) problem(format string, args ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
}

func counters(l *lab.Lab) (entry, far lab.Counters, err error) {
	if entry, err = l.Nodes[0].Counters(); err == nil {
		far, err = l.Nodes[1].Counters()
	}
	return entry, far, err
}

func (c Cell) probe(ctx context.Context, l *lab.Lab) (probe.Result, error) {
	target := c.target(l).String()
	prober := c.client(l).Probe()
	if !c.Socket.udp() {
		return prober.TCP(ctx, probe.TCPArgs{Address: target, Bytes: megabyte, Mapped: c.Socket.mapped()})
	}
	headers := 28
	if c.IPv6 {
		headers = 48
	}
	return prober.UDP(ctx, probe.UDPArgs{
		Address: target, Sizes: []int{1, 1200, c.pathMTU(l) - headers},
		Connected: c.Socket.connected(), Mapped: c.Socket.mapped(),
	})
}

// judge checks what the client saw and what the backend saw of it.
func (c Cell) judge(o *Outcome, l *lab.Lab) {
	r := o.Result
	if c.refused() {
		if r.Errors["refused"] != 1 {
			o.problem("want a refusal, have %s %v", r, r.Examples)
		}
		if r.Latency.Max > refusalLimit || r.Slow > 0 {
			o.problem("the refusal was slow: %s", r)
		}
		return
	}
	if r.OK != 1 {
		o.problem("%s %v", r, r.Examples)
		return
	}
	if want := c.server(l).Name; r.Backends[want] != 1 {
		o.problem("want an answer from %s, have %s", want, r)
	}
	target := c.target(l).String()
	if r.ReplySources[target] != 1 {
		o.problem("want the answer to come from %s, have %s", target, r)
	}
	if unconnected := c.Socket.udp() && !c.Socket.connected(); !unconnected && r.Peers[target] != 1 {
		o.problem("want getpeername to say %s, have %s", target, r)
	}
	if want := c.seenAs(l).String(); r.Clients[want] != 1 {
		o.problem("want the backend to see %s, have %s", want, r)
	}
	if c.redirected() && r.Originals[target] != 1 {
		o.problem("want the sidecar to see that the connection was bound for %s, have %s", target, r)
	}
}

// judgeMechanism compares the counters with those of the expected mechanism.
func (c Cell) judgeMechanism(o *Outcome) {
	name, m, err := c.mechanism()
	if err != nil {
		o.problem("%v", err)
		return
	}
	var seen []string
	for _, w := range m.want {
		have := o.at(w.at).Get(w.at.variant(c.IPv6), w.counter)
		if have < w.min {
			o.problem("mechanism %q: want %s %s >= %d, have %d", name, w.at.name(c.IPv6), w.counter, w.min, have)
		}
		seen = append(seen, fmt.Sprintf("%s %s %d", w.at.name(c.IPv6), w.counter, have))
	}
	for _, counter := range m.never {
		if have := o.Entry.Plus(o.Far).Of(entryFromWEP.variant(c.IPv6).Family).Sum(counter); have > 0 {
			o.problem("mechanism %q: want no %s, have %d", name, counter, have)
		}
	}
	o.Carried = name + ": " + strings.Join(seen, ", ")
	for _, drops := range []map[string]uint64{o.Entry.Drops(), o.Far.Drops()} {
		for reason, n := range drops {
			if c.refused() && reason == layout.DropNoBackend.String() {
				continue
			}
			if reason == layout.DropTooBig.String() {
				continue // path MTU discovery: answered, and the sender tries smaller
			}
			o.problem("%d packets dropped: %s", n, reason)
		}
	}
}

func (o *Outcome) at(w where) lab.Counters {
	if w.far {
		return o.Far
	}
	return o.Entry
}

// Explain runs a failed cell once more with captures at both ends and on the uplinks, and returns all
// there is to see: packets, counters, connections, routes, logs.
func (c Cell) Explain(ctx context.Context, l *lab.Lab) string {
	type point struct {
		ns  lab.Namespace
		dev string
	}
	points := []point{{l.Nodes[0].Namespace, "eth0"}, {l.Nodes[1].Namespace, "eth0"}}
	if c.From == FromNode {
		points = append(points, point{l.Nodes[0].Namespace, "lo"}, point{l.Nodes[0].Namespace, "bpfout.cali"})
	} else {
		points = append(points, point{c.client(l).Namespace, "eth0"})
	}
	if server := c.server(l); server != nil && server.Namespace != c.client(l).Namespace {
		points = append(points, point{server.Namespace, "eth0"})
	}
	var captures []*lab.Capture
	var b strings.Builder
	for _, p := range points {
		capture, err := lab.StartCapture(p.ns, p.dev)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		captures = append(captures, capture)
	}
	again := c.Run(ctx, l)
	for _, capture := range captures {
		fmt.Fprintln(&b, capture.Stop())
	}
	fmt.Fprintf(&b, "--- second run: %s\n--- node1 counted:\n%s\n--- node2 counted:\n%s\n",
		strings.Join(append([]string{again.Result.String()}, again.Problems...), "; "), again.Entry, again.Far)
	for _, n := range l.Nodes {
		b.WriteString(n.Dump(ctx))
	}
	return b.String()
}

// Prepare gives a lab what the matrix needs on top of its options: services, the sidecars' redirection and
// the way back from the excluded range.
func Prepare(ctx context.Context, l *lab.Lab) error {
	if _, err := l.Apply(Manifests()); err != nil {
		return err
	}
	for _, ipv6 := range []bool{false, true} {
		to := lab.ServiceCIDR4
		if ipv6 {
			to = lab.ServiceCIDR6
		}
		if err := l.Pod(podName("mesh", ipv6)).RedirectTo(ctx, to, probe.MeshPort); err != nil {
			return err
		}
	}
	return l.RoutePodsFor(l.Clients[1])
}

// WaitProgrammed returns when every service of the matrix answers or refuses as it should: the agents
// have read the manifests. The wait is not part of any cell.
func WaitProgrammed(ctx context.Context, l *lab.Lab) error {
	for _, n := range l.Nodes {
		for _, ipv6 := range []bool{false, true} {
			for _, place := range append(slices.Clone(backendPlaces), spread) {
				backends := 1
				switch place {
				case None:
					backends = 0
				case spread:
					backends = 2
				}
				s := serviceFor(place, ipv6)
				if err := n.WaitFrontend(ctx, s.address(l, ClusterIP), backends); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
