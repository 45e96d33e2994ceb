// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// rank orders claims to the same prefix by what they are.
type rank uint8

const (
	ownAddress    rank = iota // an address of this node's interfaces or Node object
	localWorkload             // a pod here
	nodeAddress               // a remote node's address
	podCIDR                   // a node's range
	exclusion                 // a configured range outside of the cluster that sees pods' own addresses
)

// claim is an object's wish to have a prefix, and the entries that follow if it gets it.
type claim struct {
	prefix  netip.Prefix
	rank    rank
	created time.Time
	kind    model.Kind
	name    model.ObjectName
	field   string
	alias   model.ObjectName // the pod of an endpoint

	route     RouteValue
	kernel    *KernelRoute
	neighbour *Neighbour

	beatenBy *claim
}

// same reports whether two claims of one owner are alike.
func (cl *claim) same(o *claim) bool {
	a, b := *cl, *o
	a.beatenBy, b.beatenBy = nil, nil
	return a.prefix == b.prefix && reflect.DeepEqual(a, b)
}

// before orders claims: by rank, then the older object, then by name; ranges of pods are ordered
// the same way on every node.
func (cl *claim) before(o *claim) bool {
	return cmp.Or(cmp.Compare(cl.rank, o.rank), cl.created.Compare(o.created), cl.name.Compare(o.name),
		cl.prefix.Addr().Compare(o.prefix.Addr()), cmp.Compare(cl.prefix.Bits(), o.prefix.Bits())) < 0
}

func (cl *claim) describe() string {
	switch {
	case cl.rank == ownAddress:
		return "this node"
	case cl.rank == exclusion:
		return "natOutgoingExclusionCIDRs"
	case cl.kind == model.KindWorkloadEndpoint && cl.alias != (model.ObjectName{}):
		return fmt.Sprintf("pod %s (endpoint %s)", cl.alias, cl.name)
	case cl.kind == model.KindWorkloadEndpoint:
		return "endpoint " + cl.name.String()
	}
	return "node " + cl.name.String()
}

// problem says why a claim is refused, which it is.
func (cl *claim) problem() model.ObjectError {
	e := model.ObjectError{Kind: cl.kind, Name: cl.name, Field: cl.field}
	if o := cl.beatenBy; cl.prefix == o.prefix {
		e.Message = fmt.Sprintf("%s is not used: it belongs to %s", text(cl.prefix), o.describe())
	} else {
		e.Message = fmt.Sprintf("%s is not used: it overlaps %s of %s", text(cl.prefix), text(o.prefix), o.describe())
	}
	return e
}

// text writes a single address as one.
func text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// slot is one prefix: who wants it, who has it.
type slot struct {
	claims []*claim
	winner *claim // as last emitted
}

// table is all prefixes.
type table struct {
	slots map[netip.Prefix]*slot
	// lengths counts the claims to pod ranges by prefix length, so that overlaps are found by a
	// few lookups.
	lengths [2]map[int]int
	// exclusions are few: those inside of a changed pod range are found by looking at all.
	exclusions []netip.Prefix
	dirty      map[netip.Prefix]struct{}
}

func newTable() table {
	return table{
		slots: map[netip.Prefix]*slot{}, dirty: map[netip.Prefix]struct{}{}, lengths: [2]map[int]int{{}, {}},
	}
}

func (t *table) add(cl *claim) {
	s := t.slots[cl.prefix]
	if s == nil {
		s = &slot{}
		t.slots[cl.prefix] = s
	}
	s.claims = append(s.claims, cl)
	if cl.rank == podCIDR {
		t.lengths[model.FamilyOf(cl.prefix.Addr())][cl.prefix.Bits()]++
	}
	t.touch(cl)
}

func (t *table) remove(cl *claim) {
	s := t.slots[cl.prefix]
	s.claims = slices.DeleteFunc(s.claims, func(o *claim) bool { return o == cl })
	if cl.rank == podCIDR {
		lengths := t.lengths[model.FamilyOf(cl.prefix.Addr())]
		if lengths[cl.prefix.Bits()]--; lengths[cl.prefix.Bits()] == 0 {
			delete(lengths, cl.prefix.Bits())
		}
	}
	t.touch(cl)
}

// touch marks a claim's prefix, and with a pod range all that overlap it.
func (t *table) touch(cl *claim) {
	t.dirty[cl.prefix] = struct{}{}
	if cl.rank == podCIDR {
		for _, o := range t.overlapping(cl.prefix) {
			t.dirty[o.prefix] = struct{}{}
		}
		for _, p := range t.exclusions {
			if contains(cl.prefix, p) {
				t.dirty[p] = struct{}{}
			}
		}
	}
}

