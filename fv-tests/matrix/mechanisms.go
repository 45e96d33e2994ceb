// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"slices"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// The programs that mechanisms speak of.
var (
	entryFromWEP    = where{false, layout.HookIngress, layout.ClassWEP}
	entryToWEP      = where{false, layout.HookEgress, layout.ClassWEP}
	entryFromHEP    = where{false, layout.HookIngress, layout.ClassHEP}
	entryToHEP      = where{false, layout.HookEgress, layout.ClassHEP}
	entryFromTunnel = where{false, layout.HookIngress, layout.ClassTunnel}
	entryToTunnel   = where{false, layout.HookEgress, layout.ClassTunnel}
	entryFromNAT    = where{false, layout.HookIngress, layout.ClassNAT}
	entryFromLo     = where{false, layout.HookIngress, layout.ClassLo}
	entryToLo       = where{false, layout.HookEgress, layout.ClassLo}
	farFromWEP      = where{true, layout.HookIngress, layout.ClassWEP}
	farFromHEP      = where{true, layout.HookIngress, layout.ClassHEP}
	farToHEP        = where{true, layout.HookEgress, layout.ClassHEP}
	farFromTunnel   = where{true, layout.HookIngress, layout.ClassTunnel}
	farToTunnel     = where{true, layout.HookEgress, layout.ClassTunnel}
)

// established is how many packets of a flow must have taken the established way: TCP moves a megabyte,
// UDP four datagrams each way of which the first makes the flow.
const established = 2

// balanced are the counters of services that are found by packet: where a hook has found the service at
// connect time, none of them grows.
var balanced = []layout.Counter{layout.CountServiceNew, layout.CountDNAT, layout.CountUnnat, layout.CountRedirectNatout}

// tunnelled are the counters of the overlay.
var tunnelled = []layout.Counter{layout.CountRedirectTunnel, layout.CountTunnelKey}

// direct are those of overlay and services: none grows where pods and nodes of one link talk.
var direct = slices.Concat(tunnelled, []layout.Counter{layout.CountServiceNew})

// bpfin is what every service shows that the host asks by packet, and what comes on top.
func bpfin(more ...count) []count {
	return append([]count{{entryFromNAT, layout.CountServiceNew, 1}, {entryFromNAT, layout.CountDNAT, established}}, more...)
}

