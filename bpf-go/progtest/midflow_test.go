// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestMidFlowSegments(t *testing.T) { play(t, midFlowFixtures) }

func TestFullTable(t *testing.T) { play(t, fullFixtures) }

// adopting leaves unknown segments to the stack.
func adopting(r *run) {
	now, err := r.clock.Jiffies()
	r.must(err)
	globals(func(g *layout.Globals) { g.AdoptionEnd = now + uint64(r.clock.HZ)*3600 })(r)
}

// refused is a segment that opens nothing and belongs to nothing, and its answer.
func refused(at string, segment packet) step {
	return step{
		at: at, send: segment,
		want: redirect, out: becomes(tcp(segment.dst, segment.src, "R").at(segment.ack, 0).window(0).mayFragment().back()),
		marked: layout.MarkBypass, counted: plus(sentRST, layout.DropUnknownFlow),
	}
}

func leftToStack(at string, segment packet, mark layout.Mark) step {
	return step{at: at, send: segment, want: pass, marked: mark, counted: counters{layout.CountMidflowStack}}
}

// Policies that are neither of the two that always stand: one that allows, and one whose place is empty.
const (
	allowing = layout.PolicyFirstFree
	nowhere  = layout.PolicyFirstFree + 1
)

func deniedSegment(at string, segment packet) step {
	return step{at: at, send: segment, deny: true, want: dropped, counted: counters{layout.DropPolicy}}
}

// withPolicy makes the interface's policy another, which counts what is told.
func withPolicy(policy layout.PolicyIndex, s step, counted ...layout.Counter) step {
	s.policy, s.counted = policy, append(s.counted, counted...)
	return s
}

var midFlowFixtures = []fixture{
	{
		name:     "an unknown segment to a service is left to the stack while flows from before are adopted",
		services: oneService, prepare: adopting,
		steps: []step{leftToStack("from_wep podA", toService.out("PA", 1001, 5001), layout.MarkFallthrough)},
	},
	{
		name: "an unknown segment to a service is answered by a reset afterwards", services: oneService,
		steps: []step{refused("from_wep podA", toService.out("PA", 1001, 5001).data(77))},
	},
	{
		name:  "an unknown segment to a pod is answered by a reset afterwards",
		steps: []step{refused("from_wep podA", tcp("podA:40000", "podB:8080", "PA"))},
	},
	{
		name:  "an unknown segment from outside to a pod is answered by a reset afterwards",
		steps: []step{refused("from_hep", tcp("client:50000", "podB:8080", "A"))},
	},
	{
		name:  "an unknown segment of the host to a pod is answered by a reset afterwards",
		steps: []step{refused("to_wep podB", tcp("node1:45000", "podB:8080", "A"))},
	},
	{
		name:    "an unknown segment of the host to a pod is left to the stack while flows from before are adopted",
		prepare: adopting,
		steps:   []step{leftToStack("to_wep podB", tcp("node1:45000", "podB:8080", "A"), 0)},
	},
	{
		name:  "an unknown segment to somebody outside is always the stack's",
		steps: []step{leftToStack("from_wep podA", tcp("podA:40000", "client:443", "A"), layout.MarkFallthrough)},
	},
	{
		name: "a closed pod sends no unknown segment either",
		steps: []step{
			deniedSegment("from_wep podA", tcp("podA:40000", "client:443", "PA").data(70)),
			deniedSegment("from_wep podA", tcp("podA:40000", "node1:22", "A")),
		},
	},
	{
		name: "a closed pod neither sends nor gets unknown segments while flows from before are adopted", prepare: adopting,
		steps: []step{
			deniedSegment("from_wep podA", tcp("podA:40000", "client:443", "PA").data(70)),
			deniedSegment("from_wep podA", tcp("podA:40000", "podB:8080", "PA").data(70)),
			deniedSegment("to_wep podB", tcp("client:50000", "podB:8080", "A")),
		},
	},
	{
		name: "a pod's policy is asked about its unknown segments, and then the stack",
		steps: []step{withPolicy(allowing, leftToStack("from_wep podA", tcp("podA:40000", "client:443", "A"), layout.MarkFallthrough),
			layout.CountPolicyAllow)},
	},
	{
		name: "a policy that is not there lets no unknown segment out",
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "client:443", "A"), policy: nowhere,
			want: dropped, counted: counters{layout.DropNoProgram},
		}},
	},
	{
		name: "flows from before are adopted whatever a pod's policy, for nobody knows which end has opened them", prepare: adopting,
		steps: []step{
			withPolicy(nowhere, leftToStack("from_wep podA", tcp("podA:40000", "client:443", "A"), layout.MarkFallthrough)),
			withPolicy(nowhere, leftToStack("to_wep podB", tcp("client:50000", "podB:8080", "A"), 0)),
		},
	},
	{
		name: "an unknown reset is dropped and never answered by another", services: oneService,
		steps: []step{{
			at: "from_wep podA", send: toService.out("R", 1001, 0),
			want: dropped, counted: counters{layout.DropUnknownFlow},
		}},
	},
	{
		name: "a SYN-ACK without a SYN is an unknown segment", services: oneService,
		steps: []step{refused("from_wep podA", toService.out("SA", 1001, 5001))},
	},
	{
		name: "an unknown segment that came by the tunnel is answered through the tunnel",
		steps: []step{func() step {
			s := refused("from_tunnel", tcp("podR:40000", "podB:8080", "A"))
			s.outer = "node2"
			return s
		}()},
	},
	{
		name: "an answer to what came by a tunnel that nobody knows can not be built",
		steps: []step{{
			at: "from_tunnel", send: tcp("podR:40000", "podB:8080", "A"),
			want:    dropped,
			counted: counters{layout.DropUnknownFlow, layout.CountRSTSent, layout.CountRedirectBack, layout.DropICMPBuild},
		}},
	},
}

