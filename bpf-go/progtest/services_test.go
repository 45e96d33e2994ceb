// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestServices(t *testing.T) { play(t, serviceFixtures) }

func TestExternalServices(t *testing.T) { play(t, externalFixtures) }

func TestAffinity(t *testing.T) { play(t, affinityFixtures) }

func TestCollisions(t *testing.T) { play(t, collisionFixtures) }

// direct makes node2's pods reachable without the tunnel.
var direct = routeTo("podR", func(*run) maps.Route {
	return maps.Route{Flags: layout.RTWorkload | layout.RTPool, NodeID: 2, NextHop: addrOf("node2", layout.FamilyV4)}
})

// hairpin is podA asking a service whose backend it is.
var hairpin = flow{client: "podA:40000", asked: "vip:80", backend: "podA:8080", shown: "node1:40000"}

var serviceFixtures = []fixture{
	{
		name:     "a pod's connection to a service with its backend on the node goes straight from pod to pod",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: toService.open(
			toService.sends("PA", 1001, 5001),
			toService.answers("PA", 5001, 1001),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a pod's datagram to a service goes to a backend on the node, and the first reply confirms the flow",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:53"),
				want: redirect, out: becomes(udp("podA:40000", "podB:5353").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			{
				at: "to_wep podB", send: udp("podA:40000", "podB:5353").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "podA:40000").data(90),
				want: redirect, out: becomes(udp("vip:53", "podA:40000").data(90).ttl(63)),
				counted: plus(viaPeer, layout.CountPromoted, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:53").data(31),
				want: redirect, out: becomes(udp("podA:40000", "podB:5353").data(31).ttl(63)),
				counted: plus(viaPeer, layout.CountFastPath, layout.CountDNAT),
			},
		},
		entries: []string{
			"udp podA:40000 > podB:5353 => vip:53 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5353 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a datagram without a checksum is translated and still has none", only: onlyV4,
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "vip:53").withoutSum(),
			want: redirect, out: becomes(udp("podA:40000", "podB:5353").withoutSum().ttl(63)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		keep: true,
	},
	{
		name:     "a backend of another node is reached through the tunnel, and its answer comes back by it",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
				want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: plus(newService, layout.CountRedirectTunnel),
			},
			{
				at: "from_tunnel", outer: "node2", send: toRemote.in("SA", serverISN, 1001),
				want: redirect, out: becomes(toRemote.inXlated("SA", serverISN, 1001)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: toRemote.out("A", 1001, 5001),
				want: redirect, out: becomes(toRemote.outXlated("A", 1001, 5001)), marked: layout.MarkBypass,
				counted: counters{layout.CountPromoted, layout.CountDNAT, layout.CountRedirectTunnel},
			},
			{
				at: "from_tunnel", outer: "node2", send: toRemote.in("PA", 5001, 1001),
				want: redirect, out: becomes(toRemote.inXlated("PA", 5001, 1001)),
				counted: plus(viaPeer, layout.CountUnnat, layout.CountFastPath),
			},
		},
		entries: []string{
			"tcp podA:40000 > podR:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | tunnel, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podR:8080 | nat-fwd established | 2/0 packets | tunnel, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a backend of another node is reached by the FIB where the overlay is direct",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		prepare:  direct,
		steps: []step{
			{
				at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
				want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: plus(newService, layout.CountRedirectNeigh),
			},
			{
				at: "from_hep", send: toRemote.in("SA", serverISN, 1001),
				want: redirect, out: becomes(toRemote.inXlated("SA", serverISN, 1001)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp podA:40000 > podR:8080 => vip:80 > podA:40000 | nat-rev replied half-open | 1/1 packets | fib, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podR:8080 | nat-fwd replied half-open | 1/0 packets | fib, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a pod that is its own backend sees the node as its client",
		services: []service{svc("vip:80", protoTCP, "podA:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: hairpin.out("S", clientISN, 0),
				want: redirect, out: becomes(hairpin.outXlated("S", clientISN, 0)),
				counted: plus(plus(newService, viaPeer...), layout.CountHairpin),
			},
			{
				at: "from_wep podA", send: hairpin.in("SA", serverISN, 1001),
				want: redirect, out: becomes(hairpin.inXlated("SA", serverISN, 1001)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: hairpin.out("A", 1001, 5001),
				want: redirect, out: becomes(hairpin.outXlated("A", 1001, 5001)),
				counted: plus(viaPeer, layout.CountPromoted, layout.CountDNAT),
			},
		},
		entries: []string{
			"tcp node1:40000 > podA:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podA, peer podA | approved-0 approved-1 hairpin snat",
			"tcp podA:40000 > vip:80 => node1:40000 > podA:8080 | nat-fwd established | 2/0 packets | peer podA, peer podA | approved-0 approved-1 hairpin snat",
		},
	},
	{
		name:     "a SYN to a service without backends is answered by a reset from the service's address",
		services: []service{svc("vip:80", protoTCP)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("podA:40000", "vip:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropNoBackend),
		}},
	},
	{
		name:     "a datagram to a service without backends is answered by port unreachable from the service's address",
		services: []service{svc("vip:53", protoUDP)},
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "vip:53"),
			want: redirect, out: becomes(answer("vip", portUnreachable, udp("podA:40000", "vip:53"))),
			marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropNoBackend),
		}},
	},
	{
		name:     "a SYN that is sent again keeps its backend, whatever the service has become",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			toService.syn(),
			{
				before: svc("vip:80", protoTCP, "podR:8080").replaces(),
				at:     "from_wep podA", send: toService.out("S", clientISN, 0),
				want: redirect, out: becomes(toService.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
				counted: plus(viaVeth, layout.CountDNAT),
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 2/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "a frontend that counts backends which are not there drops and says so",
		services: []service{svc("vip:80", protoTCP, "podB:8080").withoutBackends()},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: dropped, counted: counters{layout.DropBackendMissing},
		}},
	},
	{
		name:     "a service of one protocol is none of another's, and another port is no service",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:80"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:81", "S"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
		},
		entries: []string{
			"tcp podA:40000 > vip:81 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
			"udp podA:40000 > vip:80 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name:     "internal traffic policy Local uses the node's backends only",
		services: []service{svc("vip:80", protoTCP, "podR:8080").with(layout.FEITPLocal).locally("podB:8080")},
		steps:    []step{toService.syn()},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "internal traffic policy Local without a backend on the node drops, it does not refuse",
		services: []service{svc("vip:80", protoTCP, "podR:8080").with(layout.FEITPLocal | layout.FEDropNoLocal)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: dropped, counted: counters{layout.DropNoLocalBackend},
		}},
	},
	{
		name:     "internal traffic policy Local without any backend refuses",
		services: []service{svc("vip:80", protoTCP).with(layout.FEITPLocal)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("podA:40000", "vip:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropNoBackend),
		}},
	},
	{
		name:     "SCTP is translated where the port stays the same",
		services: []service{svc("vip:80", protoSCTP, "podB:80")},
		steps: []step{{
			at: "from_wep podA", send: sctp("podA:40000", "vip:80"),
			want: redirect, out: becomes(sctp("podA:40000", "podB:80").ttl(63)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		entries: []string{
			"sctp podA:40000 > podB:80 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"sctp podA:40000 > vip:80 => podA:40000 > podB:80 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "SCTP to a backend on another port is dropped: its checksum can not be patched",
		services: []service{svc("vip:80", protoSCTP, "podB:8080")},
		steps: []step{{
			at: "from_wep podA", send: sctp("podA:40000", "vip:80"),
			want: dropped, counted: plus(newFlow, layout.CountServiceNew, layout.DropRewrite),
		}},
		keep: true,
	},
	{
		name:     "policy that denies keeps a pod from a service, and leaves no entry",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"), deny: true,
			want: dropped, counted: counters{layout.CountServiceNew, layout.DropPolicy},
		}},
	},
	{
		name:     "policy that denies keeps a service's client out of a backend",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			toService.syn(),
			{
				at: "to_wep podB", send: toService.outXlated("S", clientISN, 0), mark: layout.MarkSeen, deny: true,
				want: dropped, counted: counters{layout.DropPolicy},
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
}

// Flows from outside, as the node's hooks see them.
var (
	fromOutside = flow{client: "client:50000", asked: "node1:30080", backend: "podB:8080"}
	forwarded   = flow{client: "client:50000", asked: "node1:30080", backend: "podR:8080"}
	otherNode   = flow{client: "podA:40000", asked: "node2:30080", backend: "podB:8080"}
)

// nodePortForwarded is the first packet from outside to a backend of another node, and the answer.
var nodePortForwarded = []step{
	{
		at: "from_hep", send: forwarded.out("S", clientISN, 0),
		want: redirect, out: becomes(forwarded.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
		counted: plus(newService, layout.CountRedirectTunnel),
	},
	{
		at: "from_tunnel", outer: "node2", send: forwarded.in("SA", serverISN, 1001),
		want: redirect, out: becomes(forwarded.inXlated("SA", serverISN, 1001)), marked: layout.MarkBypass,
		counted: counters{layout.CountUnnat, layout.CountRedirectNeigh},
	},
	{
		at: "from_hep", send: forwarded.out("A", 1001, 5001),
		want: redirect, out: becomes(forwarded.outXlated("A", 1001, 5001)), marked: layout.MarkBypass,
		counted: counters{layout.CountPromoted, layout.CountDNAT, layout.CountRedirectTunnel},
	},
}

var externalFixtures = []fixture{
	{
		name:     "a client outside reaches a pod of the node by NodePort, and is answered by the node's address",
		services: []service{external("node1:30080", protoTCP, "podB:8080")},
		steps: []step{
			{
				at: "from_hep", send: fromOutside.out("S", clientISN, 0),
				want: redirect, out: becomes(fromOutside.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			fromOutside.judge(),
			{
				at: "from_wep podB", send: fromOutside.in("SA", serverISN, 1001),
				want: redirect, out: becomes(fromOutside.inXlated("SA", serverISN, 1001)), marked: layout.MarkBypass,
				counted: counters{layout.CountUnnat, layout.CountRedirectNeigh},
			},
			{
				at: "from_hep", send: fromOutside.out("A", 1001, 5001),
				want: redirect, out: becomes(fromOutside.outXlated("A", 1001, 5001)),
				counted: plus(viaPeer, layout.CountPromoted, layout.CountDNAT),
			},
			{
				at: "from_wep podB", send: fromOutside.in("PA", 5001, 1001).data(100),
				want: redirect, out: becomes(fromOutside.inXlated("PA", 5001, 1001).data(100)), marked: layout.MarkBypass,
				counted: counters{layout.CountUnnat, layout.CountRedirectNeigh, layout.CountFastPath},
			},
		},
		entries: []string{
			"tcp client:50000 > node1:30080 => client:50000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, unknown | approved-0 approved-1",
			"tcp client:50000 > podB:8080 => node1:30080 > client:50000 | nat-rev established | 1/2 packets | peer podB, fib | approved-0 approved-1",
		},
	},
	{
		name:     "a NodePort's backend on another node gets the client's own address through the tunnel",
		services: []service{external("node1:30080", protoTCP, "podR:8080")},
		steps:    nodePortForwarded,
		entries: []string{
			"tcp client:50000 > node1:30080 => client:50000 > podR:8080 | nat-fwd established | 2/0 packets | tunnel, unknown | approved-0 approved-1 np-fwd",
			"tcp client:50000 > podR:8080 => node1:30080 > client:50000 | nat-rev established | 1/1 packets | tunnel, fib | approved-0 approved-1 np-fwd",
		},
	},
	{
		name:     "a NodePort's backend on another node is reached through the tunnel also where the overlay is direct",
		services: []service{external("node1:30080", protoTCP, "podR:8080")},
		prepare:  direct,
		steps:    nodePortForwarded,
		entries: []string{
			"tcp client:50000 > node1:30080 => client:50000 > podR:8080 | nat-fwd established | 2/0 packets | tunnel, unknown | approved-0 approved-1 np-fwd",
			"tcp client:50000 > podR:8080 => node1:30080 > client:50000 | nat-rev established | 1/1 packets | tunnel, fib | approved-0 approved-1 np-fwd",
		},
	},
	{
		name: "a forwarded client's packet goes to the pod, and the pod's answer back to the node that forwarded it",
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: tcp("client:50000", "podB:8080", "S"),
				want: redirect, out: becomes(tcp("client:50000", "podB:8080", "S").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_wep podB", send: tcp("client:50000", "podB:8080", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "client:50000", "SA").at(serverISN, 1001),
				want: redirect, out: becomes(tcp("podB:8080", "client:50000", "SA").at(serverISN, 1001).ttl(63)),
				marked: layout.MarkBypass, counted: counters{layout.CountRedirectTunnel},
			},
		},
		entries: []string{
			"tcp client:50000 > podB:8080 | normal replied half-open | 1/1 packets | peer podB, tunnel | peer node2 | approved-0 approved-1",
		},
	},
	{
		name: "a forwarded client's answer goes back by a tunnel over IPv6",
		prepare: globals(func(g *layout.Globals) {
			g.Flags |= uint32(layout.GFUnderlayV6)
		}),
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: tcp("client:50000", "podB:8080", "S"),
				want: redirect, out: becomes(tcp("client:50000", "podB:8080", "S").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "client:50000", "SA").at(serverISN, 1001),
				want: redirect, out: becomes(tcp("podB:8080", "client:50000", "SA").at(serverISN, 1001).ttl(63)),
				marked: layout.MarkBypass, counted: counters{layout.CountRedirectTunnel},
			},
		},
		entries: []string{
			"tcp client:50000 > podB:8080 | normal replied half-open | 1/1 packets | peer podB, tunnel | peer node2 | approved-0",
		},
	},
	{
		name:     "a pod that asks another node's NodePort is balanced on its own node",
		services: []service{external("anynode:30080", protoTCP, "podB:8080").with(layout.FENodeport)},
		steps:    []step{otherNode.syn()},
		entries: []string{
			"tcp podA:40000 > node2:30080 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > podB:8080 => node2:30080 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "another port of another node is the kernel's to route",
		services: []service{external("anynode:30080", protoTCP, "podB:8080").with(layout.FENodeport)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "node2:22", "S"),
			want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
		}},
		entries: []string{
			"tcp podA:40000 > node2:22 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name:     "a client outside is refused by a service without backends: TCP by a reset",
		services: []service{external("extip:80", protoTCP)},
		steps: []step{{
			at: "from_hep", send: tcp("client:50000", "extip:80", "S").withScale(7),
			want: redirect, out: becomes(resetFor(tcp("client:50000", "extip:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropNoBackend),
		}},
	},
	{
		name:     "a client outside is refused by a service without backends: UDP by port unreachable",
		services: []service{external("extip:53", protoUDP)},
		steps: []step{{
			at: "from_hep", send: udp("client:50000", "extip:53").data(600),
			want: redirect, out: becomes(answer("extip", portUnreachable, udp("client:50000", "extip:53").data(600))),
			marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropNoBackend),
		}},
	},
	{
		name: "external traffic policy Local keeps a client outside to the node's backends",
		services: []service{
			external("node1:30080", protoTCP, "podR:8080").with(layout.FEETPLocal).locally("podB:8080"),
		},
		steps: []step{{
			at: "from_hep", send: fromOutside.out("S", clientISN, 0),
			want: redirect, out: becomes(fromOutside.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		entries: []string{
			"tcp client:50000 > node1:30080 => client:50000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, unknown | approved-0",
			"tcp client:50000 > podB:8080 => node1:30080 > client:50000 | nat-rev new half-open | 1/0 packets | peer podB, unknown | approved-0",
		},
	},
	{
		name: "external traffic policy Local does not bind pods: they get the cluster's backends",
		services: []service{
			external("extip:80", protoTCP, "podB:8080").with(layout.FEETPLocal | layout.FEDropNoLocal),
		},
		steps: []step{flow{client: "podA:40000", asked: "extip:80", backend: "podB:8080"}.syn()},
		entries: []string{
			"tcp podA:40000 > extip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > podB:8080 => extip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "external traffic policy Local without a backend on the node drops what comes from outside",
		services: []service{
			external("node1:30080", protoTCP, "podR:8080").with(layout.FEETPLocal | layout.FEDropNoLocal),
		},
		steps: []step{{
			at: "from_hep", send: fromOutside.out("S", clientISN, 0),
			want: dropped, counted: counters{layout.DropNoLocalBackend},
		}},
	},
	{
		name:     "the host's own connection to a service is translated at bpfout and left to the kernel",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "S"),
				want: pass, out: becomes(tcp("node1:45000", "podB:8080", "S")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_wep podB", send: tcp("node1:45000", "podB:8080", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "node1:45000", "SA").at(serverISN, 1001),
				want: pass, out: becomes(tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001)), marked: layout.MarkSeen,
				counted: plus(toStack, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp node1:45000 > podB:8080 => vip:80 > node1:45000 | nat-rev replied half-open | 1/1 packets | stack, stack | approved-0 approved-1",
			"tcp node1:45000 > vip:80 => node1:45000 > podB:8080 | nat-fwd replied half-open | 1/0 packets | stack, unknown | approved-0",
		},
	},
	{
		name:     "a client behind a device without Ethernet headers reaches a service",
		services: []service{external("extip:80", protoTCP, "podB:8080")},
		steps: []step{{
			at: "from_l3dev", send: tcp("l3peer:50000", "extip:80", "S"),
			want: pass, out: becomes(tcp("l3peer:50000", "podB:8080", "S")), marked: layout.MarkSeen,
			counted: plus(newService, toStack...),
		}},
		entries: []string{
			"tcp l3peer:50000 > extip:80 => l3peer:50000 > podB:8080 | nat-fwd new half-open | 1/0 packets | stack, unknown | approved-0",
			"tcp l3peer:50000 > podB:8080 => extip:80 > l3peer:50000 | nat-rev new half-open | 1/0 packets | stack, unknown | approved-0",
		},
	},
}

// again is podA's next connection to the service, from the next port.
func again(port, backend string, before func(*run), counted ...layout.Counter) step {
	f := flow{client: "podA:" + port, asked: "vip:80", backend: backend}
	s := f.syn()
	s.before = before
	s.counted = plus(s.counted, counted...)
	return s
}

// sticky is the service of the affinity fixtures, with a client's memory of a minute.
func sticky(backends ...string) service { return svc("vip:80", protoTCP, backends...).sticky(60) }

var affinityFixtures = []fixture{
	{
		name:     "a client with affinity keeps its backend when others are added",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			again("40001", "podB:8080", sticky("podB:8081", "podB:8082", "podB:8083", "podB:8080").replaces(),
				layout.CountAffinityHit),
		},
		keep: true,
	},
	{
		name:     "affinity that is used lives on",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			again("40001", "podB:8080", age(50*time.Second), layout.CountAffinityHit),
			again("40002", "podB:8080", age(50*time.Second), layout.CountAffinityHit),
		},
		keep: true,
	},
	{
		name:     "affinity that has not been used for its time is over",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			again("40001", "podB:8081", all(age(61*time.Second), sticky("podB:8081").replaces())),
		},
		keep: true,
	},
	{
		name:     "affinity to a backend that is gone is over",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			again("40001", "podB:8081", all(forgetBackend("podB:8080"), sticky("podB:8081").replaces())),
		},
		keep: true,
	},
	{
		name:     "affinity to a backend that is not in the list which is balanced over does not count",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			again("40001", "podB:8081", sticky("podB:8081").locally("podB:8080").replaces()),
		},
		keep: true,
	},
	{
		name:     "affinity of one client is not another's",
		services: []service{sticky("podA:8080")},
		steps: []step{
			{
				at: "from_wep podB", send: tcp("podB:40000", "vip:80", "S"),
				want: redirect, out: becomes(tcp("podB:40000", "podA:8080", "S").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			again("40000", "podB:8080", sticky("podB:8080").replaces()),
		},
		keep: true,
	},
}

// forgetBackend removes the entry that affinity finds a backend by.
func forgetBackend(end string) func(*run) {
	return func(r *run) {
		r.must(r.set.Backends.Remove(maps.BackendKey{
			Family: r.family, SvcID: 1, Ordinal: uint32(layout.BEByID) | backendNumber(end),
		}))
	}
}

// Two services with the same backend, asked from the same port; and that backend asked directly from it.
var (
	secondService = flow{client: "podA:40000", asked: "vip2:80", backend: "podB:8080", shown: "podA:33000"}
	twoServices   = []service{
		svc("vip:80", protoTCP, "podB:8080"),
		svc("vip2:80", protoTCP, "podB:8080").number(2),
	}
	besides = flow{client: "podA:40000", asked: "podB:8080", backend: "podB:8080", shown: "podA:33000"}
)

func withSourcePort(s step) step {
	s.counted = plus(s.counted, layout.CountSourcePort)
	return s
}

// conflicting is the direct flow's first packet.
func conflicting() step {
	s := withSourcePort(besides.syn())
	s.counted = plus(newFlow, layout.CountHostConflict, layout.CountSourcePort, layout.CountDNAT, layout.CountRedirectNeigh)
	return s
}

var collisionFixtures = []fixture{
	{
		name:     "two services with one backend asked from one port get different ports behind the translation",
		services: twoServices,
		steps: append(toService.open(), withSourcePort(secondService.syn()), secondService.judge(),
			secondService.synAck(), secondService.ack(),
			toService.answers("A", 5001, 1001), secondService.answers("A", 5001, 1001)),
		entries: []string{
			"tcp podA:33000 > podB:8080 => vip2:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1 snat",
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip2:80 => podA:33000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1 snat",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a colliding flow is dropped where there are no ports to choose from",
		services: twoServices,
		prepare:  globals(func(g *layout.Globals) { g.PSNATStart, g.PSNATCount = 0, 0 }),
		steps: []step{toService.syn(), {
			at: "from_wep podA", send: secondService.out("S", clientISN, 0),
			want: dropped, counted: counters{layout.CountPolicyAllow, layout.CountServiceNew, layout.DropPortExhausted},
		}},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "a colliding flow is dropped where all ports are taken",
		services: append(twoServices, svc("extip:80", protoTCP, "podB:8080").number(3)),
		steps: []step{toService.syn(), withSourcePort(secondService.syn()), {
			at: "from_wep podA", send: tcp("podA:40000", "extip:80", "S"),
			want: dropped, counted: counters{
				layout.CountPolicyAllow, layout.CountServiceNew, layout.CountSourcePort, layout.DropPortExhausted,
			},
		}},
		entries: []string{
			"tcp podA:33000 > podB:8080 => vip2:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0 snat",
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip2:80 => podA:33000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0 snat",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "a flow that is over leaves its tuple to the next",
		services: twoServices,
		steps: []step{
			toService.syn(),
			func() step {
				f := flow{client: "podA:40000", asked: "vip2:80", backend: "podB:8080"}
				s := f.syn()
				s.before = age(21 * time.Second)
				return s
			}(),
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip2:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip2:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "a direct flow with the numbers of a translated one gets another source port and a key of its own",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: append(toService.open(), conflicting(), besides.judge(), besides.synAck(), besides.ack(),
			besides.sends("PA", 1001, 5001).slow(), besides.answers("PA", 5001, 1001),
			toService.sends("PA", 1001, 5001), toService.answers("PA", 5001, 1001)),
		entries: []string{
			"tcp podA:33000 > podB:8080 => podB:8080 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1 snat conflict",
			"tcp podA:40000 > podB:8080 => podA:33000 > podB:8080 | nat-fwd established zone 1 | 3/0 packets | peer podB, peer podA | approved-0 approved-1 snat conflict",
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
}
