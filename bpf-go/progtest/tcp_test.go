// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestTCPStates(t *testing.T) { play(t, slices.Concat(closingFixtures, resetFixtures)) }

func TestTimeouts(t *testing.T) { play(t, slices.Concat(timeoutFixtures, expiryFixtures)) }

func TestMidFlowSegments(t *testing.T) { play(t, midFlowFixtures) }

func TestFullTable(t *testing.T) { play(t, fullFixtures) }

var oneService = []service{svc("vip:80", protoTCP, "podB:8080")}

// closed is a connection that both ends have closed.
func closed(then ...step) []step {
	return toService.open(append([]step{
		toService.sends("FA", 1001, 5001),
		toService.answers("FA", 5001, 1002),
		toService.sends("A", 1002, 5002),
	}, then...)...)
}

// reopened is a SYN that starts an entry anew; the service has another backend by then.
func reopened() step {
	f := flow{client: "podA:40000", asked: "vip:80", backend: "podB:8081"}
	s := f.syn()
	s.before = svc("vip:80", protoTCP, "podB:8081").replaces()
	s.counted = plus(s.counted, layout.CountReopened)
	return s
}

var closingFixtures = []fixture{
	{
		name: "one FIN makes both entries closing", services: oneService,
		steps: toService.open(toService.sends("FA", 1001, 5001)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev closing | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd closing | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "two FINs make both entries closed, and the last acknowledgement still gets through", services: oneService,
		steps: closed(),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev closed | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd closed | 4/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a SYN on a closed connection's numbers starts anew, with a backend of its own", services: oneService,
		steps: closed(reopened()),
		entries: []string{
			"tcp podA:40000 > podB:8081 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8081 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "two FINs of a direct connection make its entry closed, and a SYN starts it anew",
		steps: toPod.open(
			toPod.sends("FA", 1001, 5001), toPod.answers("FA", 5001, 1002),
			func() step {
				s := toPod.syn()
				s.counted = plus(s.counted, layout.CountReopened)
				return s
			}(),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a SYN on an established connection's numbers changes nothing: the far end challenges it", services: oneService,
		steps: toService.open(toService.sends("S", 77000, 0)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a SYN-ACK that is sent again changes nothing", services: oneService,
		steps: []step{toService.syn(), toService.judge(), toService.synAck(), toService.synAck(), toService.ack()},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a handshake whose third packet carries data is confirmed by it", services: oneService,
		steps: []step{toService.syn(), toService.judge(), toService.synAck(), func() step {
			s := toService.ack()
			s.send, s.out = s.send.data(100), becomes(s.out.data(100))
			return s
		}()},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "an acknowledgement without a SYN-ACK before it confirms nothing", services: oneService,
		steps: []step{toService.syn(), {
			at: "from_wep podA", send: toService.out("A", 1001, 5001),
			want: redirect, out: becomes(toService.outXlated("A", 1001, 5001)), marked: layout.MarkSeen,
			counted: plus(viaVeth, layout.CountDNAT),
		}},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 2/0 packets | peer podB, peer podA | approved-0",
		},
	},
}

// ignored is a reset that changes nothing, but goes its way: the end it is for judges it better.
func ignored(s step) step {
	s.counted = plus(s.counted, layout.CountRSTIgnored)
	return s
}

// scaled is a handshake with window scaling by 7 bits on both sides.
func scaled(then ...step) []step {
	steps := toService.open(then...)
	for i := range 3 {
		steps[i].send = steps[i].send.withScale(7)
		if steps[i].out != nil {
			steps[i].out = becomes(steps[i].out.withScale(7))
		}
	}
	return steps
}

const window = 64240

var resetFixtures = []fixture{
	{
		name: "a client's reset with the next sequence number resets both entries", services: oneService,
		steps: toService.open(toService.sends("R", 1001, 0)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev reset | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd reset | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a backend's reset with the next sequence number resets both entries", services: oneService,
		steps: toService.open(toService.answers("RA", 5001, 1001)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev reset | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd reset | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset at the end of the window counts", services: oneService,
		steps: toService.open(toService.answers("R", 5001+window-1, 0)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev reset | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd reset | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset behind the window changes nothing", services: oneService,
		steps: toService.open(ignored(toService.answers("R", 5001+window, 0))),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset before the window changes nothing", services: oneService,
		steps: toService.open(ignored(toService.sends("R", 1000, 0))),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset at the end of a scaled window counts", services: oneService,
		steps: scaled(toService.answers("R", 5001+window<<7-1, 0)),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev reset | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd reset | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset behind a scaled window changes nothing", services: oneService,
		steps: scaled(ignored(toService.sends("R", 1001+window<<7, 0))),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a reset that answers a SYN ends the flow, and the next SYN starts it anew", services: oneService,
		steps: []step{
			toService.syn(), toService.judge(),
			{
				at: "from_wep podB", send: toService.in("RA", 0, 1001).window(0),
				want: redirect, out: becomes(toService.inXlated("RA", 0, 1001).window(0)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
			reopened(),
		},
		entries: []string{
			"tcp podA:40000 > podB:8081 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8081 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a reset that answers another SYN than was sent changes nothing", services: oneService,
		steps: []step{
			toService.syn(), toService.judge(),
			ignored(step{
				at: "from_wep podB", send: toService.in("RA", 0, 999),
				want: redirect, out: becomes(toService.inXlated("RA", 0, 999)),
				counted: plus(viaPeer, layout.CountUnnat),
			}),
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a SYN on a reset connection's numbers starts anew", services: oneService,
		steps: toService.open(toService.answers("RA", 5001, 1001), reopened()),
		entries: []string{
			"tcp podA:40000 > podB:8081 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8081 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a reset of a direct connection is judged by the same rules",
		steps: toPod.open(
			ignored(toPod.answers("R", 4000, 0)),
			toPod.answers("R", 5001, 0),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 | normal reset | 2/3 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
}

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

// untracked is a packet of podA to podB by a protocol without a service, through podB's program.
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
