// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Routes lists the route maps.
type Routes []Route

// Route is one entry of a route map.
type Route struct {
	Prefix       netip.Prefix `json:"prefix"`
	Flags        []string     `json:"flags"`
	Device       string       `json:"device,omitempty"`
	Ifindex      uint32       `json:"ifindex,omitempty"`
	EndpointSlot uint32       `json:"endpointSlot,omitempty"`
	NodeID       uint32       `json:"nodeID,omitempty"`
	NextHop      netip.Addr   `json:"nextHop,omitzero"`
}

// Routes reads the route maps.
func (v *View) Routes() (Routes, error) {
	out := Routes{}
	err := v.Maps.Routes.All(func(p netip.Prefix, r maps.Route) bool {
		out = append(out, Route{Prefix: p, Flags: flagList(r.Flags.String()), Device: v.device(r.Ifindex), Ifindex: r.Ifindex,
			EndpointSlot: r.EPSlot, NodeID: r.NodeID, NextHop: r.NextHop})
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	slices.SortFunc(out, func(a, b Route) int {
		if c := a.Prefix.Addr().BitLen() - b.Prefix.Addr().BitLen(); c != 0 {
			return c
		}
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return out, nil
}

// Table implements Lister.
func (r Routes) Table() Table {
	t := Table{Columns: []string{"PREFIX", "FLAGS", "DEVICE", "NEXT-HOP", "NODE", "ENDPOINT"}, Empty: "no routes are programmed"}
	for _, e := range r {
		hop := ""
		if e.NextHop.IsValid() {
			hop = e.NextHop.String()
		}
		t.Rows = append(t.Rows, []string{e.Prefix.String(), strings.Join(e.Flags, ","), e.Device, hop, number(e.NodeID),
			number(e.EndpointSlot)})
	}
	return t
}

// number prints a number for which zero means none.
func number(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
