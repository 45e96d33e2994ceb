// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/conntrack"
)

// Flows lists conntrack entries.
type Flows []conntrack.Entry

// SortFlows orders entries by family, protocol and ends.
func SortFlows(entries []conntrack.Entry) Flows {
	slices.SortFunc(entries, func(a, b conntrack.Entry) int {
		return cmp.Or(strings.Compare(a.Family, b.Family), strings.Compare(a.Proto, b.Proto), a.Source.Compare(b.Source),
			a.Destination.Compare(b.Destination), strings.Compare(a.Type, b.Type))
	})
	return entries
}

// Table implements Lister.
func (f Flows) Table() Table {
	t := Table{Columns: []string{"PROTO", "SOURCE", "DESTINATION", "TYPE", "STATE", "NAT", "IDLE", "TIMEOUT", "PACKETS", "BYTES", "FLAGS"},
		Empty: "no connections"}
	for _, e := range f {
		state := e.State
		if e.HalfOpen {
			state += " (half-open)"
		}
		if e.Dead {
			state += " (dead)"
		}
		nat := ""
		if e.Translated() {
			nat = endpointOf(e.NATSource) + ">" + endpointOf(e.NATDestination)
		} else if e.Asked.IsValid() {
			nat = "for " + endpointOf(e.Asked)
		}
		t.Rows = append(t.Rows, []string{e.Proto, endpointOf(e.Source), endpointOf(e.Destination), e.Type, state, nat,
			fmt.Sprintf("%.0fs", e.Idle), fmt.Sprintf("%.0fs", e.Timeout), fmt.Sprintf("%d/%d", e.Packets[0], e.Packets[1]),
			fmt.Sprintf("%d/%d", e.Bytes[0], e.Bytes[1]), strings.Join(e.Flags, ",")})
	}
	return t
}

func endpointOf(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
