// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// noCounter stands for "whichever way".
const noCounter = layout.CounterMax

// counterID names one counter of the world.
type counterID struct {
	node, iface string
	hook        layout.Hook
	counter     layout.Counter
}

// counters are all counters of all nodes at one moment; those at zero are left out.
type counters map[counterID]uint64

// counters reads the dataplanes that there are.
func (w *world) counters() counters {
	all := counters{}
	for _, n := range w.nodes {
		if n.dp == nil {
			continue
		}
		for _, i := range n.interfaces() {
			for _, hook := range variants.Hooks {
				for _, family := range variants.Families {
					row, err := n.dp.set.Counters.Read(maps.CounterKey{Slot: i.slot, Hook: hook, Family: family})
					if err != nil {
						continue
					}
					for c, value := range row.Count {
						if value > 0 {
							all[counterID{n.name, i.at.Name, hook, layout.Counter(c)}] += value
						}
					}
				}
			}
		}
	}
	return all
}

// judge tells whether what was wanted was counted since, and nothing was dropped but for that.
func (now counters) judge(before counters, wanted layout.Counter) error {
	if wanted == noCounter {
		return nil
	}
	moved := false
	for id, value := range now {
		if value == before[id] {
			continue
		}
		if id.counter == wanted {
			moved = true
		} else if id.counter.IsDrop() {
			return fmt.Errorf("%s %s %s: %d x %s", id.node, id.iface, id.hook, value-before[id], id.counter)
		}
	}
	if !moved {
		return fmt.Errorf("arrived, but not by the expected way: no %s was counted", wanted)
	}
	return nil
}

// sum adds a counter up over all interfaces and hooks.
func (now counters) sum(c layout.Counter) (n uint64) {
	for id, value := range now {
		if id.counter == c {
			n += value
		}
	}
	return n
}

// since lists what has changed, for a person to read.
func (now counters) since(before counters) string {
	var lines []string
	for id, value := range now {
		if value != before[id] {
			lines = append(lines, fmt.Sprintf("\n  %s %s %s %s +%d", id.node, id.iface, id.hook, id.counter, value-before[id]))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}
