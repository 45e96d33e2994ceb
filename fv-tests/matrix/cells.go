// SPDX-License-Identifier: Apache-2.0

// Package matrix sends real traffic along every path of a lab and says what carried it.
//
// What comes in: the list of paths and mechanisms in this file, and a lab. What goes out: for each
// cell (path, family, protocol) an outcome: payload, client address, reply source, and the mechanism as
// the dataplane's own counters show it. A cell fails when any of these is wrong, also when another
// mechanism than the expected one carried the traffic.
package matrix

import (
	"fmt"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Client is where a cell's traffic starts. A client pod stands on node 1; an outside client enters the
// cluster by node 1.
type Client string

// Frontend is the kind of address the client talks to.
type Frontend string

// Backend is where the answer must come from: node 1, node 2, the client pod itself, or nowhere.
type Backend string

// The dimensions of a cell besides family, protocol and overlay.
const (
	FromPod     Client = "pod"
	FromOutside Client = "outside"
	FromNode    Client = "node"

	PodAddress    Frontend = "pod address"
	ClusterIP     Frontend = "ClusterIP"
	NodePort      Frontend = "NodePort of node 1"
	NodePortOther Frontend = "NodePort of node 2"
	ExternalIP    Frontend = "ExternalIP"
	LoadBalancer  Frontend = "load balancer IP"

	SameNode  Backend = "same node"
	OtherNode Backend = "other node"
	Itself    Backend = "itself"
	None      Backend = "none"
)

// Path is a row of the matrix. Each is run in both families, over TCP and UDP, on each overlay.
type Path struct {
	From      Client
	To        Frontend
	Backend   Backend
	Mechanism string // a name in mechanisms; "remote" is the overlay's own
}

// Paths are all rows.
var Paths = []Path{
	{FromPod, PodAddress, SameNode, "peer"},
	{FromPod, PodAddress, OtherNode, "remote"},

	{FromPod, ClusterIP, SameNode, "service peer"},
	{FromPod, ClusterIP, OtherNode, "service remote"},
	{FromPod, ClusterIP, Itself, "hairpin"},
	{FromPod, ClusterIP, None, "refused by pod's program"},

	{FromPod, NodePort, SameNode, "service peer"},
	{FromPod, NodePort, OtherNode, "service remote"},
	{FromPod, NodePort, Itself, "hairpin"},
	{FromPod, NodePort, None, "refused by pod's program"},

	{FromPod, NodePortOther, SameNode, "service peer"},
	{FromPod, NodePortOther, OtherNode, "service remote"},
	{FromPod, NodePortOther, None, "refused by pod's program"},

	{FromPod, ExternalIP, SameNode, "service peer"},
	{FromPod, ExternalIP, OtherNode, "service remote"},
	{FromPod, ExternalIP, None, "refused by pod's program"},

	{FromPod, LoadBalancer, SameNode, "service peer"},
	{FromPod, LoadBalancer, OtherNode, "service remote"},
	{FromPod, LoadBalancer, None, "refused by pod's program"},

	{FromOutside, NodePort, SameNode, "entry local"},
	{FromOutside, NodePort, OtherNode, "entry forwarded"},
	{FromOutside, NodePort, None, "refused by uplink's program"},

	{FromOutside, ExternalIP, SameNode, "entry local"},
	{FromOutside, ExternalIP, OtherNode, "entry forwarded"},
	{FromOutside, ExternalIP, None, "refused by uplink's program"},

	{FromOutside, LoadBalancer, SameNode, "entry local"},
	{FromOutside, LoadBalancer, OtherNode, "entry forwarded"},
	{FromOutside, LoadBalancer, None, "refused by uplink's program"},

	{FromNode, PodAddress, SameNode, "host local"},
	{FromNode, PodAddress, OtherNode, "host remote"},
}

// where names a program on one of the two nodes: of the entry node (node 1: the client's, or where
// outside traffic comes in) or of the far one (node 2).
type where struct {
	far   bool
	hook  layout.Hook
	class layout.Class
}

var (
	entryFromWEP    = where{false, layout.HookIngress, layout.ClassWEP}
	entryToWEP      = where{false, layout.HookEgress, layout.ClassWEP}
	entryFromHEP    = where{false, layout.HookIngress, layout.ClassHEP}
	entryFromTunnel = where{false, layout.HookIngress, layout.ClassTunnel}
	entryToTunnel   = where{false, layout.HookEgress, layout.ClassTunnel}
	farFromWEP      = where{true, layout.HookIngress, layout.ClassWEP}
	farFromHEP      = where{true, layout.HookIngress, layout.ClassHEP}
	farFromTunnel   = where{true, layout.HookIngress, layout.ClassTunnel}
)

// count is a counter that must have grown by at least min.
type count struct {
	at      where
	counter layout.Counter
	min     uint64
}

// mechanism is what the counters show when traffic took a certain way: counters that must have grown,
// and counters that must not have, on either node and in any program.
type mechanism struct {
	want  []count
	never []layout.Counter
}

// established is how many packets of a flow must have taken the established way: TCP moves a megabyte,
// UDP four datagrams each way of which the first makes the flow.
const established = 2

// mechanisms by name. "remote" and "service remote" depend on the overlay: see mechanismFor.
var mechanisms = map[string]mechanism{
	"peer": {
		want: []count{
			{entryFromWEP, layout.CountNewFlow, 1},
			{entryFromWEP, layout.CountFastPath, established},
			{entryFromWEP, layout.CountRedirectPeer, established},
		},
		never: []layout.Counter{layout.CountRedirectTunnel, layout.CountServiceNew},
	},
	"remote VXLAN": {
		want: []count{
			{entryFromWEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountRedirectTunnel, established},
			{entryFromTunnel, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountServiceNew, layout.CountTunnelKey},
	},
	"remote Direct": {
		want: []count{
			{entryFromWEP, layout.CountRedirectNeigh, established},
			{farFromHEP, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountRedirectNeigh, established},
			{entryFromHEP, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountServiceNew, layout.CountRedirectTunnel, layout.CountTunnelKey},
	},
	"service peer": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountUnnat, established},
			{entryFromWEP, layout.CountFastPath, established},
			{entryFromWEP, layout.CountRedirectPeer, established},
		},
		never: []layout.Counter{layout.CountRedirectTunnel, layout.CountHairpin},
	},
	"service remote VXLAN": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountRedirectTunnel, established},
			{entryFromTunnel, layout.CountUnnat, established},
			{entryFromTunnel, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountTunnelKey},
	},
	"service remote Direct": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountRedirectNeigh, established},
			{farFromHEP, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountRedirectNeigh, established},
			{entryFromHEP, layout.CountUnnat, established},
			{entryFromHEP, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountRedirectTunnel, layout.CountTunnelKey},
	},
	"hairpin": {
		want: []count{
			{entryFromWEP, layout.CountHairpin, 1},
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountUnnat, established},
		},
		never: []layout.Counter{layout.CountRedirectTunnel},
	},
	"entry local": {
		want: []count{
			{entryFromHEP, layout.CountServiceNew, 1},
			{entryFromHEP, layout.CountDNAT, established},
			{entryFromHEP, layout.CountRedirectPeer, 1},
			{entryFromWEP, layout.CountUnnat, established},
		},
		never: []layout.Counter{layout.CountRedirectTunnel},
	},
	"entry forwarded": {
		want: []count{
			{entryFromHEP, layout.CountServiceNew, 1},
			{entryFromHEP, layout.CountDNAT, established},
			{entryFromHEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountRedirectTunnel, established},
			{entryFromTunnel, layout.CountUnnat, established},
		},
		never: []layout.Counter{layout.CountTunnelKey},
	},
	"refused by pod's program TCP": {
		want: []count{{entryFromWEP, layout.CountRSTSent, 1}, {entryFromWEP, layout.DropNoBackend, 1}},
	},
	"refused by pod's program UDP": {
		want: []count{{entryFromWEP, layout.CountICMPSent, 1}, {entryFromWEP, layout.DropNoBackend, 1}},
	},
	"refused by uplink's program TCP": {
		want: []count{{entryFromHEP, layout.CountRSTSent, 1}, {entryFromHEP, layout.DropNoBackend, 1}},
	},
	"refused by uplink's program UDP": {
		want: []count{{entryFromHEP, layout.CountICMPSent, 1}, {entryFromHEP, layout.DropNoBackend, 1}},
	},
	"host local": {
		want: []count{
			{entryToWEP, layout.CountNewFlow, 1},
			{entryToWEP, layout.CountToStack, established},
			{entryFromWEP, layout.CountToStack, established},
		},
		never: []layout.Counter{layout.CountRedirectTunnel, layout.CountServiceNew},
	},
	"host remote VXLAN": {
		want: []count{
			{entryToTunnel, layout.CountTunnelKey, established},
			{farFromTunnel, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountServiceNew},
	},
	"host remote Direct": {
		want:  []count{{farFromHEP, layout.CountRedirectPeer, 1}},
		never: []layout.Counter{layout.CountServiceNew, layout.CountTunnelKey, layout.CountRedirectTunnel},
	},
}

