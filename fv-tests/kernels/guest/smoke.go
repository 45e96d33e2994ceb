// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// echoPort is where every echo server listens; services have ports of their own.
const echoPort = 7777

// Ports of the services on serviceVIP, and NodePorts.
const (
	portLocal   = 80 // backend a2
	portSelf    = 81 // backend a1, which is also the client
	portRemote  = 82 // backend b1
	portEmpty   = 83 // no backend
	portHost    = 84 // backend node-a itself
	nodePort    = 30080
	nodePortFar = 30081
)

// smokeService is a service port with at most one endpoint; the same for TCP and UDP.
type smokeService struct {
	id       uint32
	port     uint16
	backend  string // pod or node; empty: none
	nodePort bool   // on every node's address, else on serviceVIP
}

var smokeServices = []smokeService{
	{id: 1, port: portLocal, backend: "a2"},
	{id: 2, port: portSelf, backend: "a1"},
	{id: 3, port: portRemote, backend: "b1"},
	{id: 4, port: portEmpty},
	{id: 5, port: nodePort, backend: "a2", nodePort: true},
	{id: 6, port: nodePortFar, backend: "b1", nodePort: true},
	{id: 7, port: portHost, backend: "node-a"},
}

type protocol struct {
	name   string
	number uint8
}

var protocols = []protocol{{"tcp", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}}

// smokePath is one way that packets take, tried in both families and over both protocols.
type smokePath struct {
	name string
	from string // pod, or outside
	to   func(w *world, family layout.Family) netip.AddrPort
	// server is who must answer, and see the client by its own address. Empty: a refusal is wanted.
	server string
	// client is whom the server takes the client for, if not for the client itself.
	client string
	// counted has moved, on some interface of some node: another way of getting there is a failure.
	counted layout.Counter
	// never must not have moved anywhere; 0: nothing of the kind.
	never layout.Counter
}

var smokePaths = []smokePath{
	{"pod to pod on the same node", "a1", toPod("a2"), "a2", "", layout.CountRedirectPeer, 0},
	{"pod to pod on the other node", "a1", toPod("b1"), "b1", "", layout.CountRedirectTunnel, 0},
	{"pod to service, backend on the same node", "a1", toVIP(portLocal), "a2", "", layout.CountRedirectPeer, 0},
	{"pod to service, backend on the other node", "a1", toVIP(portRemote), "b1", "", layout.CountRedirectTunnel, 0},
	{"pod to service, backend is itself", "a1", toVIP(portSelf), "a1", "node-a", layout.CountHairpin, 0},
	{"pod to service without backends", "a1", toVIP(portEmpty), "", "", layout.DropNoBackend, 0},
	{"outside to NodePort, backend on that node", "outside", toNode(0, nodePort), "a2", "", layout.CountDNAT, 0},
	{"outside to NodePort, backend on the other node", "outside", toNode(0, nodePortFar), "b1", "", layout.CountRedirectTunnel, 0},
}

func toPod(name string) func(*world, layout.Family) netip.AddrPort {
	return func(w *world, family layout.Family) netip.AddrPort {
		return netip.AddrPortFrom(w.pod(name).addrs.of(family), echoPort)
	}
}

func toVIP(port uint16) func(*world, layout.Family) netip.AddrPort {
	return func(_ *world, family layout.Family) netip.AddrPort {
		return netip.AddrPortFrom(serviceVIP.of(family), port)
	}
}

func toNode(i int, port uint16) func(*world, layout.Family) netip.AddrPort {
	return func(w *world, family layout.Family) netip.AddrPort {
		return netip.AddrPortFrom(w.nodes[i].addrs.of(family), port)
	}
}