// contains reports whether all of q is in p.
func contains(p, q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Contains(q.Addr()) }

// overlapping returns the claims to other pod ranges that overlap p.
func (t *table) overlapping(p netip.Prefix) []*claim {
	var out []*claim
	collect := func(q netip.Prefix) {
		if s := t.slots[q]; s != nil && q != p {
			for _, cl := range s.claims {
				if cl.rank == podCIDR {
					out = append(out, cl)
				}
			}
		}
	}
	longer := false
	for bits := range t.lengths[model.FamilyOf(p.Addr())] {
		if bits < p.Bits() {
			q, _ := p.Addr().Prefix(bits)
			collect(q)
		}
		longer = longer || bits > p.Bits()
	}
	if longer {
		for q := range t.slots {
			if q.Bits() > p.Bits() && p.Overlaps(q) {
				collect(q)
			}
		}
	}
	return out
}

// emit decides about each touched prefix and adds what is different from before.
func (t *table) emit(d *Delta) {
	order := slices.SortedFunc(maps.Keys(t.dirty), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	clear(t.dirty)
	for _, p := range order {
		s := t.slots[p]
		var winner *claim
		for _, cl := range s.claims {
			if winner == nil || cl.before(winner) {
				winner = cl
			}
		}
		if winner != nil && winner.rank >= podCIDR {
			if senior := t.senior(winner); senior != nil {
				t.judge(d, s.claims, senior)
				winner = nil
			}
		}
		if winner != nil {
			t.judge(d, s.claims, winner)
		}
		t.replace(d, p, s.winner, winner)
		s.winner = winner
		if len(s.claims) == 0 {
			delete(t.slots, p)
		}
	}
}

// senior returns the claim of another node to an overlapping range that goes before cl, or nil. A
// range is refused even if the one it loses to is refused in turn: the answer then depends on the
// two alone. An exclusion may contain pod ranges, which are more specific, but not lie inside of one: it
// would hide how those pods are reached.
func (t *table) senior(cl *claim) *claim {
	var first *claim
	for _, o := range t.overlapping(cl.prefix) {
		if cl.rank == exclusion && !contains(o.prefix, cl.prefix) {
			continue
		}
		if (o.name != cl.name || o.rank != cl.rank) && o.before(cl) && (first == nil || o.before(first)) {
			first = o
		}
	}
	return first
}

// judge notes which claims lose, and to whom, and reports what is new. A local pod inside its own
// node's one-address range, or an owner's second claim, is no conflict.
func (t *table) judge(d *Delta, claims []*claim, winner *claim) {
	for _, cl := range claims {
		if cl == winner || (cl.kind == winner.kind && cl.name == winner.name && cl.rank != exclusion) || (cl.rank == podCIDR && winner.rank != podCIDR) {
			cl.beatenBy = nil
			continue
		}
		was := cl.beatenBy
		cl.beatenBy = winner
		if was == nil || was.prefix != winner.prefix || was.name != winner.name || was.kind != winner.kind {
			d.Problems = append(d.Problems, cl.problem())
		}
	}
}

// replace adds the difference between two claims' entries.
func (t *table) replace(d *Delta, p netip.Prefix, old, now *claim) {
	none := &claim{}
	if old == nil {
		old = none
	}
	if now == nil {
		now = none
	}
	switch {
	case now == none && old != none:
		d.DeleteRoutes = append(d.DeleteRoutes, p)
	case now != none && (old == none || old.route != now.route):
		d.Routes = append(d.Routes, Route{p, now.route})
	}
	switch {
	case now.kernel == nil && old.kernel != nil:
		d.DeleteKernel = append(d.DeleteKernel, p)
	case now.kernel != nil && (old.kernel == nil || *old.kernel != *now.kernel):
		d.KernelRoutes = append(d.KernelRoutes, *now.kernel)
	}
	if old.neighbour != nil && (now.neighbour == nil || old.neighbour.NeighbourKey != now.neighbour.NeighbourKey) {
		d.DeleteNeighbours = append(d.DeleteNeighbours, old.neighbour.NeighbourKey)
	}
	if now.neighbour != nil && (old.neighbour == nil || *old.neighbour != *now.neighbour) {
		d.Neighbours = append(d.Neighbours, *now.neighbour)
	}
}
