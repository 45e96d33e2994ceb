// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Programs is a prog_array: cali_jump2 or cali_policy2. Slots are replaced in place, never deleted
// and put: a program that jumps there meanwhile finds the old one or the new one.
type Programs struct {
	name string
	m    *ebpf.Map
}

// Raw is the map itself.
func (p *Programs) Raw() *ebpf.Map { return p.m }

// Set puts a program into a slot.
func (p *Programs) Set(slot uint32, prog *ebpf.Program) error {
	if err := p.m.Update(slot, prog, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("%s[%d]: %w", p.name, slot, err)
	}
	return nil
}

// Get returns the id of the program in a slot; found is false if the slot is empty.
func (p *Programs) Get(slot uint32) (id ebpf.ProgramID, found bool, err error) {
	var raw uint32
	err = p.m.Lookup(slot, &raw)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s[%d]: %w", p.name, slot, err)
	}
	return ebpf.ProgramID(raw), true, nil
}

// Clear empties a slot that nothing jumps to any more. An empty one is no error.
func (p *Programs) Clear(slot uint32) error {
	err := p.m.Delete(slot)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("%s[%d]: clear: %w", p.name, slot, err)
	}
	return nil
}
