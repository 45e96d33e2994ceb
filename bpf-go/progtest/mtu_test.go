// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestHopLimit(t *testing.T) { play(t, hopFixtures) }

func TestMTU(t *testing.T) { play(t, mtuFixtures) }

// exceeded is a packet at the end of its hop limit, and the answer.
func exceeded(at string, p packet, counted ...layout.Counter) step {
	return step{
		at: at, send: p.ttl(1), want: redirect, out: becomes(answer("node1", timeExceeded, p.ttl(1))),
		marked: layout.MarkBypass, counted: plus(plus(sentICMP, layout.DropTTL), counted...),
	}
}

var hopFixtures = []fixture{
	{
		name: "a pod's first packet at the end of its hop limit is answered, and makes no flow", services: oneService,
		steps: []step{
			exceeded("from_wep podA", tcp("podA:40000", "podB:8080", "S"), layout.CountPolicyAllow),
			exceeded("from_wep podA", tcp("podA:40000", "vip:80", "S"), layout.CountPolicyAllow, layout.CountServiceNew),
			exceeded("from_wep podA", udp("podA:40000", "podR:53").data(400), layout.CountPolicyAllow),
		},
	},
	{
		name: "a known flow's packet at the end of its hop limit is answered in the sender's terms", services: oneService,
		steps: toService.open(
			exceeded("from_wep podA", toService.out("PA", 1001, 5001).data(300), layout.CountFastPath),
			exceeded("from_wep podB", toService.in("PA", 5001, 1001), layout.CountFastPath),
		),
		keep: true,
	},
	{
		name: "a packet at the end of its hop limit that came by the tunnel is answered through it",
		steps: []step{func() step {
			s := exceeded("from_tunnel", udp("podR:40000", "podB:53"), layout.CountPolicyAllow)
			s.outer = "node2"
			return s
		}()},
	},
	{
		name: "what goes to the kernel keeps its hop limit for the kernel to judge",
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "client:53").ttl(1),
			want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
		}},
		keep: true,
	},
	{
		name:    "a node without an address answers with the address that was asked",
		prepare: globals(func(g *layout.Globals) { g.HostIP4, g.HostIP6 = 0, [4]uint32{} }),
		steps: []step{func() step {
			p := udp("podA:40000", "podB:53")
			s := exceeded("from_wep podA", p, layout.CountPolicyAllow)
			s.out = becomes(answer("podB", timeExceeded, p.ttl(1)))
			return s
		}()},
	},
}

// tooLong is a packet that does not fit, and the answer that says what would.
func tooLong(at string, p packet, mtu uint32, counted ...layout.Counter) step {
	return step{
		at: at, send: p, want: redirect, out: becomes(answer("node1", tooBig, p).mtu(mtu)),
		marked: layout.MarkBypass, counted: plus(plus(sentICMP, layout.DropTooBig), counted...),
	}
}

// sized makes a datagram of a whole L3 length in both families: without fragmentation.
func sized(r *run, p packet, l3 int) packet {
	head := 28
	if r.family == layout.FamilyV6 {
		head = 48
	}
	p.df = true
	return p.data(l3 - head)
}

// sizedFixture is a fixture whose packets' lengths depend on the family.
func sizedFixture(name string, steps func(size func(p packet, l3 int) packet) []step) []fixture {
	var both []fixture
	for _, f := range []struct {
		only family
		in   layout.Family
	}{{onlyV4, layout.FamilyV4}, {onlyV6, layout.FamilyV6}} {
		r := &run{family: f.in}
		both = append(both, fixture{
			name: name, only: f.only, keep: true,
			services: []service{
				svc("vip:53", protoUDP, "podR:5353"), external("node1:30053", protoUDP, "podB:5353").number(2),
			},
			steps: steps(func(p packet, l3 int) packet { return sized(r, p, l3) }),
		})
	}
	return both
}