// mechanisms by name; with the suffix of an overlay or a protocol where those differ.
var mechanisms = map[string]mechanism{
	// Between pods, and between pods and nodes.
	"peer": {
		want: []count{
			{entryFromWEP, layout.CountFastPath, established},
			{entryFromWEP, layout.CountRedirectPeer, established},
		},
		never: direct,
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
		never: direct,
	},
	"own host": {
		want: []count{
			{entryFromWEP, layout.CountToStack, established},
			{entryToWEP, layout.CountToStack, established},
		},
		never: direct,
	},
	"other host VXLAN": {
		want: []count{
			{entryFromWEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountToStack, 1},
			{farToTunnel, layout.CountTunnelKey, established},
			{entryFromTunnel, layout.CountRedirectPeer, 1},
		},
		never: []layout.Counter{layout.CountServiceNew},
	},
	"other host Direct": {
		want: []count{
			{entryFromWEP, layout.CountToStack, established},
			{entryToWEP, layout.CountToStack, established},
		},
		never: direct,
	},
	"masqueraded": {
		want: []count{
			{entryFromWEP, layout.CountNATOut, 1},
			{entryFromWEP, layout.CountToStack, established},
		},
		never: direct,
		sees:  itsNode,
	},
	"routed outside": {
		want:  []count{{entryFromWEP, layout.CountNewFlow, 1}},
		never: slices.Concat(tunnelled, []layout.Counter{layout.CountServiceNew, layout.CountNATOut}),
	},

	// Services that pods ask.
	"service peer": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountUnnat, established},
			{entryFromWEP, layout.CountFastPath, established},
			{entryFromWEP, layout.CountRedirectPeer, established},
		},
		never: slices.Concat(tunnelled, []layout.Counter{layout.CountHairpin}),
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
		never: tunnelled,
	},
	"hairpin": {
		want: []count{
			{entryFromWEP, layout.CountHairpin, 1},
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountUnnat, established},
		},
		never: tunnelled,
		sees:  itsNode, // a pod drops packets that come in with its own address
	},
	"service own host": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountToStack, established},
			{entryToWEP, layout.CountUnnat, established},
		},
		never: tunnelled,
	},
	"service other host VXLAN": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountToStack, 1},
			{farToTunnel, layout.CountTunnelKey, established},
			{entryFromTunnel, layout.CountUnnat, established},
		},
	},
	"service other host Direct": {
		want: []count{
			{entryFromWEP, layout.CountServiceNew, 1},
			{entryFromWEP, layout.CountDNAT, established},
			{entryFromWEP, layout.CountRedirectNeigh, established},
			{entryFromHEP, layout.CountUnnat, established},
		},
		never: tunnelled,
	},
	"refused by pod's program TCP": {
		want:    []count{{entryFromWEP, layout.CountRSTSent, 1}, {entryFromWEP, layout.DropNoBackend, 1}},
		refused: true,
	},
	"refused by pod's program UDP": {
		want:    []count{{entryFromWEP, layout.CountICMPSent, 1}, {entryFromWEP, layout.DropNoBackend, 1}},
		refused: true,
	},

	// Services that are asked from outside.
	"entry local": {
		want: []count{
			{entryFromHEP, layout.CountServiceNew, 1},
			{entryFromHEP, layout.CountDNAT, established},
			{entryFromHEP, layout.CountRedirectPeer, 1},
			{entryFromWEP, layout.CountUnnat, established},
		},
		never: tunnelled,
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
	"entry own host": {
		want: []count{
			{entryFromHEP, layout.CountServiceNew, 1},
			{entryFromHEP, layout.CountDNAT, established},
			{entryToHEP, layout.CountUnnat, established},
		},
		never: tunnelled,
	},
	"entry other host": {
		want: []count{
			{entryFromHEP, layout.CountServiceNew, 1},
			{entryFromHEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountToStack, 1},
			{farToHEP, layout.CountRedirectTunnel, established},
			{entryFromTunnel, layout.CountUnnat, established},
		},
	},
	"refused by uplink's program TCP": {
		want:    []count{{entryFromHEP, layout.CountRSTSent, 1}, {entryFromHEP, layout.DropNoBackend, 1}},
		refused: true,
	},
	"refused by uplink's program UDP": {
		want:    []count{{entryFromHEP, layout.CountICMPSent, 1}, {entryFromHEP, layout.DropNoBackend, 1}},
		refused: true,
	},

	// What the host sends itself.
	"host local": {
		want: []count{
			{entryToWEP, layout.CountToStack, established},
			{entryFromWEP, layout.CountToStack, established},
		},
		never: direct,
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
		never: direct,
	},
	"host other host": {
		want:  []count{{farFromHEP, layout.CountToStack, 1}},
		never: direct,
	},

	// Services that the host asks by packet: by bpfin.cali into bpfout.cali's program, answers by
	// bpfout.cali too; what is sent to an address of the host itself gets there from lo.
	"lo": {want: []count{{entryToLo, layout.CountRedirectNatout, 1}}},
	"bpfin local": {
		want: bpfin(count{entryFromWEP, layout.CountUnnat, established},
			count{entryFromWEP, layout.CountRedirectNatout, established}),
		never: tunnelled,
	},
	"bpfin remote VXLAN": {
		want: bpfin(count{entryToTunnel, layout.CountTunnelKey, established},
			count{farFromTunnel, layout.CountRedirectPeer, 1},
			count{farFromWEP, layout.CountRedirectTunnel, established},
			count{entryFromTunnel, layout.CountUnnat, established},
			count{entryFromTunnel, layout.CountRedirectNatout, established}),
	},
	"bpfin remote Direct": {
		want: bpfin(count{farFromHEP, layout.CountRedirectPeer, 1},
			count{entryFromHEP, layout.CountUnnat, established},
			count{entryFromHEP, layout.CountRedirectNatout, established}),
		never: tunnelled,
	},
	"bpfin own host": {
		want:  bpfin(count{entryFromLo, layout.CountUnnat, established}),
		never: tunnelled,
	},
	"bpfin other host": {
		want: bpfin(count{farFromHEP, layout.CountToStack, 1},
			count{entryFromHEP, layout.CountUnnat, established},
			count{entryFromHEP, layout.CountRedirectNatout, established}),
		never: tunnelled,
	},
	"refused by bpfout TCP": {
		want:    []count{{entryFromNAT, layout.CountRSTSent, 1}, {entryFromNAT, layout.DropNoBackend, 1}},
		refused: true,
	},
	"refused by bpfout UDP": {
		want:    []count{{entryFromNAT, layout.CountICMPSent, 1}, {entryFromNAT, layout.DropNoBackend, 1}},
		refused: true,
	},

	// A NodePort of the other node, by packet: that node serves its neighbour as anybody from outside.
	"node 2 forwards": {
		want: []count{
			{farFromHEP, layout.CountServiceNew, 1},
			{farFromHEP, layout.CountRedirectTunnel, established},
			{entryFromTunnel, layout.CountRedirectPeer, 1},
			{entryFromWEP, layout.CountRedirectTunnel, established},
			{farFromTunnel, layout.CountUnnat, established},
		},
	},
	"node 2 delivers": {
		want: []count{
			{farFromHEP, layout.CountServiceNew, 1},
			{farFromHEP, layout.CountRedirectPeer, 1},
			{farFromWEP, layout.CountUnnat, established},
		},
		never: tunnelled,
	},
	"node 2 answers": {
		want: []count{
			{farFromHEP, layout.CountServiceNew, 1},
			{farToHEP, layout.CountUnnat, established},
		},
		never: tunnelled,
	},
	"refused by node 2 TCP": {
		want:    []count{{farFromHEP, layout.CountRSTSent, 1}, {farFromHEP, layout.DropNoBackend, 1}},
		refused: true,
	},
	"refused by node 2 UDP": {
		want:    []count{{farFromHEP, layout.CountICMPSent, 1}, {farFromHEP, layout.DropNoBackend, 1}},
		refused: true,
	},

	// What no program of ours sees a packet of.
	"inside":                {never: slices.Concat(tunnelled, balanced)},
	"refused by the hook":   {never: []layout.Counter{layout.CountRSTSent, layout.CountICMPSent}, refused: true},
	"refused by the kernel": {never: slices.Concat([]layout.Counter{layout.CountRSTSent, layout.CountICMPSent}, balanced), refused: true},

	// A sidecar's pod: connections go to the sidecar with their service address, the rest as if there
	// were no hooks.
	"mesh TCP":        {never: slices.Concat(tunnelled, balanced)},
	"mesh remote TCP": {never: slices.Concat(tunnelled, balanced)},
}

// aliases are mechanisms that are the same under another name.
var aliases = map[string]string{
	"mesh UDP": "service peer", "mesh remote UDP": "service remote",
}
