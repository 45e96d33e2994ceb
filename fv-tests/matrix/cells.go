// SPDX-License-Identifier: Apache-2.0

// Package matrix sends real traffic along every path of a lab and says what carried it.
//
// What comes in: the list of paths in this file, the mechanisms in mechanisms.go, and a lab. What goes
// out: for each cell (path, family, socket, site) an outcome: payload, client address, reply source,
// peer name, and the mechanism as the dataplane's own counters show it. A cell fails when any of these
// is wrong, also when another mechanism than the expected one carried the traffic.
package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// Client is where a cell's traffic starts. A client pod stands on node 1, as does the host that is a
// client; an outside client enters the cluster by node 1.
type Client string

// Frontend is the kind of address the client talks to.
type Frontend string

// Backend is where the answer must come from: a pod of node 1 or node 2, the client pod itself, a pod in
// the network of node 1 or node 2, or nowhere.
type Backend string

// The dimensions of a path.
const (
	FromPod     Client = "pod"
	FromMesh    Client = "pod with a sidecar"
	FromOutside Client = "outside"
	FromNode    Client = "node"

	PodAddress    Frontend = "pod address"
	NodeAddress   Frontend = "node address"
	OutAddress    Frontend = "outside address"
	ExcludedOut   Frontend = "excluded outside address"
	ClusterIP     Frontend = "ClusterIP"
	NodePort      Frontend = "NodePort of node 1"
	NodePortOther Frontend = "NodePort of node 2"
	NodePortLocal Frontend = "NodePort of localhost"
	ExternalIP    Frontend = "ExternalIP"
	LoadBalancer  Frontend = "load balancer IP"

	SameNode  Backend = "same node"
	OtherNode Backend = "other node"
	Itself    Backend = "itself"
	SameHost  Backend = "same host"
	OtherHost Backend = "other host"
	Outside   Backend = "outside"
	None      Backend = "none"
)

// Path is a row of the matrix. Each is run in both families, by every kind of socket that makes a
// difference for it, on every site.
type Path struct {
	From    Client
	To      Frontend
	Backend Backend
	// Packets is what carries it where packets are translated, or nothing has to be: a name in
	// mechanisms, or several joined by " + ". Those of an overlay or protocol are found by their suffix.
	Packets string
	// Connect is what carries it where the socket was translated at connect time; "" where no hook sees
	// the socket or there is nothing to translate.
	Connect string
}

