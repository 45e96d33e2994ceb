// SPDX-License-Identifier: Apache-2.0

// Package demo shows real connections reaching real backends on two nodes: one line for each path,
// with what was sent, what answered, and which mechanism carried it by the dataplane's own counters.
//
// bin/lab demo and make demo call it. It builds a lab of its own and removes it again, also when a
// path fails, which makes it return an error.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// timeout bounds the whole demo.
const timeout = 2 * time.Minute

// manifests are the demo's services.
//
//go:embed services.yaml
var manifests []byte

// Options of the demo.
type Options struct {
	Overlay     string // VXLAN or Direct
	AgentBinary string // default: see lab.Options
}

// path is one line of the demo.
type path struct {
	title    string
	from     string
	to       string // address and port
	udp      bool
	backends []string // who must answer; none: the connection must be refused
	carriers []layout.Counter
}

// paths are the demo's lines, each in both families. The carriers are counters that must have grown.
func paths(l *lab.Lab) []path {
	service := []layout.Counter{layout.CountServiceNew, layout.CountRedirectPeer}
	both := []string{"pod12", "pod21"}
	node := func(i int, ipv6 bool, port uint16) string {
		return netip.AddrPortFrom(l.Nodes[i].Address(ipv6), port).String()
	}
	pod := func(name string, ipv6 bool) string {
		return netip.AddrPortFrom(l.Pod(name).Address(ipv6), probe.Port).String()
	}
	var all []path
	for _, ipv6 := range []bool{false, true} {
		pick := func(v4, v6 string) string {
			if ipv6 {
				return v6
			}
			return v4
		}
		all = append(all,
			path{"pod to pod, same node", "pod11", pod("pod12", ipv6), false, []string{"pod12"}, []layout.Counter{layout.CountRedirectPeer}},
			path{"pod to pod, other node", "pod11", pod("pod21", ipv6), false, []string{"pod21"}, []layout.Counter{layout.CountRedirectPeer}},
			path{"pod to ClusterIP", "pod11", pick("10.96.0.10:80", "[fd96::10]:80"), false, both, service},
			path{"pod to ClusterIP", "pod11", pick("10.96.0.20:53", "[fd96::20]:53"), true, both, service},
			path{"pod to NodePort, own node", "pod11", node(0, ipv6, 30080), false, both, service},
			path{"outside to NodePort", "out1", node(0, ipv6, 30080), false, both, service},
			path{"outside to NodePort", "out2", node(1, ipv6, 30053), true, both, service},
			path{"outside to ExternalIP", "out1", pick("198.51.100.10:80", "[2001:db8:100::10]:80"), false, both, service},
			path{"pod to a service without pods", "pod11", pick("10.96.0.30:80", "[fd96::30]:80"), false, nil, []layout.Counter{layout.CountRSTSent}},
		)
	}
	return all
}

// Run builds a lab, sends traffic along every path and removes the lab again.
func Run(ctx context.Context, out io.Writer, opts Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	l, err := lab.Up(ctx, labOptions(opts))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	fmt.Fprintf(out, "two nodes with two pods each, overlay %s, up after %.1f s\n\n", l.Options.Overlay, time.Since(start).Seconds())
	if _, err := l.Apply(manifests); err != nil {
		return err
	}
	for _, n := range l.Nodes {
		for address, backends := range map[string]int{"10.96.0.10:80": 2, "[fd96::10]:80": 2, "10.96.0.30:80": 0, "[fd96::30]:80": 0} {
			if err := n.WaitFrontend(ctx, netip.MustParseAddrPort(address), backends); err != nil {
				return err
			}
		}
	}
	return show(ctx, out, l, start)
}

func labOptions(opts Options) lab.Options {
	o := lab.Options{Overlay: opts.Overlay, AgentBinary: opts.AgentBinary}
	for i := 1; i <= 2; i++ {
		node := lab.NodeSpec{Zone: fmt.Sprintf("zone%d", i)}
		for j := 1; j <= 2; j++ {
			node.Pods = append(node.Pods, lab.PodSpec{Name: fmt.Sprintf("pod%d%d", i, j), Labels: map[string]string{}})
		}
		o.Nodes = append(o.Nodes, node)
	}
	// One backend on each node, so that each path shows the near and the far way.
	o.Nodes[0].Pods[1].Labels["app"] = "echo"
	o.Nodes[1].Pods[0].Labels["app"] = "echo"
	return o
}

