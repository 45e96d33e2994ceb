// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestErrorsAboutFlows(t *testing.T) { play(t, relatedFixtures) }

// aboutFlow is an error about a known flow on its way into a pod: translated, straight to where it belongs.
func aboutFlow(at string, sent, arrives packet) step {
	return step{
		at: at, send: sent, want: redirect, out: becomes(arrives.ttl(63)), counted: plus(viaPeer, layout.CountICMPRelated),
	}
}

func (s step) through(node string) step { s.outer = node; return s }

// head is as much of a TCP segment as routers must quote: the network header and eight bytes. All of TCP's checksum lies
// behind them.
func head(p packet, f family) int {
	if f == onlyV6 {
		return 48
	}
	return 28 + p.options
}

// remoteUDP is a datagram to a service whose backend is on another node, confirmed by the answer.
var remoteUDP = []step{
	{
		at: "from_wep podA", send: udp("podA:40000", "vip:53"),
		want: redirect, out: becomes(udp("podA:40000", "podR:5353").ttl(63)), marked: layout.MarkBypass,
		counted: plus(newService, layout.CountRedirectTunnel),
	},
	{
		at: "from_tunnel", outer: "node2", send: udp("podR:5353", "podA:40000"),
		want: redirect, out: becomes(udp("vip:53", "podA:40000").ttl(63)),
		counted: plus(viaPeer, layout.CountUnnat, layout.CountPromoted),
	},
}

var remoteDNS = []service{svc("vip:53", protoUDP, "podR:5353")}

// quotingOnly makes the two families' fixtures of an error that quotes eight bytes of a TCP segment.
func quotingOnly(name string, services []service, before []step, then func(head func(packet) int) step) []fixture {
	var both []fixture
	for _, f := range []family{onlyV4, onlyV6} {
		both = append(both, fixture{
			name: name, only: f, services: services, keep: true,
			steps: append(append([]step{}, before...), then(func(p packet) int { return head(p, f) })),
		})
	}
	return both
}

