// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Interfaces lists the interfaces that carry programs.
type Interfaces []Interface

// Interface is one entry of cali_iface2, with the sums of its counters.
type Interface struct {
	Ifindex      uint32            `json:"ifindex"`
	Name         string            `json:"name"`
	Class        string            `json:"class"`
	Ready        bool              `json:"ready"`
	Flags        []string          `json:"flags"`
	Slot         uint32            `json:"slot"`
	EndpointSlot uint32            `json:"endpointSlot,omitempty"`
	Policy       map[string]uint32 `json:"policy"` // index into cali_policy2 by hook/family
	Packets      uint64            `json:"packets"`
	Drops        uint64            `json:"drops"`
}

// Interfaces reads cali_iface2.
func (v *View) Interfaces() (Interfaces, error) {
	out := Interfaces{}
	var failed error
	err := v.Maps.Interfaces.All(func(index uint32, i layout.IfaceValue) bool {
		flags := layout.IfaceFlag(i.Flags)
		e := Interface{Ifindex: index, Name: nameOf(i), Class: layout.Class(i.Class).String(), Ready: flags&layout.IFFReady != 0,
			Flags: flagList(flags.String()), Slot: i.IfaceSlot, EndpointSlot: i.EPSlot, Policy: map[string]uint32{}}
		for _, r := range rows {
			e.Policy[r.hook.String()+"/"+r.family.String()] = i.Policy[uint32(r.hook)*2+uint32(r.family)]
			row, err := v.Maps.Counters.Read(maps.CounterKey{Slot: i.IfaceSlot, Hook: r.hook, Family: r.family})
			if err != nil {
				failed = err
				return false
			}
			e.Packets += row.Count[layout.CountTotal]
			e.Drops += drops(row)
		}
		out = append(out, e)
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("read interfaces: %w", err)
	}
	slices.SortFunc(out, func(a, b Interface) int { return int(a.Ifindex) - int(b.Ifindex) })
	return out, nil
}

// Table implements Lister.
func (l Interfaces) Table() Table {
	t := Table{Columns: []string{"IFINDEX", "NAME", "CLASS", "READY", "SLOT", "ENDPOINT", "POLICY", "PACKETS", "DROPS"},
		Empty: "no interface carries programs"}
	for _, i := range l {
		t.Rows = append(t.Rows, []string{strconv.Itoa(int(i.Ifindex)), i.Name, i.Class, strconv.FormatBool(i.Ready),
			strconv.Itoa(int(i.Slot)), number(i.EndpointSlot), i.policy(), strconv.FormatUint(i.Packets, 10),
			strconv.FormatUint(i.Drops, 10)})
	}
	return t
}

// policy says what the interface's policy slots hold, once where all are alike.
func (i Interface) policy() string {
	var names []string
	for _, r := range rows {
		names = append(names, policyName(i.Policy[r.hook.String()+"/"+r.family.String()]))
	}
	if len(slices.Compact(slices.Clone(names))) == 1 {
		return names[0]
	}
	return strings.Join(names, "/")
}

func policyName(index uint32) string {
	switch layout.PolicyIndex(index) {
	case layout.PolicyDeny:
		return "deny"
	case layout.PolicyAllow:
		return "allow"
	}
	return strconv.Itoa(int(index))
}

// rows are the rows of the counters that an interface has.
var rows = []struct {
	hook   layout.Hook
	family layout.Family
}{
	{layout.HookIngress, layout.FamilyV4},
	{layout.HookIngress, layout.FamilyV6},
	{layout.HookEgress, layout.FamilyV4},
	{layout.HookEgress, layout.FamilyV6},
}

func drops(row layout.CounterRow) (n uint64) {
	for c := layout.DropPolicy; c < layout.CounterMax; c++ {
		n += row.Count[c]
	}
	return n
}