// Paths are all rows.
var Paths = []Path{
	{FromPod, PodAddress, SameNode, "peer", ""},
	{FromPod, PodAddress, OtherNode, "remote", ""},
	{FromPod, NodeAddress, SameHost, "own host", ""},
	{FromPod, NodeAddress, OtherHost, "other host", ""},
	{FromPod, OutAddress, Outside, "masqueraded", ""},
	{FromPod, ExcludedOut, Outside, "routed outside", ""},

	{FromPod, ClusterIP, SameNode, "service peer", "peer"},
	{FromPod, ClusterIP, OtherNode, "service remote", "remote"},
	{FromPod, ClusterIP, Itself, "hairpin", "inside"},
	{FromPod, ClusterIP, SameHost, "service own host", "own host"},
	{FromPod, ClusterIP, OtherHost, "service other host", "other host"},
	{FromPod, ClusterIP, None, "refused by pod's program", "refused by the hook"},

	{FromPod, NodePort, SameNode, "service peer", "peer"},
	{FromPod, NodePort, OtherNode, "service remote", "remote"},
	{FromPod, NodePort, Itself, "hairpin", "inside"},
	{FromPod, NodePort, SameHost, "service own host", "own host"},
	{FromPod, NodePort, None, "refused by pod's program", "refused by the hook"},

	{FromPod, NodePortOther, SameNode, "service peer", "peer"},
	{FromPod, NodePortOther, OtherNode, "service remote", "remote"},
	{FromPod, NodePortOther, OtherHost, "service other host", "other host"},
	{FromPod, NodePortOther, None, "refused by pod's program", "refused by the hook"},

	{FromPod, ExternalIP, SameNode, "service peer", "peer"},
	{FromPod, ExternalIP, OtherNode, "service remote", "remote"},
	{FromPod, ExternalIP, None, "refused by pod's program", "refused by the hook"},

	{FromPod, LoadBalancer, SameNode, "service peer", "peer"},
	{FromPod, LoadBalancer, OtherNode, "service remote", "remote"},
	{FromPod, LoadBalancer, None, "refused by pod's program", "refused by the hook"},

	{FromMesh, ClusterIP, SameNode, "mesh", ""},
	{FromMesh, ClusterIP, OtherNode, "mesh remote", ""},

	{FromOutside, NodePort, SameNode, "entry local", ""},
	{FromOutside, NodePort, OtherNode, "entry forwarded", ""},
	{FromOutside, NodePort, SameHost, "entry own host", ""},
	{FromOutside, NodePort, OtherHost, "entry other host", ""},
	{FromOutside, NodePort, None, "refused by uplink's program", ""},

	{FromOutside, ExternalIP, SameNode, "entry local", ""},
	{FromOutside, ExternalIP, OtherNode, "entry forwarded", ""},
	{FromOutside, ExternalIP, None, "refused by uplink's program", ""},

	{FromOutside, LoadBalancer, SameNode, "entry local", ""},
	{FromOutside, LoadBalancer, OtherNode, "entry forwarded", ""},
	{FromOutside, LoadBalancer, None, "refused by uplink's program", ""},

	{FromNode, PodAddress, SameNode, "host local", ""},
	{FromNode, PodAddress, OtherNode, "host remote", ""},

	{FromNode, ClusterIP, SameNode, "bpfin local", "host local"},
	{FromNode, ClusterIP, OtherNode, "bpfin remote", "host remote"},
	{FromNode, ClusterIP, SameHost, "bpfin own host", "inside"},
	{FromNode, ClusterIP, OtherHost, "bpfin other host", "host other host"},
	{FromNode, ClusterIP, None, "refused by bpfout", "refused by the hook"},

	{FromNode, NodePort, SameNode, "lo + bpfin local", "host local"},
	{FromNode, NodePort, OtherNode, "lo + bpfin remote", "host remote"},
	{FromNode, NodePort, SameHost, "lo + bpfin own host", "inside"},
	{FromNode, NodePort, OtherHost, "lo + bpfin other host", "host other host"},
	{FromNode, NodePort, None, "lo + refused by bpfout", "refused by the hook"},

	{FromNode, NodePortOther, SameNode, "node 2 forwards", "host local"},
	{FromNode, NodePortOther, OtherNode, "node 2 delivers", "host remote"},
	{FromNode, NodePortOther, OtherHost, "node 2 answers", "host other host"},
	{FromNode, NodePortOther, None, "refused by node 2", "refused by the hook"},

	{FromNode, ExternalIP, SameNode, "bpfin local", "host local"},
	{FromNode, ExternalIP, OtherNode, "bpfin remote", "host remote"},
	{FromNode, ExternalIP, SameHost, "bpfin own host", "inside"},
	{FromNode, ExternalIP, None, "refused by bpfout", "refused by the hook"},

	{FromNode, LoadBalancer, SameNode, "bpfin local", "host local"},
	{FromNode, LoadBalancer, OtherNode, "bpfin remote", "host remote"},
	{FromNode, LoadBalancer, OtherHost, "bpfin other host", "host other host"},
	{FromNode, LoadBalancer, None, "refused by bpfout", "refused by the hook"},

	{FromNode, NodePortLocal, SameNode, "refused by the kernel", "host local"},
	{FromNode, NodePortLocal, OtherNode, "refused by the kernel", "host remote"},
	{FromNode, NodePortLocal, SameHost, "refused by the kernel", "inside"},
	{FromNode, NodePortLocal, None, "refused by the kernel", "refused by the hook"},
}

// Socket is how the client's program talks.
type Socket string