// Cell is one run of a path.
type Cell struct {
	Path
	IPv6    bool
	UDP     bool
	Overlay string
}

// Cells are all cells of an overlay.
func Cells(overlay string) []Cell {
	var all []Cell
	for _, p := range Paths {
		for _, ipv6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				all = append(all, Cell{p, ipv6, udp, overlay})
			}
		}
	}
	return all
}

// String names the cell as a sentence: pod to ClusterIP, backend on other node, IPv6, UDP, VXLAN.
func (c Cell) String() string {
	backend := map[Backend]string{
		SameNode: "backend on same node", OtherNode: "backend on other node",
		Itself: "backend is the client", None: "no backends",
	}[c.Backend]
	return fmt.Sprintf("%s to %s, %s, %s, %s, %s", c.From, c.To, backend, c.family(), c.protocol(), c.Overlay)
}

func (c Cell) family() string {
	if c.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

func (c Cell) protocol() string {
	if c.UDP {
		return "UDP"
	}
	return "TCP"
}

// mechanism finds what must carry the cell.
func (c Cell) mechanism() (name string, m mechanism, err error) {
	for _, name := range []string{c.Mechanism, c.Mechanism + " " + c.Overlay, c.Mechanism + " " + c.protocol()} {
		if m, ok := mechanisms[name]; ok {
			return name, m, nil
		}
	}
	return "", mechanism{}, fmt.Errorf("cell %s: no mechanism %q", c, c.Mechanism)
}
