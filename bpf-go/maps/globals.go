// SPDX-License-Identifier: Apache-2.0

package maps

import "github.com/felix-lite/felix-lite/bpf-go/layout"

// Globals is cali_globals2: what may change while the programs stay. Only the agent's loop writes it.
type Globals struct {
	*Map[uint32, layout.Globals]
}

// Read returns the value that programs see now.
func (g *Globals) Read() (layout.Globals, error) {
	value, _, err := g.Lookup(0)
	return value, err
}

// Change reads the value, lets change edit it, and writes it back as a whole if it differs.
func (g *Globals) Change(change func(*layout.Globals)) error {
	old, err := g.Read()
	if err != nil {
		return err
	}
	value := old
	change(&value)
	if value == old {
		return nil
	}
	return g.Put(0, value)
}

// BumpRouteEpoch makes every conntrack entry resolve its way again. It is called after a local
// workload, node or route was changed or removed.
func (g *Globals) BumpRouteEpoch() error {
	return g.Change(func(v *layout.Globals) { v.RouteEpoch++ })
}