var mtuFixtures = slices.Concat(
	sizedFixture("a datagram through the tunnel may be as long as the tunnel takes, and no longer",
		func(size func(packet, int) packet) []step {
			p := udp("podA:40000", "podR:53")
			return []step{
				tooLong("from_wep podA", size(p, tunnelMTU+1), tunnelMTU, layout.CountPolicyAllow),
				{
					at: "from_wep podA", send: size(p, tunnelMTU), want: redirect, out: becomes(size(p, tunnelMTU).ttl(63)),
					marked: layout.MarkBypass, counted: plus(newFlow, layout.CountRedirectTunnel),
				},
			}
		}),
	sizedFixture("a translated datagram that is too long is answered in the sender's terms",
		func(size func(packet, int) packet) []step {
			p := udp("podA:40000", "vip:53")
			return []step{
				tooLong("from_wep podA", size(p, tunnelMTU+1), tunnelMTU, layout.CountPolicyAllow, layout.CountServiceNew),
			}
		}),
	sizedFixture("a datagram to a pod of the node may be as long as the pod's interface takes, and no longer",
		func(size func(packet, int) packet) []step {
			p := udp("podA:40000", "podB:53")
			return []step{
				tooLong("from_wep podA", size(p, podMTU+1), podMTU, layout.CountPolicyAllow),
				{
					at: "from_wep podA", send: size(p, podMTU), want: redirect, out: becomes(size(p, podMTU).ttl(63)),
					marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
				},
			}
		}),
	sizedFixture("an answer that is too long for the client's route is told that route's MTU",
		func(size func(packet, int) packet) []step {
			ask, reply := udp("narrow:50000", "node1:30053"), udp("podB:5353", "narrow:50000")
			return []step{
				{
					at: "from_hep", send: ask, want: redirect, out: becomes(udp("narrow:50000", "podB:5353").ttl(63)),
					marked: layout.MarkSeen, counted: plus(newService, viaVeth...),
				},
				{
					at: "from_wep podB", send: size(reply, narrowMTU+1), want: redirect,
					out:    becomes(answer("node1", tooBig, size(reply, narrowMTU+1)).mtu(narrowMTU)),
					marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropTooBig, layout.CountPromoted),
				},
				{
					at: "from_wep podB", send: size(reply, narrowMTU), want: redirect,
					out:    becomes(size(udp("node1:30053", "narrow:50000"), narrowMTU).ttl(63)),
					marked: layout.MarkBypass, counted: counters{layout.CountFastPath, layout.CountUnnat, layout.CountRedirectNeigh},
				},
			}
		}),
	sizedFixture("a packet that is still to be segmented is judged by its segments",
		func(size func(packet, int) packet) []step {
			p := tcp("podA:40000", "podR:8080", "S").data(3000)
			head := uint32(40)
			if size(p, 1000).payload == 1000-48 {
				head = 60
			}
			fits, long := tunnelMTU-head, tunnelMTU-head+1
			return []step{
				func() step {
					s := tooLong("from_wep podA", p, tunnelMTU, layout.CountPolicyAllow)
					s.gso = long
					return s
				}(),
				{
					at: "from_wep podA", send: p, gso: fits, want: redirect, out: becomes(p.ttl(63)),
					marked: layout.MarkBypass, counted: plus(newFlow, layout.CountRedirectTunnel),
				},
			}
		}),
	[]fixture{
		{
			name: "an IPv4 datagram that may be fragmented is not refused", only: onlyV4,
			steps: []step{{
				at: "from_wep podA", send: udp("podA:40000", "podR:53").data(1450), want: redirect,
				out: becomes(udp("podA:40000", "podR:53").data(1450).ttl(63)), marked: layout.MarkBypass,
				counted: plus(newFlow, layout.CountRedirectTunnel),
			}},
			keep: true,
		},
		{
			name: "an IPv4 answer that may be fragmented is left to the kernel where the route takes less", only: onlyV4,
			services: []service{external("node1:30053", protoUDP, "podB:5353")},
			steps: []step{
				{
					at: "from_hep", send: udp("narrow:50000", "node1:30053"), want: redirect,
					out: becomes(udp("narrow:50000", "podB:5353").ttl(63)), marked: layout.MarkSeen,
					counted: plus(newService, viaVeth...),
				},
				{
					at: "from_wep podB", send: udp("podB:5353", "narrow:50000").data(1350), want: pass,
					out: becomes(udp("node1:30053", "narrow:50000").data(1350)), marked: layout.MarkStack,
					counted: plus(toStack, layout.CountPromoted, layout.CountUnnat),
				},
			},
			keep: true,
		},
	},
)
