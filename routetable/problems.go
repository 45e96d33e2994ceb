// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// Problem is an object that is not as it should be.
type Problem struct {
	Object    string
	Dst       netip.Prefix // of a route; invalid for a neighbour
	Interface string       // of a neighbour; empty for a route
	Status    reconcile.Status
}

// Open ranges over all objects that are not as they should be, in no order: at a cost of those, not of the tables. The
// tables must not be changed meanwhile.
func (r *RouteTable) Open() iter.Seq[Problem] {
	return func(yield func(Problem) bool) {
		for k, s := range r.routes.Open() {
			if !yield(Problem{Object: "route " + k.dst.String(), Dst: k.dst, Status: s}) {
				return
			}
		}
		for k, s := range r.neighbours.Open() {
			if !yield(Problem{Object: "neighbour " + k.String(), Interface: k.Interface, Status: s}) {
				return
			}
		}
	}
}

// Problems lists, in order, the objects that could not be applied at the last attempt: refused ones, and those that
// wait for an interface.
func (r *RouteTable) Problems() []Problem {
	var out []Problem
	for p := range r.Open() {
		if p.Status.Err != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
	return out
}
