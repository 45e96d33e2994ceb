// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestForwarding(t *testing.T) { play(t, forwardFixtures) }

func TestTunnel(t *testing.T) { play(t, tunnelFixtures) }

func TestHopLimit(t *testing.T) { play(t, hopFixtures) }

func TestMTU(t *testing.T) { play(t, mtuFixtures) }

// movedTo is podB's route after it has moved to another veth. Its entries know that when the epoch has been raised.
func movedTo(device string) func(*run) {
	return routeTo("podB", func(r *run) maps.Route {
		return maps.Route{Flags: layout.RTLocal | layout.RTWorkload, Ifindex: r.ifindex[device], EPSlot: 12}
	})
}

var raiseEpoch = globals(func(g *layout.Globals) { g.RouteEpoch++ })

// longWay is a packet of a confirmed flow that must not skip the program of the receiver's veth.
func longWay(s step) step {
	s.marked = layout.MarkSeen
	s.counted = replace(s.counted, layout.CountRedirectPeer, layout.CountRedirectNeigh)
	return s
}

func replace(c counters, old, by layout.Counter) counters {
	out := plus(c)
	for i := range out {
		if out[i] == old {
			out[i] = by
		}
	}
	return out
}

var forwardFixtures = []fixture{
	{
		name:  "a pod's connection to a pod of the node goes by the receiver's program first, then straight",
		steps: toPod.open(toPod.sends("PA", 1001, 5001), toPod.answers("PA", 5001, 1001)),
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal established | 3/2 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "policy of the receiving pod keeps a connection out",
		steps: []step{
			toPod.syn(),
			{
				at: "to_wep podB", send: toPod.outXlated("S", clientISN, 0), mark: layout.MarkSeen, deny: true,
				want: dropped, counted: counters{layout.DropPolicy},
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a pod's connection to somebody outside is the kernel's, both ways",
		steps: []step{
			{
				at: "from_wep podA", send: tcp("podA:40000", "client:443", "S"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "to_hep", send: tcp("podA:40000", "client:443", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
			{
				at: "from_hep", send: tcp("client:443", "podA:40000", "SA"),
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
			{
				at: "to_wep podA", send: tcp("client:443", "podA:40000", "SA").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
		},
		entries: []string{
			"tcp podA:40000 > client:443 | normal replied half-open | 1/1 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name: "a pod's connection to its own node is the kernel's",
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "node1:10250", "S"),
			want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
		}},
		entries: []string{
			"tcp podA:40000 > node1:10250 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name: "the host's connection to a pod is judged by the pod, and answered by the kernel's stack",
		steps: []step{
			{
				at: "to_wep podB", send: tcp("node1:45000", "podB:8080", "S"),
				want: pass, counted: plus(newFlow, toStack...),
			},
			{
				at: "from_wep podB", send: tcp("podB:8080", "node1:45000", "SA"),
				want: pass, marked: layout.MarkSeen, counted: toStack,
			},
			{
				at: "to_wep podB", send: tcp("node1:45000", "podB:8080", "A").at(1001, 5001),
				want: pass, counted: plus(toStack, layout.CountPromoted),
			},
			{
				at: "to_wep podB", send: tcp("node1:45000", "podB:8080", "PA").at(1001, 5001),
				want: pass, counted: plus(toStack, layout.CountFastPath),
			},
		},
		entries: []string{
			"tcp node1:45000 > podB:8080 | normal established | 3/1 packets | stack, stack | approved-0 approved-1 host-origin",
		},
	},
	{
		name: "the host's connection that a pod's policy denies leaves no entry",
		steps: []step{{
			at: "to_wep podB", send: tcp("node1:45000", "podB:8080", "S"), deny: true,
			want: dropped, counted: counters{layout.DropPolicy},
		}},
	},
	{
		name: "a connection by the wire to a pod of the node is judged by the pod",
		steps: []step{
			{
				at: "from_hep", send: tcp("podR:40000", "podB:8080", "S"),
				want: redirect, out: becomes(tcp("podR:40000", "podB:8080", "S").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
			{
				at: "to_wep podB", send: tcp("podR:40000", "podB:8080", "S").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
		},
		entries: []string{
			"tcp podR:40000 > podB:8080 | normal new half-open | 1/0 packets | peer podB, unknown | approved-0 approved-1",
		},
	},
	{
		name: "a marked packet whose entry has been evicted is judged anew by the receiving pod",
		steps: []step{{
			at: "to_wep podB", send: toPod.outXlated("S", clientISN, 0), mark: layout.MarkSeen,
			want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
		}},
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal new half-open | 1/0 packets | stack, unknown | approved-0 approved-1",
		},
	},
	{
		name: "a flow to a pod that must not be reached past its program goes the long way for good", services: oneService,
		prepare: routeTo("podB", func(r *run) maps.Route {
			return maps.Route{
				Flags: layout.RTLocal | layout.RTWorkload | layout.RTSkipFastPath, Ifindex: r.ifindex["podB"], EPSlot: 12,
			}
		}),
		steps: toService.open(longWay(toService.sends("PA", 1001, 5001)), toService.answers("PA", 5001, 1001)).edit(3, longWay),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | veth podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | veth podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a flow of a pod that must not be reached past its program is answered the long way", services: oneService,
		steps: toService.open(longWay(toService.sends("PA", 1001, 5001)), longWay(toService.answers("PA", 5001, 1001))).
			edit(0, skipsFastPath).edit(2, longWay).edit(3, longWay),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | veth podB, veth podA | approved-0 approved-1 skip-fast-path",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | veth podB, veth podA | approved-0 approved-1 skip-fast-path",
		},
	},
	{
		name: "a way that has been found is kept while the epoch stands",
		steps: toPod.open(
			func() step {
				s := toPod.sends("PA", 1001, 5001)
				s.before = movedTo("tun")
				return s
			}(),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal established | 3/1 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a way is looked for again when the epoch has been raised",
		steps: toPod.open(
			func() step {
				s := toPod.sends("PA", 1001, 5001)
				s.before = all(movedTo("tun"), raiseEpoch)
				return s
			}(),
			toPod.answers("PA", 5001, 1001),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal established | 3/2 packets | peer tun, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a packet into a blackhole is dropped",
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "hole:53"),
			want: dropped, counted: counters{layout.DropBlackhole},
		}},
	},
	{
		name: "a SYN into a reject route is answered by a reset",
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "reject:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("podA:40000", "reject:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropBlackhole),
		}},
	},
	{
		name: "a datagram into a reject route is answered by an ICMP error",
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "reject:53"),
			want: redirect, out: becomes(answer("reject", portUnreachable, udp("podA:40000", "reject:53"))),
			marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropBlackhole),
		}},
	},
	{
		name: "a ping from pod to pod is a flow, and the answer confirms it",
		steps: []step{
			plain(ping("podA", "podB"), newFlow...),
			{
				at: "to_wep podB", send: ping("podA", "podB").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: pong("podB", "podA"),
				want: redirect, out: becomes(pong("podB", "podA").ttl(63)),
				counted: plus(viaPeer, layout.CountPromoted),
			},
		},
		entries: []string{
			"icmp podA:4660 > podB:4660 | normal established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
}

// edit changes one of the steps.
func (s steps) edit(i int, change func(step) step) steps {
	s[i] = change(s[i])
	return s
}

func skipsFastPath(s step) step {
	s.ifaceFlags = layout.IFFSkipFastPath
	return s
}

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
			want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
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
					out: becomes(udp("node1:30053", "narrow:50000").data(1350)), marked: layout.MarkSeen,
					counted: plus(toStack, layout.CountPromoted, layout.CountUnnat),
				},
			},
			keep: true,
		},
	},
)
