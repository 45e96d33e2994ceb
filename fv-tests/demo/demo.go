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
	by       served
}

// paths are the demo's lines while services are balanced at connect time, each in both families.
func paths(l *lab.Lab) []path {
	both := []string{"pod12", "pod21"}
	var all []path
	for _, f := range families(l) {
		all = append(all,
			path{"pod to pod, same node", "pod11", f.pod("pod12"), false, []string{"pod12"}, byNobody},
			path{"pod to pod, other node", "pod11", f.pod("pod21"), false, []string{"pod21"}, byNobody},
			path{"pod to ClusterIP", "pod11", f.tcp, false, both, byHook},
			path{"pod to ClusterIP", "pod11", f.udp, true, both, byHook},
			path{"pod to NodePort, own node", "pod11", f.node(0, 30080), false, both, byHook},
			path{"host to ClusterIP", "node1", f.tcp, false, both, byHook},
			path{"host to NodePort, own node", "node1", f.node(0, 30080), false, both, byHook},
			path{"outside to NodePort", "out1", f.node(0, 30080), false, both, byTC},
			path{"outside to NodePort", "out2", f.node(1, 30053), true, both, byTC},
			path{"outside to ExternalIP", "out1", f.external, false, both, byTC},
			path{"pod to a service without pods", "pod11", f.nobody, false, nil, byHook},
		)
	}
	return all
}

// packetPaths are lines that asked the same before, now that services are found by packet.
func packetPaths(l *lab.Lab) []path {
	both := []string{"pod12", "pod21"}
	var all []path
	for _, f := range families(l) {
		all = append(all,
			path{"pod to ClusterIP", "pod11", f.tcp, false, both, byTC},
			path{"pod to ClusterIP", "pod11", f.udp, true, both, byTC},
			path{"host to ClusterIP", "node1", f.tcp, false, both, byPair},
			path{"host to ClusterIP", "node1", f.udp, true, both, byPair},
			path{"host to NodePort, own node", "node1", f.node(0, 30080), false, both, byPair},
			path{"pod to a service without pods", "pod11", f.nobody, false, nil, byTC},
			path{"host to a service without pods", "node1", f.nobody, false, nil, byPair},
		)
	}
	return all
}

// family are the demo's addresses of one family.
type family struct {
	tcp, udp, external, nobody string
	node                       func(i int, port uint16) string
	pod                        func(name string) string
}

func families(l *lab.Lab) []family {
	var all []family
	for _, ipv6 := range []bool{false, true} {
		f := family{"10.96.0.10:80", "10.96.0.20:53", "198.51.100.10:80", "10.96.0.30:80", nil, nil}
		if ipv6 {
			f = family{"[fd96::10]:80", "[fd96::20]:53", "[2001:db8:100::10]:80", "[fd96::30]:80", nil, nil}
		}
		f.node = func(i int, port uint16) string { return netip.AddrPortFrom(l.Nodes[i].Address(ipv6), port).String() }
		f.pod = func(name string) string {
			return netip.AddrPortFrom(l.Pod(name).Address(ipv6), probe.Port).String()
		}
		all = append(all, f)
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
	fmt.Fprintf(out, "two nodes with two pods each, overlay %s, up after %.1f s\n", l.Options.Overlay, time.Since(start).Seconds())
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
	all := paths(l)
	fmt.Fprint(out, "\nservices are balanced at connect time: sockets of pods and hosts talk to backends\n\n")
	failed, err := show(ctx, out, l, all)
	if err != nil {
		return err
	}
	if err := withoutHooks(ctx, l); err != nil {
		return err
	}
	fmt.Fprint(out, "\nthe same with connectTimeLoadBalancing: Disabled: packets are translated, of pods at TC, of the host by bpfin/bpfout\n\n")
	packets := packetPaths(l)
	more, err := show(ctx, out, l, packets)
	if err != nil {
		return err
	}
	failed, total := failed+more, len(all)+len(packets)
	fmt.Fprintf(out, "\n%d of %d paths carried their traffic, after %.1f s\n", total-failed, total, time.Since(start).Seconds())
	if failed > 0 {
		for _, n := range l.Nodes {
			fmt.Fprint(out, n.Dump(ctx))
		}
		return fmt.Errorf("%d of %d paths failed", failed, total)
	}
	return nil
}

// withoutHooks restarts the agents in the mode in which nothing is balanced at connect time.
func withoutHooks(ctx context.Context, l *lab.Lab) error {
	l.Options.CTLB = "Disabled"
	for _, n := range l.Nodes {
		if err := n.StopAgent(ctx); err != nil {
			return err
		}
		if err := n.StartAgent(ctx); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
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

// show runs paths, prints their lines and returns how many failed.
func show(ctx context.Context, out io.Writer, l *lab.Lab, paths []path) (failed int, err error) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\tPATH\tFROM\tTO\tSENT\tANSWERED\tBACKENDS\tSERVICE BY\tCARRIED BY")
	for _, p := range paths {
		before, err := counters(l)
		if err != nil {
			return 0, err
		}
		sent, r, err := p.send(ctx, l)
		if err != nil {
			return 0, err
		}
		after, err := counters(l)
		if err != nil {
			return 0, err
		}
		carried := after.Since(before)
		by := servedBy(p.by != byNobody, carried)
		mark, problem := "ok", p.judge(r, by)
		if problem != "" {
			mark = "FAILED"
			failed++
		}
		protocol := "tcp"
		if p.udp {
			protocol = "udp"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\n",
			mark, p.title, p.from, protocol, p.to, sent, answered(r), probe.Spread(r.Backends), by, mechanism(carried))
		if problem != "" {
			fmt.Fprintf(w, "\t\t\t%s %s\t\t\t\t\t\n", problem, strings.Join(r.Examples, "; "))
		}
	}
	return failed, w.Flush()
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
func (p path) judge(r probe.Result, by served) string {
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
	if by != p.by {
		return fmt.Sprintf("want the service found by %q", p.by)
	}
	return ""
}

func answered(r probe.Result) string {
	if n := r.Errors["refused"]; n > 0 {
		return fmt.Sprintf("%d refused", n)
	}
	return fmt.Sprintf("%d, median %s", r.OK, r.Latency.P50.Round(10*time.Microsecond))
}
