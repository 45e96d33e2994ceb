// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Filter selects entries. An entry matches when all that is set matches; the zero Filter matches every entry.
type Filter struct {
	// Prefix: one of the flow's ends, before or after translation, is inside.
	Prefix netip.Prefix
	// Port: one of these ends has it.
	Port uint16
	// Proto is the IP protocol number.
	Proto uint8
	// ServiceID is the service port's id.
	ServiceID uint32
	// State by name: new, replied, established ...
	State string
}

// ParseProto returns the number of a protocol given by name or number.
func ParseProto(s string) (uint8, error) {
	for _, known := range protocols {
		if strings.EqualFold(known.name, s) {
			return known.number, nil
		}
	}
	var n uint8
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil || fmt.Sprint(n) != s {
		return 0, fmt.Errorf("protocol %q: want tcp, udp, icmp, icmpv6, sctp or a number below 256", s)
	}
	return n, nil
}

// ParseState checks the name of a state.
func ParseState(s string) (string, error) {
	var names []string
	for state := layout.CTNew; state <= layout.CTReset; state++ {
		if strings.EqualFold(state.String(), s) {
			return state.String(), nil
		}
		names = append(names, state.String())
	}
	return "", fmt.Errorf("state %q: want one of %s", s, strings.Join(names, ", "))
}

// Match tells whether the filter selects the entry.
func (f Filter) Match(e *Entry) bool {
	if f.Proto != 0 && protoName(f.Proto) != e.Proto ||
		f.ServiceID != 0 && f.ServiceID != e.ServiceID ||
		f.State != "" && f.State != e.State {
		return false
	}
	if !f.Prefix.IsValid() && f.Port == 0 {
		return true
	}
	var addr, port bool
	for _, end := range [...]netip.AddrPort{e.Source, e.Destination, e.NATSource, e.NATDestination} {
		addr = addr || f.Prefix.Contains(end.Addr())
		port = port || end.IsValid() && end.Port() == f.Port
	}
	return (addr || !f.Prefix.IsValid()) && (port || f.Port == 0)
}

// Walk calls visit for every entry that filter selects, in no order, until it returns false. It does not stop the
// datapath: entries made meanwhile may be missed, and a flow that is promoted meanwhile may come twice.
func Walk(tables Tables, clock Clock, filter Filter, visit func(Entry) bool) error {
	now, err := clock.now()
	if err != nil {
		return err
	}
	more, err := walkFamily(family[layout.AddrV4]{tables.V4, tables.V4Half}, now, filter, visit)
	if err != nil || !more {
		return err
	}
	_, err = walkFamily(family[layout.AddrV6]{tables.V6, tables.V6Half}, now, filter, visit)
	return err
}

func walkFamily[A layout.Address](f family[A], now ticks, filter Filter, visit func(Entry) bool) (bool, error) {
	for _, t := range f.tables() {
		for w := newWalker[A](t.m); !w.done; {
			keys, values, err := w.read()
			if err != nil {
				return false, fmt.Errorf("list %s: %w", t.name(), err)
			}
			for i := range keys {
				if e := decode(t, &keys[i], &values[i], now); filter.Match(&e) && !visit(e) {
					return false, nil
				}
			}
		}
	}
	return true, nil
}

// List returns every entry that filter selects. A full table makes a list of some hundred megabytes: Walk does not.
func List(tables Tables, clock Clock, filter Filter) ([]Entry, error) {
	var out []Entry
	err := Walk(tables, clock, filter, func(e Entry) bool {
		out = append(out, e)
		return true
	})
	return out, err
}
