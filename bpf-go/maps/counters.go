// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// CounterKey is a row of the counters: an interface slot, a hook and a family.
type CounterKey struct {
	Slot   uint32
	Hook   layout.Hook
	Family layout.Family
}

func (k CounterKey) row() uint32 { return (k.Slot*2+uint32(k.Hook))*2 + uint32(k.Family) }

// rowsPerSlot are the rows of one interface: two hooks in two families.
const rowsPerSlot = 4

// Counters is cali_counters2: one row of counters for each interface, hook and family, per CPU.
type Counters struct {
	name string
	m    atomic.Pointer[ebpf.Map]
}

// Raw is the map itself.
func (c *Counters) Raw() *ebpf.Map { return c.m.Load() }

// Slots is how many interfaces have room; slot 0 means "none" and is not given to one.
func (c *Counters) Slots() uint32 { return c.Raw().MaxEntries() / rowsPerSlot }

// straight are the counters that stand for several: what else each packet in them counts as.
var straight = map[layout.Counter][]layout.Counter{
	layout.CountStraight:      {layout.CountTotal, layout.CountFastPath, layout.CountRedirectPeer},
	layout.CountStraightDNAT:  {layout.CountTotal, layout.CountFastPath, layout.CountRedirectPeer, layout.CountDNAT},
	layout.CountStraightUnnat: {layout.CountTotal, layout.CountFastPath, layout.CountRedirectPeer, layout.CountUnnat},
}

// Read sums a row over all CPUs. Counters that stand for several are taken apart, and are zero in the result.
func (c *Counters) Read(key CounterKey) (layout.CounterRow, error) {
	var sum layout.CounterRow
	var perCPU []layout.CounterRow
	if err := c.Raw().Lookup(key.row(), &perCPU); err != nil {
		return sum, fmt.Errorf("%s: look up slot %d: %w", c.name, key.Slot, err)
	}
	for _, row := range perCPU {
		for i, n := range row.Count {
			sum.Count[i] += n
		}
	}
	for c, counted := range straight {
		for _, other := range counted {
			sum.Count[other] += sum.Count[c]
		}
		sum.Count[c] = 0
	}
	return sum, nil
}

// Zero clears all rows of a slot: before an interface gets it.
func (c *Counters) Zero(slot uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	empty := make([]layout.CounterRow, cpus)
	for row := slot * rowsPerSlot; row < (slot+1)*rowsPerSlot; row++ {
		if err := c.Raw().Update(row, empty, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("%s: zero slot %d: %w", c.name, slot, err)
		}
	}
	return nil
}