var relatedFixtures = slices.Concat(
	errorsAbout("fragmentation needed", tooBig, 1200),
	errorsAbout("host unreachable", hostUnreachable, 0),
	errorsAbout("time exceeded", timeExceeded, 0),
	errorsAbout("parameter problem", badParameter, 0),
	quotingOnly("an error that quotes the head of a segment to a backend reaches the client in its own terms", oneService,
		toService.open(), func(head func(packet) int) step {
			quoted, known := toService.outXlated("PA", 1001, 5001), toService.out("PA", 1001, 5001).ttl(63)
			return aboutFlow("from_wep podB", icmpError("podB", "podA", portUnreachable, quoted).quoting(head(quoted)),
				icmpError("vip", "podA", portUnreachable, known).quoting(head(quoted)))
		}),
	quotingOnly("an error that quotes the head of an answer reaches the backend in its own terms", oneService,
		toService.open(), func(head func(packet) int) step {
			quoted, known := toService.inXlated("PA", 5001, 1001), toService.in("PA", 5001, 1001).ttl(63)
			return aboutFlow("from_wep podA", icmpError("podA", "vip", portUnreachable, quoted).quoting(head(quoted)),
				icmpError("podA", "podB", portUnreachable, known).quoting(head(quoted)))
		}),
	[]fixture{
		{
			name:     "a backend's own error shows the client the service's address",
			services: []service{svc("vip:53", protoUDP, "podB:5353")},
			steps: []step{
				datagram("5353", newService...),
				{
					at: "to_wep podB", send: udp("podA:40000", "podB:5353").ttl(63), mark: layout.MarkSeen,
					want: pass, marked: layout.MarkSeen, counted: judged,
				},
				aboutFlow("from_wep podB",
					icmpError("podB", "podA", portUnreachable, udp("podA:40000", "podB:5353").ttl(63)),
					icmpError("vip", "podA", portUnreachable, udp("podA:40000", "vip:53").ttl(63))),
			},
			keep: true,
		},
		{
			name: "an error about a direct flow goes to the pod as it is",
			steps: append(toPod.open()[:3:3],
				aboutFlow("from_hep", icmpError("router", "podA", hostUnreachable, toPod.outXlated("S", clientISN, 0)),
					icmpError("router", "podA", hostUnreachable, toPod.outXlated("S", clientISN, 0)))),
			keep: true,
		},
		{
			name: "an error about a flow that is sent to somebody else is judged as any packet",
			steps: append(toPod.open()[:3:3],
				step{
					at: "from_wep podA", send: icmpError("podA", "podR", hostUnreachable, toPod.outXlated("S", clientISN, 0)), deny: true,
					want: dropped, counted: counters{layout.DropPolicy},
				}),
			keep: true,
		},
		{
			name: "an error about a ping goes to the pod that sent it",
			steps: []step{
				{
					at: "from_wep podA", send: ping("podA", "podR"), want: redirect, out: becomes(ping("podA", "podR").ttl(63)),
					marked: layout.MarkBypass, counted: plus(newFlow, layout.CountRedirectTunnel),
				},
				aboutFlow("from_tunnel", icmpError("node2", "podA", timeExceeded, ping("podA", "podR").ttl(1)),
					icmpError("node2", "podA", timeExceeded, ping("podA", "podR").ttl(1))).through("node2"),
			},
			keep: true,
		},
		{
			name:     "the kernel's own error about a translated flow is translated on its way into the pod",
			services: remoteDNS,
			steps: append(remoteUDP[:1:1], step{
				at: "to_wep podA", send: icmpError("node1", "podA", hostUnreachable, udp("podA:40000", "podR:5353")),
				want: pass, out: becomes(icmpError("node1", "podA", hostUnreachable, udp("podA:40000", "vip:53"))),
				counted: plus(toStack, layout.CountICMPRelated),
			}),
			keep: true,
		},
		{
			name:     "an error about an answer to a client outside reaches the backend of another node through the tunnel",
			services: []service{external("node1:30080", protoTCP, "podR:8080")},
			steps: append(slices.Clone(nodePortForwarded), step{
				at:     "from_hep",
				send:   icmpError("router", "node1", timeExceeded, tcp("node1:30080", "client:50000", "A").at(5001, 1001)).quoting(48),
				want:   redirect,
				out:    becomes(icmpError("router", "podR", timeExceeded, tcp("podR:8080", "client:50000", "A").at(5001, 1001)).quoting(48).ttl(63)),
				marked: layout.MarkBypass, counted: counters{layout.CountICMPRelated, layout.CountRedirectTunnel},
			}),
			keep: true, only: onlyV6,
		},
		{
			name:     "an error about an answer to a client outside reaches the backend of the node",
			services: []service{external("node1:30053", protoUDP, "podB:5353")},
			steps: []step{
				{
					at: "from_hep", send: udp("client:50000", "node1:30053"), want: redirect,
					out: becomes(udp("client:50000", "podB:5353").ttl(63)), marked: layout.MarkSeen,
					counted: plus(newService, viaVeth...),
				},
				aboutFlow("from_hep",
					icmpError("router", "node1", tooBig, udp("node1:30053", "client:50000")).mtu(1300),
					icmpError("router", "podB", tooBig, udp("podB:5353", "client:50000")).mtu(1300)),
			},
			keep: true,
		},
		{
			name: "a quoted datagram without a checksum still has none when it is translated", only: onlyV4,
			services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), aboutFlow("from_tunnel",
				icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353").withoutSum()),
				icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "vip:53").withoutSum())).through("node2")),
			keep: true,
		},
		{
			name: "a quoted packet with IPv4 options is found and translated", only: onlyV4,
			services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), aboutFlow("from_tunnel",
				icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353").withOptions(8)),
				icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "vip:53").withOptions(8))).through("node2")),
			keep: true,
		},
		{
			name: "a quoted packet with extension headers is no flow that can be found: its error is judged like any packet",
			only: onlyV6, services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), step{
				at: "from_tunnel", outer: "node2",
				send: icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353").withExt(extHop)),
				want: redirect,
				out: becomes(icmpError("node2", "podA", hostUnreachable,
					udp("podA:40000", "podR:5353").withExt(extHop)).ttl(63)),
				marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
			}),
			keep: true,
		},
		{
			name: "an error that quotes a later fragment is judged like any packet", only: onlyV4,
			steps: []step{{
				at:     "from_wep podA",
				send:   icmpError("podA", "podB", timeExceeded, udp("podB:5353", "podA:40000").fragment(100)),
				want:   redirect,
				out:    becomes(icmpError("podA", "podB", timeExceeded, udp("podB:5353", "podA:40000").fragment(100)).ttl(63)),
				marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
			}},
			keep: true,
		},
		{
			name: "an error about no flow of ours is judged like any packet",
			steps: []step{{
				at: "from_wep podA", send: icmpError("podA", "client", portUnreachable, udp("client:53", "podA:40000")),
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
			}},
			entries: []string{
				"icmp podA > client | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
			},
		},
		{
			name: "an error about no flow of ours, to the host, is the host's",
			steps: []step{
				{
					at: "from_hep", send: icmpError("router", "node1", hostUnreachable, udp("node1:50000", "client:53")),
					want: pass, counted: toStack,
				},
				{
					at: "to_hep", send: icmpError("node1", "client", portUnreachable, udp("client:53", "node1:50000")),
					want: pass, counted: toStack,
				},
			},
		},
		{
			name: "a pod's error that quotes too little is dropped",
			steps: []step{
				{
					at: "from_wep podA", send: icmpError("podA", "podB", portUnreachable, udp("podB:5353", "podA:40000")).quoting(12),
					want: dropped, counted: counters{layout.DropICMPInner},
				},
				{
					at: "from_wep podA", send: icmpError("podA", "podB", portUnreachable, ping("podB", "podA")).quoting(20),
					want: dropped, counted: counters{layout.DropICMPInner},
				},
			},
		},
		{
			name: "a pod's error that quotes no IPv4 packet is dropped", only: onlyV4,
			steps: []step{{
				at: "from_wep podA", want: dropped, counted: counters{layout.DropICMPInner},
				send: icmpError("podA", "podB", portUnreachable, udp("podB:5353", "podA:40000")).setByte(ethLen+28, 0x65),
			}},
		},
		{
			name: "an error that quotes too little is left to the host",
			steps: []step{{
				at: "from_hep", send: icmpError("router", "node1", hostUnreachable, udp("node1:1", "client:53")).quoting(12),
				want: pass, counted: toStack,
			}},
		},
		{
			name: "no error is sent about an error: at the end of its hop limit it is dropped", services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), step{
				at: "from_tunnel", outer: "node2",
				send: icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353")).ttl(1),
				want: dropped, counted: counters{layout.CountICMPRelated, layout.DropTTL},
			}),
			keep: true,
		},
		{
			name: "no error is sent about an error: one that is too big is dropped", services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), step{
				at: "from_tunnel", outer: "node2",
				send: icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353").data(1440)).unfragmented(),
				want: dropped, counted: counters{layout.CountICMPRelated, layout.DropTooBig},
			}),
			keep: true,
		},
	},
)

// errorsAbout are the fixtures of one kind of error about a flow to a backend of another node, in both directions.
func errorsAbout(name string, kind [4]uint8, info uint32) []fixture {
	return []fixture{
		{
			name: name + " from a router on the way to the backend reaches the client in its own terms", services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), aboutFlow("from_tunnel",
				icmpError("node2", "podA", kind, udp("podA:40000", "podR:5353").ttl(9)).mtu(info),
				icmpError("node2", "podA", kind, udp("podA:40000", "vip:53").ttl(9)).mtu(info)).through("node2")),
			keep: true,
		},
		{
			name: name + " from the client about an answer reaches the backend in its own terms", services: remoteDNS,
			steps: append(slices.Clone(remoteUDP), step{
				at: "from_wep podA", send: icmpError("podA", "vip", kind, udp("vip:53", "podA:40000").ttl(9)).mtu(info),
				want: redirect, out: becomes(icmpError("podA", "podR", kind, udp("podR:5353", "podA:40000").ttl(9)).mtu(info).ttl(63)),
				marked: layout.MarkBypass, counted: counters{layout.CountICMPRelated, layout.CountRedirectTunnel},
			}),
			keep: true,
		},
	}
}