// The kinds of sockets. Mapped ones are IPv6 sockets that talk to an IPv4 address.
const (
	TCP           Socket = "TCP"
	UDPConnected  Socket = "UDP connected"
	UDP           Socket = "UDP"
	MappedTCP     Socket = "v4-mapped TCP"
	MappedUDP     Socket = "v4-mapped UDP"
	MappedUDPConn Socket = "v4-mapped UDP connected"
	mappedSuffix         = "v4-mapped "
	connectedMark        = " connected"
	protocolOfUDP        = "UDP"
	protocolOfTCP        = "TCP"
)

func (s Socket) udp() bool       { return strings.Contains(string(s), protocolOfUDP) }
func (s Socket) mapped() bool    { return strings.HasPrefix(string(s), mappedSuffix) }
func (s Socket) connected() bool { return strings.HasSuffix(string(s), connectedMark) }

// Mode is for whom the agents balance at connect time.
type Mode string

// The modes: the four values of connectTimeLoadBalancing, and Enabled on a kernel without the hooks.
const (
	Enabled  Mode = "Enabled"
	TCPOnly  Mode = "TCPOnly"
	HostOnly Mode = "HostOnly"
	Disabled Mode = "Disabled"
	NoHooks  Mode = "NoHooks"
)

// Modes are all of them.
var Modes = []Mode{Enabled, TCPOnly, HostOnly, Disabled, NoHooks}

// Site is what the agents and their nodes are like.
type Site struct {
	Overlay  string // VXLAN or Direct
	Mode     Mode
	Firewall bool // the nodes forward nothing and drop what netfilter calls INVALID
}

// String names the site: VXLAN, Enabled, firewall.
func (s Site) String() string {
	if s.Firewall {
		return fmt.Sprintf("%s, %s, firewall", s.Overlay, s.Mode)
	}
	return fmt.Sprintf("%s, %s", s.Overlay, s.Mode)
}

// Cell is one run of a path.
type Cell struct {
	Path
	IPv6   bool
	Socket Socket
	Site   Site
}

// Cells are all cells of a site.
func Cells(site Site) []Cell {
	var all []Cell
	for _, p := range Paths {
		for _, ipv6 := range []bool{false, true} {
			for _, socket := range []Socket{TCP, UDPConnected, UDP, MappedTCP, MappedUDP, MappedUDPConn} {
				if c := (Cell{p, ipv6, socket, site}); c.exists() {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// exists leaves out what would be the same as another cell: kinds of sockets matter where a hook may see
// them.
func (c Cell) exists() bool {
	if c.Socket.mapped() && (c.IPv6 || c.Connect == "" || !slices.Contains([]Frontend{ClusterIP, NodePort, NodePortLocal}, c.To)) {
		return false
	}
	if c.refused() && c.Socket.udp() && !c.Socket.connected() {
		// An ICMP error is told to connected sockets only; a hook tells both kinds.
		return c.atConnect()
	}
	if c.Connect == "" && c.Socket == UDPConnected {
		return c.refused() // the refusal is all that differs
	}
	return true
}

// atConnect says whether a hook translates the cell's socket.
func (c Cell) atConnect() bool {
	if c.Connect == "" {
		return false
	}
	switch c.Site.Mode {
	case Enabled:
		return true
	case TCPOnly:
		return !c.Socket.udp()
	case HostOnly:
		return c.From == FromNode
	}
	return false
}

// String names the cell as a sentence: pod to ClusterIP, backend on other node, IPv6, UDP, VXLAN, Enabled.
func (c Cell) String() string {
	backend := map[Backend]string{
		SameNode: "backend on same node", OtherNode: "backend on other node", Itself: "backend is the client",
		SameHost: "backend is the host", OtherHost: "backend is the other host", Outside: "outside", None: "no backends",
	}[c.Backend]
	return fmt.Sprintf("%s to %s, %s, %s, %s, %s", c.From, c.To, backend, c.family(), c.Socket, c.Site)
}

func (c Cell) family() string {
	if c.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

func (c Cell) protocol() string {
	if c.Socket.udp() {
		return protocolOfUDP
	}
	return protocolOfTCP
}