// full is the third packet of a handshake while the table of confirmed flows is full.
func full(s step) step {
	s.before = fillConfirmed
	return s
}

var fullFixtures = []fixture{
	{
		name: "a pod's connection is not confirmed while the table is full: every segment is dropped", services: oneService,
		steps: []step{
			toService.syn(), toService.judge(), toService.synAck(),
			full(step{
				at: "from_wep podA", send: toService.out("A", 1001, 5001),
				want: dropped, counted: counters{layout.DropCTFull},
			}),
			{
				at: "from_wep podA", send: toService.out("PA", 1001, 5001).data(10),
				want: dropped, counted: counters{layout.DropCTFull},
			},
		},
		keep: true,
	},
	{
		name: "a pod's connection is confirmed when the table has room again", services: oneService,
		steps: []step{
			toService.syn(), toService.judge(), toService.synAck(),
			full(step{
				at: "from_wep podA", send: toService.out("A", 1001, 5001),
				want: dropped, counted: counters{layout.DropCTFull},
			}),
			func() step {
				s := toService.ack()
				s.before = emptyConfirmed
				return s
			}(),
		},
		keep: true,
	},
	{
		name:     "a datagram's answer is dropped while the table is full",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			datagram("5353", newService...),
			full(step{
				at: "from_wep podB", send: udp("podB:5353", "podA:40000"),
				want: dropped, counted: counters{layout.DropCTFull},
			}),
		},
		keep: true,
	},
	{
		name: "traffic of host interfaces goes on half-open while the table is full", services: []service{external("node1:30080", protoTCP, "podB:8080")},
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
			full(step{
				at: "from_hep", send: fromOutside.out("A", 1001, 5001),
				want: redirect, out: becomes(fromOutside.outXlated("A", 1001, 5001)),
				counted: plus(viaPeer, layout.CountNoEntryPass, layout.CountDNAT),
			}),
		},
		keep: true,
	},
}

// emptyConfirmed removes all confirmed flows.
func emptyConfirmed(r *run) {
	r.must(r.conntrackMaps()[0].clear())
	r.must(r.conntrackMaps()[2].clear())
}
