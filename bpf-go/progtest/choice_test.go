// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestAffinity(t *testing.T) { play(t, affinityFixtures) }

func TestCollisions(t *testing.T) { play(t, collisionFixtures) }

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
	{
		name:     "a service's flow with the numbers of a direct one gets another source port",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: toPod.open(
			withSourcePort(flow{client: "podA:40000", asked: "vip:80", backend: "podB:8080", shown: "podA:33000"}.syn()),
			toPod.sends("PA", 1001, 5001),
		),
		entries: []string{
			"tcp podA:33000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0 snat",
			"tcp podA:40000 > podB:8080 | normal established | 3/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:33000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0 snat",
		},
	},
	{
		name:     "datagrams to two services with one backend get different ports, and their answers go apart again",
		services: []service{svc("vip:53", protoUDP, "podB:5353"), svc("vip2:53", protoUDP, "podB:5353").number(2)},
		steps: []step{
			datagram("5353", newService...),
			{
				at: "from_wep podA", send: udp("podA:40000", "vip2:53"), want: redirect,
				out: becomes(udp("podA:33000", "podB:5353").ttl(63)), marked: layout.MarkSeen,
				counted: plus(plus(newService, viaVeth...), layout.CountSourcePort),
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "podA:33000"), want: redirect,
				out: becomes(udp("vip2:53", "podA:40000").ttl(63)), marked: layout.MarkSeen,
				counted: plus(viaVeth, layout.CountPromoted, layout.CountUnnat),
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "podA:40000"), want: redirect,
				out: becomes(udp("vip:53", "podA:40000").ttl(63)), marked: layout.MarkSeen,
				counted: plus(viaVeth, layout.CountPromoted, layout.CountUnnat),
			},
		},
		entries: []string{
			"udp podA:33000 > podB:5353 => vip2:53 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 snat",
			"udp podA:40000 > podB:5353 => vip:53 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0",
			"udp podA:40000 > vip2:53 => podA:33000 > podB:5353 | nat-fwd established | 1/0 packets | peer podB, peer podA | approved-0 snat",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5353 | nat-fwd established | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
}
