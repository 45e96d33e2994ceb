// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// flowKey is an entry's key in a form that does not depend on the family.
type flowKey struct {
	a, b  netip.AddrPort
	proto string
	zone  uint8
}

func flowKeyOf(a, b netip.AddrPort, proto string, zone uint8) flowKey {
	if b.Compare(a) < 0 {
		a, b = b, a
	}
	return flowKey{a, b, proto, zone}
}

func (e *Entry) key() flowKey { return flowKeyOf(e.Source, e.Destination, e.Proto, e.Zone) }

func (e *Entry) twinKey() flowKey {
	var zone uint8
	if e.Type == layout.CTNATRev.String() && slices.Contains(e.Flags, layout.CTFConflict.String()) {
		zone = 1
	}
	return flowKeyOf(e.NATSource, e.NATDestination, e.Proto, zone)
}

// CheckInvariants returns what can not be right in a complete list of entries, one error each: a translated flow
// without its twin, twins that contradict each other, entries that have been dead for longer than slack (the time until
// a sweep has certainly removed them; negative: don't check), keys out of order, states that their table can not hold.
// It is for tests and for people; a list taken under load may show a pair that is just being made.
func CheckInvariants(entries []Entry, slack time.Duration) []error {
	var errs []error
	wrong := func(e *Entry, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", fmt.Sprintf(format, args...), e))
	}
	byKey := make(map[flowKey]*Entry, len(entries))
	for i := range entries {
		e := &entries[i]
		if other := byKey[e.key()]; other == nil || other.HalfOpen {
			byKey[e.key()] = e
		}
	}
	overdue := func(e *Entry) bool { return e.Dead && e.Idle-e.Timeout > slack.Seconds() }
	for i := range entries {
		e := &entries[i]
		if e.Problem != "" {
			wrong(e, "%s", e.Problem)
		}
		switch {
		case !stateKnown(e.State):
			wrong(e, "unknown state")
		case !e.HalfOpen && e.State == layout.CTNew.String() && e.Proto == "tcp":
			wrong(e, "confirmed TCP flow that nobody answered")
		case !e.HalfOpen && byKey[e.key()] != e:
			wrong(e, "flow is in the confirmed table twice")
		}
		if !e.Translated() {
			if e.Type != layout.CTNormal.String() {
				wrong(e, "unknown type")
			}
			if slack >= 0 && overdue(e) {
				wrong(e, "dead for longer than %s", slack)
			}
			continue
		}
		twin := byKey[e.twinKey()]
		switch {
		case twin == nil:
			wrong(e, "twin is missing")
		case twin.Type == e.Type || !twin.Translated():
			wrong(e, "twin's place is taken by another flow (%s)", twin)
		case twin.twinKey() != e.key():
			wrong(e, "twin belongs to another flow (%s)", twin)
		case twin.ServiceID != e.ServiceID || twin.BackendID != e.BackendID:
			wrong(e, "twins name different backends (%s)", twin)
		case slack >= 0 && overdue(e) && overdue(twin):
			wrong(e, "pair dead for longer than %s", slack)
		}
	}
	return errs
}

func stateKnown(s string) bool {
	for state := layout.CTNew; state <= layout.CTReset; state++ {
		if state.String() == s {
			return true
		}
	}
	return false
}
