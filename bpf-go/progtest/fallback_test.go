// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// TestFallback is about what this host asks of services without being balanced at connect time: out by
// bpfin.cali or lo, in by bpfout.cali.
func TestFallback(t *testing.T) { play(t, slices.Concat(viaNAT, viaLo, hostCollisions)) }

// withPair has the node's pair of NAT interfaces there.
func withPair(r *run) {
	globals(func(g *layout.Globals) { g.NatoutIfindex = r.ifindex["bpfout"] })(r)
}

// intoHost is how an answer to this host comes in: by bpfout's ingress.
var intoHost = counters{layout.CountRedirectNatout}

var viaNAT = []fixture{
	{
		name:     "the backend's answer to this host enters the stack by bpfout, and its program there lets it in",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		prepare:  withPair,
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
				want: redirect, out: becomes(tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001)), marked: layout.MarkBypass,
				counted: plus(intoHost, layout.CountUnnat),
			},
			{
				at: "from_nat", send: tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001), mark: layout.MarkBypass,
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountBypass},
			},
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "A").at(1001, 5001),
				want: pass, out: becomes(tcp("node1:45000", "podB:8080", "A").at(1001, 5001)), marked: layout.MarkSeen,
				counted: plus(toStack, layout.CountPromoted, layout.CountDNAT),
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "node1:45000", "PA").at(5001, 1001).data(70),
				want: redirect, out: becomes(tcp("vip:80", "node1:45000", "PA").at(5001, 1001).data(70)), marked: layout.MarkBypass,
				counted: plus(intoHost, layout.CountUnnat, layout.CountFastPath),
			},
		},
		entries: []string{
			"tcp node1:45000 > podB:8080 => vip:80 > node1:45000 | nat-rev established | 1/2 packets | stack, natout | approved-0 approved-1 host-origin",
			"tcp node1:45000 > vip:80 => node1:45000 > podB:8080 | nat-fwd established | 2/0 packets | stack, unknown | approved-0 approved-1 host-origin",
		},
	},
	{
		name:     "an answer from another node's pod enters the stack by bpfout, by the tunnel",
		services: []service{svc("vip:53", protoUDP, "podR:5353")},
		prepare:  withPair,
		steps: []step{
			{
				at: "from_nat", send: udp("node1:45000", "vip:53"),
				want: pass, out: becomes(udp("node1:45000", "podR:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_tunnel", send: udp("node1:45000", "podR:5353").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountTunnelKey},
			},
			{
				at: "from_tunnel", outer: "node2", send: udp("podR:5353", "node1:45000"),
				want: redirect, out: becomes(udp("vip:53", "node1:45000")), marked: layout.MarkBypass,
				counted: plus(intoHost, layout.CountUnnat, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name:     "an answer from another node's pod enters the stack by bpfout, by the wire",
		services: []service{svc("vip:53", protoUDP, "podR:5353")},
		prepare:  func(r *run) { withPair(r); direct(r) },
		steps: []step{
			{
				at: "from_nat", send: udp("node1:45000", "vip:53"),
				want: pass, out: becomes(udp("node1:45000", "podR:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_hep", send: udp("node1:45000", "podR:5353").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
			{
				at: "from_hep", send: udp("podR:5353", "node1:45000"),
				want: redirect, out: becomes(udp("vip:53", "node1:45000")), marked: layout.MarkBypass,
				counted: plus(intoHost, layout.CountUnnat, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name:     "without the pair an answer to this host is left to the stack where it came in",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			{
				at: "from_nat", send: udp("node1:45000", "vip:53"),
				want: pass, out: becomes(udp("node1:45000", "podB:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "node1:45000"),
				want: pass, out: becomes(udp("vip:53", "node1:45000")), marked: layout.MarkStack,
				counted: plus(toStack, layout.CountUnnat, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name:     "a service without backends refuses this host by bpfin",
		services: []service{svc("vip:80", protoTCP)},
		prepare:  withPair,
		steps: []step{{
			at: "from_nat", send: tcp("node1:45000", "vip:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("node1:45000", "vip:80", "S"))), marked: layout.MarkBypass,
			counted: counters{layout.DropNoBackend, layout.CountRSTSent, layout.CountRedirectBack},
		}},
	},
	{
		name:    "a port that a service does not have is refused to this host at once, and does not go round in circles",
		prepare: withPair,
		steps: []step{
			{
				at: "from_nat", send: tcp("node1:45000", "vip:81", "S"),
				want: redirect, out: becomes(resetFor(tcp("node1:45000", "vip:81", "S"))), marked: layout.MarkBypass,
				counted: counters{layout.DropNoBackend, layout.CountRSTSent, layout.CountRedirectBack},
			},
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "A").at(7, 9),
				want: redirect, out: becomes(tcp("vip:80", "node1:45000", "R").at(9, 0).window(0).mayFragment().back()), marked: layout.MarkBypass,
				counted: counters{layout.DropNoBackend, layout.CountRSTSent, layout.CountRedirectBack},
			},
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "R").at(7, 9), want: dropped,
				counted: counters{layout.DropUnknownFlow},
			},
			{at: "from_nat", send: ping("node1", "vip"), want: dropped, counted: counters{layout.DropNoRoute}},
			{at: "from_nat", send: udp("node1:45000", "vip:53").fragment(moreFragments), want: dropped, counted: counters{layout.DropFragment}},
		},
	},
}

var viaLo = []fixture{
	{
		name:     "what this host asks of a port of its own that is a service's is taken out of lo and balanced at bpfout",
		services: []service{external("node1:30080", protoTCP, "podB:8080")},
		prepare:  withPair,
		steps: []step{
			{
				at: "to_lo", send: tcp("node1:45000", "node1:30080", "S"), want: redirect, counted: intoHost,
			},
			{
				at: "from_nat", send: tcp("node1:45000", "node1:30080", "S"),
				want: pass, out: becomes(tcp("node1:45000", "podB:8080", "S")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_lo", send: tcp("node1:45000", "node1:30080", "A").at(1001, 5001), want: redirect, counted: intoHost,
			},
		},
		entries: []string{
			"tcp node1:45000 > node1:30080 => node1:45000 > podB:8080 | nat-fwd new half-open | 1/0 packets | stack, unknown | approved-0 host-origin",
			"tcp node1:45000 > podB:8080 => node1:30080 > node1:45000 | nat-rev new half-open | 1/0 packets | stack, unknown | approved-0 host-origin",
		},
	},
	{
		name: "a packet with extension headers, as the kernel's own jumbograms have, is taken out of lo like any other", only: onlyV6,
		services: []service{external("node1:30080", protoUDP, "podB:8080")},
		prepare:  withPair,
		steps: []step{{
			at: "to_lo", send: udp("node1:45000", "node1:30080").withExt(extDest), want: redirect, counted: intoHost,
		}},
	},
	{
		name:     "this host's own answer to what it asked of a service is translated when it comes in by lo",
		services: []service{svc("vip:80", protoTCP, "node1:8080")},
		prepare:  withPair,
		steps: []step{
			{
				at: "from_nat", send: tcp("node1:45000", "vip:80", "S"),
				want: pass, out: becomes(tcp("node1:45000", "node1:8080", "S")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_lo", send: tcp("node1:8080", "node1:45000", "SA").at(serverISN, 1001), want: pass,
				marked: layout.MarkLoReply, counted: toStack,
			},
			{
				at: "from_lo", send: tcp("node1:8080", "node1:45000", "SA").at(serverISN, 1001), mark: layout.MarkLoReply,
				want: pass, out: becomes(tcp("vip:80", "node1:45000", "SA").at(serverISN, 1001)), marked: layout.MarkSeen,
				counted: plus(toStack, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp node1:45000 > node1:8080 => vip:80 > node1:45000 | nat-rev replied half-open | 1/1 packets | stack, stack | approved-0 approved-1 host-origin",
			"tcp node1:45000 > vip:80 => node1:45000 > node1:8080 | nat-fwd replied half-open | 1/0 packets | stack, unknown | approved-0 approved-1 host-origin",
		},
	},
	{
		name:     "a port of this host without backends refuses this host by bpfout, the only way in for what came by lo",
		services: []service{external("node1:30080", protoUDP)},
		prepare:  withPair,
		steps: []step{{
			at: "from_nat", send: udp("node1:45000", "node1:30080"), want: redirect,
			out:    becomes(answer("node1", portUnreachable, udp("node1:45000", "node1:30080"))),
			marked: layout.MarkBypass, counted: counters{layout.DropNoBackend, layout.CountICMPSent, layout.CountRedirectBack},
		}},
	},
	{
		name:     "an error of this host's kernel about a translated packet is told in the terms of the socket that sent it",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		prepare:  withPair,
		steps: []step{
			{
				at: "from_nat", send: udp("node1:45000", "vip:53"),
				want: pass, out: becomes(udp("node1:45000", "podB:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_lo", send: icmpError("node1", "node1", hostUnreachable, udp("node1:45000", "podB:5353")), want: pass,
				out:     becomes(icmpError("node1", "node1", hostUnreachable, udp("node1:45000", "vip:53"))),
				counted: plus(toStack, layout.CountICMPRelated),
			},
		},
		keep: true,
	},
}

var hostCollisions = []fixture{
	{
		name:     "this host's own connection to a pod that has the numbers of a translated one gets another port where it leaves",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		prepare:  withPair,
		steps: []step{
			{
				at: "from_nat", send: udp("node1:45000", "vip:53"),
				want: pass, out: becomes(udp("node1:45000", "podB:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "to_wep podB", send: udp("node1:45000", "podB:5353"), want: pass, out: becomes(udp("node1:33000", "podB:5353")),
				counted: plus(newFlow, layout.CountToStack, layout.CountHostConflict, layout.CountSourcePort, layout.CountDNAT),
			},
			{
				at: "to_wep podB", send: udp("node1:45000", "podB:5353").data(9), want: pass, out: becomes(udp("node1:33000", "podB:5353").data(9)),
				counted: plus(toStack, layout.CountDNAT),
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "node1:33000"),
				want: pass, out: becomes(udp("podB:5353", "node1:45000")), marked: layout.MarkStack,
				counted: plus(toStack, layout.CountUnnat, layout.CountPromoted),
			},
			{
				at: "to_wep podB", send: udp("node1:45000", "podB:5353").data(11), want: pass, out: becomes(udp("node1:33000", "podB:5353").data(11)),
				counted: plus(toStack, layout.CountDNAT),
			},
		},
		keep: true,
	},
}

// TestLeavingTheCluster is about what pods send to addresses that mean something beyond this node.
func TestLeavingTheCluster(t *testing.T) { play(t, leaving) }

// masqueraded makes podA one whose packets are to be masqueraded where they leave the cluster.
func masqueraded(r *run) {
	route := r.routes()["podA"]
	route.Flags |= layout.RTNATOut
	r.must(r.putRoute("podA", r.family, route))
}

var leaving = []fixture{
	{
		name:    "every packet of a pod's flow out of the cluster is marked to be masqueraded, and answered by the stack",
		prepare: masqueraded,
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "client:53"), want: pass, marked: layout.MarkNATOut,
				counted: plus(newFlow, layout.CountToStack, layout.CountNATOut),
			},
			{at: "to_wep podA", send: udp("client:53", "podA:40000"), want: pass, counted: plus(toStack, layout.CountPromoted)},
			{
				at: "from_wep podA", send: udp("podA:40000", "client:53").data(3), want: pass, marked: layout.MarkNATOut,
				counted: plus(toStack, layout.CountFastPath),
			},
		},
		entries: []string{
			"udp podA:40000 > client:53 | normal established | 2/1 packets | stack, stack podA | approved-0 approved-1 via-stack nat-out",
		},
	},
	{
		name: "a backend outside the cluster is reached masqueraded", services: []service{svc("vip:80", protoTCP, "client:8080")},
		prepare: masqueraded,
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: pass, out: becomes(tcp("podA:40000", "client:8080", "S")), marked: layout.MarkNATOut,
			counted: plus(newService, layout.CountToStack, layout.CountNATOut),
		}},
		keep: true,
	},
	{
		name: "an address outside that is excluded is reached with the pod's own",
		prepare: func(r *run) {
			masqueraded(r)
			routeTo("client", func(*run) maps.Route { return maps.Route{Flags: layout.RTPool} })(r)
		},
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "client:53"), want: pass, marked: layout.MarkStack,
			counted: plus(newFlow, layout.CountToStack),
		}},
		keep: true,
	},
	{
		name: "the node is reached with the pod's own address", prepare: masqueraded,
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "node1:53"), want: pass, marked: layout.MarkStack,
			counted: plus(newFlow, layout.CountToStack),
		}},
		keep: true,
	},
	{
		name: "another node is reached by the overlay, where its network need not know pods' addresses",
		prepare: func(r *run) {
			masqueraded(r)
			routeTo("node2", func(r *run) maps.Route {
				route := r.routes()["node2"]
				route.Flags |= layout.RTTunneled
				return route
			})(r)
		},
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "node2:53"),
				want: redirect, out: becomes(udp("podA:40000", "node2:53").ttl(63)), marked: layout.MarkBypass,
				counted: plus(newFlow, layout.CountRedirectTunnel),
			},
			{
				at: "from_tunnel", outer: "node2", send: udp("node2:53", "podA:40000"),
				want: redirect, out: becomes(udp("node2:53", "podA:40000").ttl(63)), counted: plus(viaPeer, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name: "an answer to somebody outside who asked the pod itself leaves past the stack, as the question came in",
		steps: []step{
			{
				at: "from_hep", send: udp("client:50000", "podB:53"),
				want: redirect, out: becomes(udp("client:50000", "podB:53").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_wep podB", send: udp("client:50000", "podB:53").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: udp("podB:53", "client:50000"),
				want: redirect, out: becomes(udp("podB:53", "client:50000").ttl(63)), marked: layout.MarkBypass,
				counted: counters{layout.CountRedirectNeigh, layout.CountPromoted},
			},
		},
		keep: true,
	},
	{
		name: "what the stack has translated for a pod on its way to another node is answered through the stack",
		steps: []step{
			{
				at: "to_tunnel", send: udp("podA:40000", "podR:53").ttl(63), mark: layout.MarkNATOut,
				want: pass, marked: layout.MarkBypass, counted: plus(newFlow, layout.CountTunnelKey),
			},
			{
				at: "from_tunnel", outer: "node2", send: udp("podR:53", "podA:40000"),
				want: pass, marked: layout.MarkSeen, counted: plus(toStack, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name:    "the same by the wire, where the overlay is direct",
		prepare: direct,
		steps: []step{
			{
				at: "to_hep", send: tcp("podA:40000", "podR:80", "S").ttl(63), mark: layout.MarkStack,
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, layout.CountToStack),
			},
			{
				at: "from_hep", send: tcp("podR:80", "podA:40000", "SA").at(serverISN, 1001),
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
		},
		keep: true,
	},
	{
		name: "an answer that came in before its question was seen is taken for a new flow, until the question tells better",
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: udp("podR:53", "podA:40000"), want: redirect,
				out: becomes(udp("podR:53", "podA:40000").ttl(63)), marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_tunnel", send: udp("podA:40000", "podR:53").ttl(63), mark: layout.MarkStack,
				want: pass, marked: layout.MarkBypass, counted: plus(newFlow, layout.CountTunnelKey),
			},
			{
				at: "from_tunnel", outer: "node2", send: udp("podR:53", "podA:40000"),
				want: pass, marked: layout.MarkSeen, counted: plus(toStack, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name: "the same between pods of the node",
		steps: []step{
			{
				at: "from_wep podB", send: udp("podB:53", "podA:40000"), want: redirect,
				out: becomes(udp("podB:53", "podA:40000").ttl(63)), marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_wep podA", send: udp("podB:53", "podA:40000").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "to_wep podB", send: udp("podA:40000", "podB:53").ttl(63), mark: layout.MarkNATOut,
				want: pass, marked: layout.MarkNATOut, counted: plus(newFlow, layout.CountToStack),
			},
			{
				at: "from_wep podB", send: udp("podB:53", "podA:40000"),
				want: pass, marked: layout.MarkStack, counted: plus(toStack, layout.CountPromoted),
			},
		},
		keep: true,
	},
	{
		name: "a flow that began by the stack because a pod was not known yet stays with it when the pod is",
		prepare: func(r *run) {
			r.must(r.set.Routes.Remove(netip.PrefixFrom(addrOf("podA", r.family), addrOf("podA", r.family).BitLen())))
		},
		steps: []step{
			{
				at: "from_wep podB", send: udp("podB:53", "podA:40000"), want: pass, marked: layout.MarkStack,
				counted: plus(newFlow, layout.CountToStack),
			},
			{
				before: func(r *run) { r.must(r.putRoute("podA", r.family, r.routes()["podA"])); raiseEpoch(r) },
				at:     "from_wep podB", send: udp("podB:53", "podA:40000").data(7), want: pass, marked: layout.MarkStack,
				counted: toStack,
			},
		},
		keep: true,
	},
	{
		name: "a client whose address another node kept is told what fits into the tunnel by which this host answers",
		steps: []step{{
			at: "from_tunnel", outer: "node2", send: tcp("client:50000", "node1:8080", "S").withScale(8),
			want: pass, out: becomes(tcp("client:50000", "node1:8080", "S").withScale(8).withClampedMSS()), marked: layout.MarkSeen,
			counted: plus(newFlow, layout.CountToStack),
		}},
		keep: true,
	},
}