// runSmoke sends real packets through the real programs.
func runSmoke(r *reporter) {
	w, err := buildWorld()
	r.verdict("network", err)
	if err != nil {
		return
	}
	defer w.close()
	if !r.check("echo servers", w.startServers) {
		return
	}
	// Without programs the kernel routes between the pods of a node: what fails here is no fault of
	// the datapath.
	control := smokePaths[0]
	control.counted = noCounter
	w.tryAll(r, control, ", by the kernel alone")
	for _, n := range w.nodes {
		if !r.check("programs on "+n.name, func() error { return n.startDataplane(w) }) {
			return
		}
		defer n.dp.close()
	}
	for _, path := range smokePaths {
		w.tryAll(r, path, "")
	}
	a := w.nodes[0]
	if r.check("the pair for the node's own traffic", a.startFallback) {
		for _, path := range fallbackPaths {
			w.tryAll(r, path, "")
		}
	}
	if r.check("programs at connect time", a.startSocketLB) {
		w.trySockets(r)
	}
}

// trySockets tries what is balanced at connect time: no packet of it is translated.
func (w *world) trySockets(r *reporter) {
	for _, path := range socketPaths {
		path.never = layout.CountDNAT
		w.tryAll(r, path, "")
	}
	from, _ := w.client("a1")
	for _, family := range variants.Families {
		target := toVIP(portLocal)(w, family)
		r.check(fmt.Sprintf("udp %s pod to service by an unconnected socket", family), func() error {
			return tryUnconnected(from, target, "a2")
		})
		for _, proto := range protocols {
			r.check(fmt.Sprintf("%s %s the peer of a balanced socket is the service", proto.name, family), func() error {
				return tryPeerName(from, proto.name, target)
			})
		}
		r.check(fmt.Sprintf("tcp %s a service without backends refuses at connect time", family), func() error {
			return refused(from, "tcp", toVIP(portEmpty)(w, family))
		})
	}
}

// tryAll tries a path in both families and over both protocols.
func (w *world) tryAll(r *reporter, path smokePath, suffix string) {
	for _, family := range variants.Families {
		for _, proto := range protocols {
			before := w.counters()
			name := fmt.Sprintf("%s %s %s%s", proto.name, family, path.name, suffix)
			if !r.check(name, func() error { return w.try(path, proto, family, before) }) {
				r.note("counters that moved:%s", w.counters().since(before))
			}
		}
	}
}

// try makes one connection and checks who answered and how it was carried.
func (w *world) try(path smokePath, proto protocol, family layout.Family, before counters) error {
	target := path.to(w, family)
	from, client := w.client(path.from)
	if path.server == "" {
		if err := refused(from, proto.name, target); err != nil {
			return err
		}
	} else {
		if path.client != "" {
			_, client = w.client(path.client)
		}
		hello, err := echo(from, proto.name, target)
		if err != nil {
			return err
		}
		if want := greeting(path.server, client.of(family)); hello != want {
			return fmt.Errorf("answer %q, want %q", hello, want)
		}
	}
	now := w.counters()
	if path.never != 0 && now.sum(path.never) != before.sum(path.never) {
		return fmt.Errorf("arrived, but not by the expected way: %s was counted", path.never)
	}
	return now.judge(before, path.counted)
}

// client finds who connects: a pod, a node, or the machine outside.
func (w *world) client(name string) (*namespace, addrs) {
	if p := w.pod(name); p != nil {
		return p.ns, p.addrs
	}
	for _, n := range w.nodes {
		if n.name == name {
			return n.ns, n.addrs
		}
	}
	return w.outside, outsideAddr
}

// pod finds a pod of the topology.
func (w *world) pod(name string) *pod {
	for _, n := range w.nodes {
		for _, p := range n.pods {
			if p.name == name {
				return p
			}
		}
	}
	return nil
}

// startServers starts an echo server in every pod.
func (w *world) startServers() error {
	for _, n := range w.nodes {
		for _, p := range n.pods {
			server, err := startEcho(p.ns, p.name, echoPort)
			if err != nil {
				return err
			}
			w.servers = append(w.servers, server)
		}
	}
	server, err := startEcho(w.nodes[0].ns, w.nodes[0].name, echoPort)
	if err != nil {
		return err
	}
	w.servers = append(w.servers, server)
	return nil
}
