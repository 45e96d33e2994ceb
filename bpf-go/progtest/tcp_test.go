// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestTCPStates(t *testing.T) { play(t, slices.Concat(closingFixtures, resetFixtures)) }

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
		name: "a FIN confirms the flow where the handshake's third packet was lost", services: oneService,
		steps: steps{toService.syn(), toService.judge(), toService.synAck(), func() step {
			s := toService.sends("FA", 1001, 5001)
			s.counted = plus(s.counted, layout.CountPromoted)
			return s
		}()},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev closing | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd closing | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
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
		name: "a SYN on an established connection's numbers does not disturb it: the far end challenges it", services: oneService,
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
		name:     "a reset at the number that a segment far behind the window claimed changes nothing",
		services: oneService,
		steps:    toService.open(toService.sends("A", 900001, 5001), ignored(toService.sends("R", 900001, 0))),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 4/0 packets | peer podB, peer podA | approved-0 approved-1",
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
