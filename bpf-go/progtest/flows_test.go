// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

type counters = []layout.Counter

// plus is what several programs count together.
func plus(base counters, more ...layout.Counter) counters { return append(slices.Clone(base), more...) }

var (
	newFlow    = counters{layout.CountPolicyAllow, layout.CountNewFlow}
	newService = plus(newFlow, layout.CountServiceNew, layout.CountDNAT)
	viaVeth    = counters{layout.CountRedirectNeigh} // through the program of the pod's own veth
	viaPeer    = counters{layout.CountRedirectPeer}
	judged     = counters{layout.CountPolicyAllow, layout.CountToStack} // by the receiving pod's program
	toStack    = counters{layout.CountToStack}
	sentRST    = counters{layout.CountRSTSent, layout.CountRedirectBack}
	sentICMP   = counters{layout.CountICMPSent, layout.CountRedirectBack}
)

// Sequence numbers of the two ends' first segments.
const (
	clientISN = 1000
	serverISN = 5000
)

// flow is a connection between podA, by default, and a service or a pod, as the different hooks see it.
type flow struct {
	client  string // the opener: "podA:40000"
	asked   string // whom it asks: "vip:80"
	backend string // who answers: "podB:8080"; the one that was asked if the same
	shown   string // the client as the backend sees it; client if empty
}

var (
	toService = flow{client: "podA:40000", asked: "vip:80", backend: "podB:8080"}
	toPod     = flow{client: "podA:40000", asked: "podB:8080", backend: "podB:8080"}
	toRemote  = flow{client: "podA:40000", asked: "vip:80", backend: "podR:8080"}
)

func (f flow) source() string {
	if f.shown != "" {
		return f.shown
	}
	return f.client
}

func (f flow) translated() bool { return f.asked != f.backend || f.source() != f.client }

// out is a TCP segment of the client as it sends it, and as the backend gets it; in is one of the backend as it sends it,
// and as the client gets it.
func (f flow) out(flags string, seq, ack uint32) packet {
	return tcp(f.client, f.asked, flags).at(seq, ack)
}

func (f flow) outXlated(flags string, seq, ack uint32) packet {
	return tcp(f.source(), f.backend, flags).at(seq, ack).ttl(63)
}

func (f flow) in(flags string, seq, ack uint32) packet {
	return tcp(f.backend, f.source(), flags).at(seq, ack)
}

func (f flow) inXlated(flags string, seq, ack uint32) packet {
	return tcp(f.asked, f.client, flags).at(seq, ack).ttl(63)
}

func (f flow) dnat() counters {
	if f.translated() {
		return counters{layout.CountDNAT}
	}
	return nil
}

func (f flow) unnat() counters {
	if f.translated() {
		return counters{layout.CountUnnat}
	}
	return nil
}

// syn is the first packet, from podA to a pod of this node.
func (f flow) syn() step {
	counted := newFlow
	if f.translated() {
		counted = newService
	}
	return step{
		at: "from_wep podA", send: f.out("S", clientISN, 0),
		want: redirect, out: becomes(f.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
		counted: plus(counted, viaVeth...),
	}
}

// judge is the first packet at the backend's own program.
func (f flow) judge() step {
	return step{
		at: "to_wep podB", send: f.outXlated("S", clientISN, 0), mark: layout.MarkSeen,
		want: pass, marked: layout.MarkSeen, counted: judged,
	}
}

func (f flow) synAck() step {
	return step{
		at: "from_wep podB", send: f.in("SA", serverISN, clientISN+1),
		want: redirect, out: becomes(f.inXlated("SA", serverISN, clientISN+1)),
		counted: plus(f.unnat(), viaPeer...),
	}
}

// ack is the third packet: it confirms the flow.
func (f flow) ack() step {
	return step{
		at: "from_wep podA", send: f.out("A", clientISN+1, serverISN+1),
		want: redirect, out: becomes(f.outXlated("A", clientISN+1, serverISN+1)),
		counted: plus(plus(f.dnat(), viaPeer...), layout.CountPromoted),
	}
}

// open is the whole handshake.
func (f flow) open(then ...step) steps {
	return append(steps{f.syn(), f.judge(), f.synAck(), f.ack()}, then...)
}

// sends is a segment of the client in a confirmed flow; slow if its flags take it out of the fast path.
func (f flow) sends(flags string, seq, ack uint32) step {
	return step{
		at: "from_wep podA", send: f.out(flags, seq, ack),
		want: redirect, out: becomes(f.outXlated(flags, seq, ack)),
		counted: plus(plus(f.dnat(), viaPeer...), fastPath(flags)...),
	}
}

// answers is the same for the backend.
func (f flow) answers(flags string, seq, ack uint32) step {
	return step{
		at: "from_wep podB", send: f.in(flags, seq, ack),
		want: redirect, out: becomes(f.inXlated(flags, seq, ack)),
		counted: plus(plus(f.unnat(), viaPeer...), fastPath(flags)...),
	}
}

// slow is the step off the fast path.
func (s step) slow() step {
	s.counted = slices.DeleteFunc(slices.Clone(s.counted), func(c layout.Counter) bool { return c == layout.CountFastPath })
	return s
}

func fastPath(flags string) counters {
	for _, c := range flags {
		if c == 'S' || c == 'F' || c == 'R' {
			return nil
		}
	}
	return counters{layout.CountFastPath}
}
