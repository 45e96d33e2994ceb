// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Counters lists the datapath's counters that are not zero.
type Counters []Counter

// Counter is one figure.
type Counter struct {
	Interface string `json:"interface"`
	Class     string `json:"class"`
	Hook      string `json:"hook"`
	Family    string `json:"family"`
	Name      string `json:"name"`
	Drop      bool   `json:"drop"`
	Count     uint64 `json:"count"`

	number layout.Counter
}

// CounterFilter chooses counters.
type CounterFilter struct {
	Drops     bool   // drop reasons alone
	Interface string // of one interface; empty: of all
}

// Counters reads the counters of all interfaces.
func (v *View) Counters(f CounterFilter) (Counters, error) {
	type owner struct {
		name  string
		class layout.Class
		slot  uint32
	}
	var owners []owner
	if err := v.Maps.Interfaces.All(func(_ uint32, i layout.IfaceValue) bool {
		owners = append(owners, owner{nameOf(i), layout.Class(i.Class), i.IfaceSlot})
		return true
	}); err != nil {
		return nil, fmt.Errorf("read interfaces: %w", err)
	}
	slices.SortFunc(owners, func(a, b owner) int {
		if c := int(a.class) - int(b.class); c != 0 {
			return c
		}
		return compareNatural(a.name, b.name)
	})
	if f.Interface != "" && !slices.ContainsFunc(owners, func(o owner) bool { return o.name == f.Interface }) {
		return nil, fmt.Errorf("no program counts at interface %q: `interfaces` lists those that do", f.Interface)
	}
	out := Counters{}
	for _, o := range owners {
		if f.Interface != "" && f.Interface != o.name {
			continue
		}
		for _, r := range rows {
			row, err := v.Maps.Counters.Read(maps.CounterKey{Slot: o.slot, Hook: r.hook, Family: r.family})
			if err != nil {
				return nil, err
			}
			for n := layout.Counter(0); n < layout.CounterMax; n++ {
				if row.Count[n] == 0 || (f.Drops && !n.IsDrop()) {
					continue
				}
				out = append(out, Counter{Interface: o.name, Class: o.class.String(), Hook: r.hook.String(),
					Family: r.family.String(), Name: n.String(), Drop: n.IsDrop(), Count: row.Count[n], number: n})
			}
		}
	}
	return out, nil
}

// Table implements Lister.
func (c Counters) Table() Table {
	t := Table{Columns: []string{"INTERFACE", "CLASS", "HOOK", "FAMILY", "COUNTER", "COUNT", "MEANING"},
		Empty: "all counters are zero"}
	for _, e := range c {
		name := e.Name
		if e.Drop {
			name = "drop:" + name
		}
		t.Rows = append(t.Rows, []string{e.Interface, e.Class, e.Hook, e.Family, name, strconv.FormatUint(e.Count, 10),
			e.number.Text()})
	}
	return t
}

// compareNatural orders names of which one is a prefix of the other, or that end in numbers, as people do.
func compareNatural(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