// show runs all paths and prints their lines.
func show(ctx context.Context, out io.Writer, l *lab.Lab, start time.Time) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\tPATH\tFROM\tTO\tSENT\tANSWERED\tBACKENDS\tCARRIED BY")
	failed, all := 0, paths(l)
	for _, p := range all {
		before, err := counters(l)
		if err != nil {
			return err
		}
		sent, r, err := p.send(ctx, l)
		if err != nil {
			return err
		}
		after, err := counters(l)
		if err != nil {
			return err
		}
		carried := after.Since(before)
		mark, problem := "ok", p.judge(r, carried)
		if problem != "" {
			mark = "FAILED"
			failed++
		}
		protocol := "tcp"
		if p.udp {
			protocol = "udp"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\t%s\n", mark, p.title, p.from, protocol, p.to, sent, answered(r), probe.Spread(r.Backends), mechanism(carried))
		if problem != "" {
			fmt.Fprintf(w, "\t\t\t%s %s\t\t\t\t\n", problem, strings.Join(r.Examples, "; "))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d paths carried their traffic, after %.1f s\n", len(all)-failed, len(all), time.Since(start).Seconds())
	if failed > 0 {
		for _, n := range l.Nodes {
			fmt.Fprint(out, n.Dump(ctx))
		}
		return fmt.Errorf("%d of %d paths failed", failed, len(all))
	}
	return nil
}

func (p path) send(ctx context.Context, l *lab.Lab) (sent string, r probe.Result, err error) {
	place, err := l.Place(p.from)
	if err != nil {
		return "", r, err
	}
	const count = 40 // with two backends, all on one side happens once in 2^39
	if p.backends == nil {
		r, err = place.Probe().TCP(ctx, probe.TCPArgs{Address: p.to})
		return "1 connection", r, err
	}
	if p.udp {
		r, err = place.Probe().UDP(ctx, probe.UDPArgs{Address: p.to, Count: count, Sizes: []int{1, 1200}})
		return fmt.Sprintf("%d sockets, 1 and 1200 B", count), r, err
	}
	const bytes = 64 << 10
	r, err = place.Probe().TCP(ctx, probe.TCPArgs{Address: p.to, Count: count, Bytes: bytes})
	return fmt.Sprintf("%d connections, %d KiB each way", count, bytes>>10), r, err
}

// judge says what is wrong with a path, if anything.
func (p path) judge(r probe.Result, carried lab.Counters) string {
	if p.backends == nil && r.Errors["refused"] != r.Attempts {
		return "want a refusal"
	}
	if p.backends != nil && r.OK != r.Attempts {
		return fmt.Sprintf("%d of %d failed", r.Attempts-r.OK, r.Attempts)
	}
	for _, b := range p.backends {
		if r.Backends[b] == 0 {
			return "no answer from " + b
		}
	}
	for _, c := range p.carriers {
		if carried.Sum(c) == 0 {
			return fmt.Sprintf("the dataplane counted no %s", c)
		}
	}
	return ""
}

func answered(r probe.Result) string {
	if n := r.Errors["refused"]; n > 0 {
		return fmt.Sprintf("%d refused", n)
	}
	return fmt.Sprintf("%d, median %s", r.OK, r.Latency.P50.Round(10*time.Microsecond))
}

// mechanism names the counters that say how packets travelled.
func mechanism(c lab.Counters) string {
	var parts []string
	for _, counter := range []layout.Counter{
		layout.CountServiceNew, layout.CountHairpin, layout.CountFastPath, layout.CountRedirectPeer, layout.CountRedirectTunnel,
		layout.CountRedirectNeigh, layout.CountToStack, layout.CountRSTSent, layout.CountICMPSent,
	} {
		if n := c.Sum(counter); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", counter, n))
		}
	}
	return strings.Join(parts, ", ")
}

// counters are those of both nodes together.
func counters(l *lab.Lab) (lab.Counters, error) {
	sum := lab.Counters{}
	for _, n := range l.Nodes {
		c, err := n.Counters()
		if err != nil {
			return nil, err
		}
		sum = sum.Plus(c)
	}
	return sum, nil
}
