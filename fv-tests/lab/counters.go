// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Variant is one of the 24 programs: what a row of counters belongs to, summed over interfaces.
type Variant struct {
	Class  layout.Class
	Hook   layout.Hook
	Family layout.Family
}

// String is the name of the variant's object: from_wep_v4.
func (v Variant) String() string {
	direction := "from"
	if v.Hook != 0 {
		direction = "to"
	}
	return fmt.Sprintf("%s_%s_%s", direction, v.Class, v.Family)
}

// AllVariants lists the 24 in the order of the table in docs/testing.md.
func AllVariants() []Variant {
	var all []Variant
	for class := range layout.ClassCount {
		for hook := range layout.Hook(2) {
			for family := range layout.Family(2) {
				all = append(all, Variant{class, hook, family})
			}
		}
	}
	return all
}

// Counters are a node's counters at one moment, or what was counted between two.
type Counters map[Variant]layout.CounterRow

// Counters reads the counters of all the node's interfaces from its live maps; no agent is needed.
func (n *Node) Counters() (Counters, error) {
	set, err := n.Maps()
	if err != nil {
		return nil, err
	}
	sum := Counters{}
	var readErr error
	err = set.Interfaces.All(func(_ uint32, v layout.IfaceValue) bool {
		for hook := range layout.Hook(2) {
			for family := range layout.Family(2) {
				row, err := set.Counters.Read(maps.CounterKey{Slot: v.IfaceSlot, Hook: hook, Family: family})
				if err != nil {
					readErr = err
					return false
				}
				sum.add(Variant{layout.Class(v.Class), hook, family}, row)
			}
		}
		return true
	})
	if err == nil {
		err = readErr
	}
	if err != nil {
		return nil, fmt.Errorf("counters of %s: %w", n.Name, err)
	}
	return sum, nil
}

// Maps returns the node's live maps, read-only. They stay open for the life of the process.
func (n *Node) Maps() (*maps.Set, error) {
	n.mapsOnce.Lock()
	defer n.mapsOnce.Unlock()
	if n.maps == nil {
		set, err := maps.OpenReadOnly(n.BPFRoot())
		if err != nil {
			return nil, fmt.Errorf("maps of %s: %w", n.Name, err)
		}
		n.maps = set
	}
	return n.maps, nil
}

func (c Counters) add(v Variant, row layout.CounterRow) {
	sum := c[v]
	for i, count := range row.Count {
		sum.Count[i] += count
	}
	c[v] = sum
}

// Since returns what was counted after an earlier moment. Rows of interfaces that went away meanwhile
// are left out rather than counted backwards.
func (c Counters) Since(before Counters) Counters {
	diff := Counters{}
	for v, row := range c {
		old := before[v]
		for i, count := range row.Count {
			if count >= old.Count[i] {
				row.Count[i] = count - old.Count[i]
			} else {
				row.Count[i] = 0
			}
		}
		diff[v] = row
	}
	return diff
}

// Plus adds two sets of counters: of two nodes, or of two stretches of time.
func (c Counters) Plus(other Counters) Counters {
	sum := Counters{}
	for _, part := range []Counters{c, other} {
		for v, row := range part {
			sum.add(v, row)
		}
	}
	return sum
}

// Get returns one counter of one variant.
func (c Counters) Get(v Variant, counter layout.Counter) uint64 { return c[v].Count[counter] }

// outcomes are the counters of which each packet raises exactly one: how it left the program. Drops
// come on top.
var outcomes = []layout.Counter{
	layout.CountBypass, layout.CountToStack, layout.CountRedirectPeer, layout.CountRedirectNeigh, layout.CountRedirectTunnel,
	layout.CountRedirectBack, layout.CountRedirectNatout, layout.CountTunnelKey, layout.CountMidflowStack, layout.CountVXLANOuter, layout.CountVLANPass,
}

// Packets returns how many packets a variant has seen, whatever became of them.
func (c Counters) Packets(v Variant) uint64 {
	var sum uint64
	for _, counter := range outcomes {
		sum += c.Get(v, counter)
	}
	for counter := range layout.CounterMax {
		if counter.IsDrop() {
			sum += c.Get(v, counter)
		}
	}
	return sum
}

// Of returns the counters of one family.
func (c Counters) Of(family layout.Family) Counters {
	part := Counters{}
	for v, row := range c {
		if v.Family == family {
			part[v] = row
		}
	}
	return part
}

// Sum returns one counter over all variants.
func (c Counters) Sum(counter layout.Counter) uint64 {
	var sum uint64
	for _, row := range c {
		sum += row.Count[counter]
	}
	return sum
}

// Drops returns all drop counters that are not zero, by reason.
func (c Counters) Drops() map[string]uint64 {
	drops := map[string]uint64{}
	for counter := range layout.CounterMax {
		if counter.IsDrop() {
			if sum := c.Sum(counter); sum > 0 {
				drops[counter.String()] = sum
			}
		}
	}
	return drops
}

// String lists what is not zero, one variant a line.
func (c Counters) String() string {
	var lines []string
	for v, row := range c {
		var parts []string
		for counter, count := range row.Count {
			if count > 0 {
				parts = append(parts, fmt.Sprintf("%s=%d", layout.Counter(counter), count))
			}
		}
		if parts != nil {
			lines = append(lines, fmt.Sprintf("%-15s %s", v, strings.Join(parts, " ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// WaitFrontend returns when the node's live maps have a TCP frontend with a number of backends in its
// cluster list: the point from which new connections are balanced over them.
func (n *Node) WaitFrontend(ctx context.Context, frontend netip.AddrPort, backends int) error {
	return WaitFor(ctx, fmt.Sprintf("frontend %s on %s with %d backends", frontend, n.Name, backends), func() (bool, string) {
		set, err := n.Maps()
		if err != nil {
			return false, err.Error()
		}
		v, found, err := set.Frontends.Lookup(maps.FrontendKey{Addr: frontend.Addr(), Port: frontend.Port(), Proto: unix.IPPROTO_TCP})
		if err != nil || !found {
			return false, fmt.Sprintf("not there: %v", err)
		}
		return v.ClusterCount == uint32(backends), fmt.Sprintf("%d backends", v.ClusterCount)
	})
}
