// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestForwarding(t *testing.T) { play(t, forwardFixtures) }

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
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
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
			want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
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
				want: pass, marked: layout.MarkStack, counted: toStack,
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
			"tcp node1:45000 > podB:8080 | normal established | 3/1 packets | stack, stack | approved-0 approved-1 via-stack host-origin",
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
			"tcp podA:40000 > podB:8080 | normal new half-open | 1/0 packets | stack, stack | approved-0 approved-1 via-stack",
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
