// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestTimeouts(t *testing.T) { play(t, slices.Concat(timeoutFixtures, expiryFixtures)) }

// later is a step after a time in which nothing was sent: off the fast path where there is a twin to look after.
func (s step) later(d time.Duration) step {
	s.before = age(d)
	return s
}

// expired is a client's segment of a connection that has timed out: a reset answers it.
func expired(d time.Duration) step {
	segment := toService.out("PA", 1001, 5001)
	return step{
		before: age(d), at: "from_wep podA", send: segment,
		want: redirect, out: becomes(tcp("vip:80", "podA:40000", "R").at(5001, 0).window(0).mayFragment().back()),
		marked: layout.MarkBypass, counted: plus(sentRST, layout.DropExpiredFlow),
	}
}

// timeoutFixtures are two for each state: just before the timeout, and just after it.
var timeoutFixtures = func() []fixture {
	var fixtures []fixture
	for _, state := range []struct {
		name   string
		after  time.Duration
		steps  []step
		resent step // what keeps the flow alive
	}{
		{"SYN sent", 20 * time.Second, []step{toService.syn()}, step{
			at: "from_wep podA", send: toService.out("S", clientISN, 0),
			want: redirect, out: becomes(toService.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
			counted: plus(viaVeth, layout.CountDNAT),
		}},
		{"established", time.Hour, toService.open(), toService.sends("PA", 1001, 5001).slow()},
		{"closing", time.Hour, toService.open(toService.sends("FA", 1001, 5001)), toService.sends("A", 1002, 5001).slow()},
		{"closed", 30 * time.Second, closed(), toService.sends("A", 1002, 5002).slow()},
		{"reset", 40 * time.Second, toService.open(toService.sends("R", 1001, 0)), toService.sends("A", 1001, 5001).slow()},
	} {
		dead := expired(state.after + time.Second)
		if state.name == "SYN sent" {
			f := flow{client: "podA:40000", asked: "vip:80", backend: "podB:8081"}
			dead = f.syn()
			dead.before = all(age(state.after+time.Second), svc("vip:80", protoTCP, "podB:8081").replaces())
		}
		fixtures = append(fixtures, fixture{
			name:     fmt.Sprintf("a connection in state %s lives until %v", state.name, state.after),
			services: oneService,
			steps:    append(slices.Clone(state.steps), state.resent.later(state.after-time.Second)),
			keep:     true,
		}, fixture{
			name:     fmt.Sprintf("a connection in state %s is dead after %v", state.name, state.after),
			services: oneService,
			steps:    append(slices.Clone(state.steps), dead),
			keep:     true,
		})
	}
	return fixtures
}()

// datagram is podA's to the service, at a backend's port; through the backend's program.
func datagram(port string, counted ...layout.Counter) step {
	return step{
		at: "from_wep podA", send: udp("podA:40000", "vip:53"),
		want: redirect, out: becomes(udp("podA:40000", "podB:"+port).ttl(63)), marked: layout.MarkSeen,
		counted: plus(viaVeth, counted...),
	}
}

// plain is a packet of podA to podB, without a service, through podB's program.
func plain(p packet, counted ...layout.Counter) step {
	return step{
		at: "from_wep podA", send: p, want: redirect, out: becomes(p.ttl(63)), marked: layout.MarkSeen,
		counted: plus(viaVeth, counted...),
	}
}

var expiryFixtures = []fixture{
	{
		name: "a UDP flow lives until a minute after its last packet", services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			datagram("5353", newService...),
			datagram("5353", layout.CountDNAT).later(59 * time.Second),
			datagram("5353", layout.CountDNAT).later(59 * time.Second),
		},
		entries: []string{
			"udp podA:40000 > podB:5353 => vip:53 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5353 | nat-fwd new half-open | 3/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a UDP flow that has timed out starts anew, with a backend of its own", services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			datagram("5353", newService...),
			func() step {
				s := datagram("5454", newService...)
				s.before = all(age(61*time.Second), svc("vip:53", protoUDP, "podB:5454").replaces())
				return s
			}(),
		},
		entries: []string{
			"udp podA:40000 > podB:5454 => vip:53 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5454 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a flow of another protocol lives for ten minutes",
		steps: []step{
			plain(other("podA", "podB", protoGRE), newFlow...),
			plain(other("podA", "podB", protoGRE)).later(599 * time.Second),
			plain(other("podA", "podB", protoGRE), newFlow...).later(601 * time.Second),
		},
		entries: []string{
			"47 podA > podB | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a ping's entry lives for five seconds",
		steps: []step{
			plain(ping("podA", "podB"), newFlow...),
			plain(ping("podA", "podB")).later(4 * time.Second),
			plain(ping("podA", "podB"), newFlow...).later(6 * time.Second),
		},
		entries: []string{
			"icmp podA:4660 > podB:4660 | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a packet of one direction keeps the entry of the other alive", services: oneService,
		steps: toService.open(
			toService.sends("PA", 1001, 5001).slow().later(30*time.Minute),
			toService.answers("PA", 5001, 1001).slow().later(40*time.Minute),
			toService.sends("PA", 1001, 5001).slow().later(40*time.Minute),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 4/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset of a connection that has timed out is dropped and not answered", services: oneService,
		steps: toService.open(step{
			before: age(2 * time.Hour), at: "from_wep podA", send: toService.out("R", 1001, 0),
			want: dropped, counted: counters{layout.DropExpiredFlow},
		}),
	},
	{
		name: "a direct connection that has timed out is answered by a reset of the pod's address",
		steps: toPod.open(step{
			before: age(2 * time.Hour), at: "from_wep podA", send: toPod.out("PA", 1001, 5001),
			want: redirect, out: becomes(tcp("podB:8080", "podA:40000", "R").at(5001, 0).window(0).mayFragment().back()),
			marked: layout.MarkBypass, counted: plus(sentRST, layout.DropExpiredFlow),
		}),
	},
}
