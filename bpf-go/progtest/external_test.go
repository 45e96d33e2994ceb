// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestExternalServices(t *testing.T) { play(t, externalFixtures) }

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
			want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
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
				want: pass, out: becomes(tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001)), marked: layout.MarkStack,
				counted: plus(toStack, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp node1:45000 > podB:8080 => vip:80 > node1:45000 | nat-rev replied half-open | 1/1 packets | stack, stack | approved-0 approved-1 host-origin",
			"tcp node1:45000 > vip:80 => node1:45000 > podB:8080 | nat-fwd replied half-open | 1/0 packets | stack, unknown | approved-0 host-origin",
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
	{
		name:     "a pod's service whose backend is the host is answered past the stack's own translation, at the pod's interface",
		services: []service{svc("vip:80", protoTCP, "node1:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
				want: pass, out: becomes(tcp("podA:40000", "node1:8080", "S")), marked: layout.MarkStack,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_wep podA", send: tcp("node1:8080", "podA:40000", "SA").at(serverISN, 1001),
				want: pass, out: becomes(tcp("vip:80", "podA:40000", "SA").at(serverISN, 1001)),
				counted: plus(toStack, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:80", "A").at(1001, 5001),
				want: pass, out: becomes(tcp("podA:40000", "node1:8080", "A").at(1001, 5001)), marked: layout.MarkStack,
				counted: plus(toStack, layout.CountPromoted, layout.CountDNAT),
			},
			{
				at: "to_wep podA", send: tcp("node1:8080", "podA:40000", "PA").at(5001, 1001).data(50),
				want: pass, out: becomes(tcp("vip:80", "podA:40000", "PA").at(5001, 1001).data(50)),
				counted: plus(toStack, layout.CountUnnat, layout.CountFastPath),
			},
		},
		entries: []string{
			"tcp podA:40000 > node1:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | stack, stack podA | approved-0 approved-1 via-stack",
			"tcp podA:40000 > vip:80 => podA:40000 > node1:8080 | nat-fwd established | 2/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name:     "a client outside whose service's backend is the host is answered by the service's address",
		services: []service{external("extip:53", protoUDP, "node1:5353")},
		steps: []step{
			{
				at: "from_hep", send: udp("client:50000", "extip:53"),
				want: pass, out: becomes(udp("client:50000", "node1:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_hep", send: udp("node1:5353", "client:50000").data(200),
				want: pass, out: becomes(udp("extip:53", "client:50000").data(200)),
				counted: plus(toStack, layout.CountUnnat, layout.CountPromoted),
			},
			{
				at: "to_hep", send: udp("node1:5353", "client:50000"),
				want: pass, out: becomes(udp("extip:53", "client:50000")),
				counted: plus(toStack, layout.CountUnnat, layout.CountFastPath),
			},
		},
		entries: []string{
			"udp client:50000 > extip:53 => client:50000 > node1:5353 | nat-fwd established | 1/0 packets | stack, unknown | approved-0 approved-1",
			"udp client:50000 > node1:5353 => extip:53 > client:50000 | nat-rev established | 1/2 packets | stack, unknown | approved-0 approved-1",
		},
	},
	{
		name:     "a client outside gets a LoadBalancer's backend by its own port",
		services: []service{external("extip:443", protoTCP, "podB:8443")},
		steps: []step{{
			at: "from_hep", send: tcp("client:50000", "extip:443", "S").withScale(8), want: redirect,
			out: becomes(tcp("client:50000", "podB:8443", "S").withScale(8).ttl(63)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		entries: []string{
			"tcp client:50000 > extip:443 => client:50000 > podB:8443 | nat-fwd new half-open | 1/0 packets | peer podB, unknown | approved-0",
			"tcp client:50000 > podB:8443 => extip:443 > client:50000 | nat-rev new half-open | 1/0 packets | peer podB, unknown | approved-0",
		},
	},
	{
		name:     "a client whose address another node kept is translated no second time",
		services: []service{external("node1:30080", protoTCP, "podB:8080")},
		steps: []step{{
			at: "from_tunnel", outer: "node2", send: tcp("client:50000", "podB:8080", "S"), want: redirect,
			out: becomes(tcp("client:50000", "podB:8080", "S").ttl(63)), marked: layout.MarkSeen,
			counted: plus(newFlow, viaVeth...),
		}},
		entries: []string{
			"tcp client:50000 > podB:8080 | normal new half-open | 1/0 packets | peer podB, unknown | peer node2 | approved-0",
		},
	},
	{
		name:     "the host's own connection to a service's backend of another node gets its key where the kernel routes it",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: []step{
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "S"),
				want: pass, out: becomes(tcp("node1:45000", "podR:8080", "S")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_tunnel", send: tcp("node1:45000", "podR:8080", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountTunnelKey},
			},
			{
				at: "from_tunnel", outer: "node2", send: tcp("podR:8080", "node1:45000", "SA").at(serverISN, 1001),
				want: pass, out: becomes(tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001)), marked: layout.MarkSeen,
				counted: plus(toStack, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp node1:45000 > podR:8080 => vip:80 > node1:45000 | nat-rev replied half-open | 1/1 packets | stack, stack | approved-0 approved-1 host-origin",
			"tcp node1:45000 > vip:80 => node1:45000 > podR:8080 | nat-fwd replied half-open | 1/0 packets | stack, unknown | approved-0 approved-1 host-origin",
		},
	},
}
