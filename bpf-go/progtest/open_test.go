// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestOpenPods(t *testing.T) { play(t, openFixtures) }

// somePolicy is the index of a policy that is neither of the two that are always there.
const somePolicy = uint32(layout.PolicyFirstFree)

// podBTakes publishes podB's interface: whether it is ready, and its policy for what comes to the pod.
func podBTakes(flags layout.IfaceFlag, toPod uint32) func(*run) {
	return func(r *run) {
		v := layout.IfaceValue{Flags: uint32(flags | layout.IFFManaged), IfaceSlot: ifaces["podB"].slot, EPSlot: ifaces["podB"].ep}
		for hook, policy := range map[layout.Hook]uint32{layout.HookIngress: somePolicy, layout.HookEgress: toPod} {
			v.Policy[uint32(hook)*2], v.Policy[uint32(hook)*2+1] = uint32(layout.PolicyDeny), uint32(layout.PolicyDeny)
			v.Policy[uint32(hook)*2+uint32(r.family)] = policy
		}
		r.must(r.set.Interfaces.Put(r.ifindex["podB"], v))
	}
}

var podBOpen = podBTakes(layout.IFFReady, uint32(layout.PolicyAllow))

// straight is the first packet of a flow whose other end has nothing to ask.
func straight(s step) step {
	s.marked = 0
	s.counted = replace(s.counted, layout.CountRedirectNeigh, layout.CountRedirectPeer)
	return s
}

var openFixtures = []fixture{
	{
		name: "the first packet to a pod that takes everything goes straight, as all after it", prepare: podBOpen,
		steps: steps{straight(toPod.syn()), toPod.synAck(), toPod.ack(), toPod.sends("PA", 1001, 5001), toPod.answers("PA", 5001, 1001)},
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal established | 3/2 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "so does that of a connection to a service with such a backend", prepare: podBOpen, services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: steps{straight(toService.syn()), toService.synAck(), toService.ack(), toService.sends("PA", 1001, 5001)},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "one that comes by the wire, too", prepare: podBOpen,
		steps: []step{{
			at: "from_hep", send: tcp("podR:40000", "podB:8080", "S"),
			want: redirect, out: becomes(tcp("podR:40000", "podB:8080", "S").ttl(63)), counted: plus(newFlow, viaPeer...),
		}},
		entries: []string{
			"tcp podR:40000 > podB:8080 | normal new half-open | 1/0 packets | peer podB, unknown | approved-0 approved-1",
		},
	},
	{
		name: "and by the tunnel", prepare: podBOpen,
		steps: []step{{
			at: "from_tunnel", outer: "node2", send: tcp("podR:40000", "podB:8080", "S"),
			want: redirect, out: becomes(tcp("podR:40000", "podB:8080", "S").ttl(63)), counted: plus(newFlow, viaPeer...),
		}},
		keep: true,
	},
	{
		name: "a pod with a policy judges the first packet itself", prepare: podBTakes(layout.IFFReady, somePolicy),
		steps: toPod.open(), keep: true,
	},
	{
		name: "so does one whose interface is not ready", prepare: podBTakes(0, uint32(layout.PolicyAllow)),
		steps: toPod.open(), keep: true,
	},
	{
		name: "and one that is to be seen by every packet",
		prepare: func(r *run) {
			podBOpen(r)
			routeTo("podB", func(r *run) maps.Route {
				return maps.Route{Flags: layout.RTLocal | layout.RTWorkload | layout.RTSkipFastPath, Ifindex: r.ifindex["podB"], EPSlot: 12}
			})(r)
		},
		steps: []step{toPod.syn(), toPod.judge()}, keep: true,
	},
	{
		name: "an open pod that reaches itself through a service is not asked, either", prepare: podBOpen, services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{{
			at: "from_wep podB", send: tcp("podB:40000", "vip:80", "S"),
			want: redirect, out: becomes(tcp("node1:40000", "podB:8080", "S").ttl(63)),
			counted: plus(newService, layout.CountHairpin, layout.CountRedirectPeer),
		}},
		keep: true,
	},
}
