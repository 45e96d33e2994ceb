// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestTunnel(t *testing.T) { play(t, tunnelFixtures) }

var (
	remotePod = flow{client: "podA:40000", asked: "podR:8080", backend: "podR:8080"}
	outer     = udp("node2:12345", "node1:4789").data(60)
)

var tunnelFixtures = []fixture{
	{
		name: "a pod reaches a pod of another node through the tunnel, which is neither's judge",
		steps: []step{
			{
				at: "from_wep podA", send: remotePod.out("S", clientISN, 0),
				want: redirect, out: becomes(remotePod.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: plus(newFlow, layout.CountRedirectTunnel),
			},
			{
				at: "to_tunnel", send: remotePod.outXlated("S", clientISN, 0), mark: layout.MarkBypass,
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountBypass},
			},
			{
				at: "from_tunnel", outer: "node2", send: remotePod.in("SA", serverISN, 1001),
				want: redirect, out: becomes(remotePod.inXlated("SA", serverISN, 1001)), counted: viaPeer,
			},
			{
				at: "from_wep podA", send: remotePod.out("A", 1001, 5001),
				want: redirect, out: becomes(remotePod.outXlated("A", 1001, 5001)), marked: layout.MarkBypass,
				counted: counters{layout.CountPromoted, layout.CountRedirectTunnel},
			},
		},
		entries: []string{
			"tcp podA:40000 > podR:8080 | normal established | 2/1 packets | tunnel, peer podA | approved-0 approved-1",
		},
	},
	{
		name:    "without a tunnel device there is no way to another node's pod",
		prepare: globals(func(g *layout.Globals) { g.TunnelIfindex = 0 }),
		steps: []step{{
			at: "from_wep podA", send: remotePod.out("S", clientISN, 0),
			want: dropped, counted: plus(newFlow, layout.DropNoRoute),
		}},
		keep: true,
	},
	{
		name:  "outer packets of a node are let in",
		steps: []step{{at: "from_hep", send: outer, want: pass, counted: counters{layout.CountVXLANOuter}}},
	},
	{
		name: "outer packets of a stranger are dropped",
		steps: []step{{
			at: "from_hep", send: outer.from("client:12345"), want: dropped, counted: counters{layout.DropTunnelSource},
		}},
	},
	{
		name: "outer packets that claim to be the node's own are dropped",
		steps: []step{{
			at: "from_hep", send: outer.from("node1:12345"), want: dropped, counted: counters{layout.DropTunnelSource},
		}},
	},
	{
		name: "outer packets of a pod's address are dropped",
		steps: []step{{
			at: "from_hep", send: outer.from("podR:12345"), want: dropped, counted: counters{layout.DropTunnelSource},
		}},
	},
	{
		name:  "tunnel packets to others are no business of this node",
		steps: []step{{at: "from_hep", send: outer.to("client:4789"), want: pass, counted: toStack}},
	},
	{
		name: "a pod can not make tunnel packets for a node",
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:12345", "node2:4789"),
				want: dropped, counted: counters{layout.DropTunnelSource},
			},
			{
				at: "from_wep podA", send: udp("podA:12345", "node1:4789"),
				want: dropped, counted: counters{layout.DropTunnelSource},
			},
		},
	},
	{
		name: "what the kernel routes to the tunnel gets its key",
		steps: []step{{
			at: "to_tunnel", send: tcp("node1:45000", "podR:8080", "S"),
			want: pass, marked: layout.MarkBypass, counted: counters{layout.CountTunnelKey},
		}},
	},
	{
		name: "what the kernel routes to the tunnel without a node behind the address is dropped",
		steps: []step{{
			at: "to_tunnel", send: tcp("node1:45000", "client:443", "S"),
			want: dropped, counted: counters{layout.DropNoRoute},
		}},
	},
	{
		name:    "an answer of the host's that is larger than a tunnel over IPv6 takes is dropped and counted, not sent into the void",
		prepare: globals(func(g *layout.Globals) { g.Flags |= uint32(layout.GFUnderlayV6) }),
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: udp("client:50000", "node1:53"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "to_hep", send: udp("node1:53", "client:50000").data(1460),
				want: dropped, counted: counters{layout.DropTooBig, layout.CountPromoted},
			},
			{
				at: "to_hep", send: udp("node1:53", "client:50000").data(1000), want: redirect, marked: layout.MarkBypass,
				counted: counters{layout.CountRedirectTunnel, layout.CountFastPath},
			},
		},
		keep: true,
	},
	{
		name: "a client whose address another node kept is answered by the host through that node's tunnel",
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: tcp("client:50000", "node1:8080", "S"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "to_hep", send: tcp("node1:8080", "client:50000", "SA").at(serverISN, 1001),
				want: redirect, marked: layout.MarkBypass, counted: counters{layout.CountRedirectTunnel},
			},
			{
				at: "from_tunnel", outer: "node2", send: tcp("client:50000", "node1:8080", "A").at(1001, 5001),
				want: pass, marked: layout.MarkSeen, counted: plus(toStack, layout.CountPromoted),
			},
			{
				at: "to_hep", send: tcp("node1:8080", "client:50000", "PA").at(5001, 1001),
				want: redirect, marked: layout.MarkBypass,
				counted: counters{layout.CountRedirectTunnel, layout.CountFastPath},
			},
			{
				at: "to_tunnel", send: tcp("node1:8080", "client:50000", "PA").at(5001, 1001),
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountTunnelKey, layout.CountFastPath},
			},
		},
		entries: []string{
			"tcp client:50000 > node1:8080 | normal established | 2/3 packets | stack, unknown | peer node2 | approved-0 approved-1",
		},
	},
	{
		name: "what another node's host sends through the tunnel to this host needs no entry",
		steps: []step{{
			at: "from_tunnel", outer: "node2", send: tcp("node2:45000", "node1:10250", "S"), want: pass, counted: toStack,
		}},
	},
	{
		name: "another node's host is answered by a pod through the tunnel that it came by",
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: tcp("node2:45000", "podB:8080", "S"),
				want: redirect, out: becomes(tcp("node2:45000", "podB:8080", "S").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_wep podB", send: tcp("node2:45000", "podB:8080", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "node2:45000", "SA").at(serverISN, 1001),
				want: redirect, out: becomes(tcp("podB:8080", "node2:45000", "SA").at(serverISN, 1001).ttl(63)),
				marked: layout.MarkBypass, counted: counters{layout.CountRedirectTunnel},
			},
		},
		entries: []string{
			"tcp node2:45000 > podB:8080 | normal replied half-open | 1/1 packets | peer podB, tunnel | peer node2 | approved-0 approved-1",
		},
	},
	{
		name: "an inner packet to nobody of this node is the kernel's",
		steps: []step{{
			at: "from_tunnel", outer: "node2", send: udp("podR:40000", "podX:53"), want: pass, counted: toStack,
		}},
	},
}
