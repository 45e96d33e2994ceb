// SPDX-License-Identifier: Apache-2.0

// Package jump puts loaded programs into the jump maps: a whole generation of variants at once, and
// the policies.
//
// cali_jump2 has two banks. A generation is loaded for the bank that no preamble jumps to, all its
// slots are filled and read back, and then one write to cali_globals2 switches every preamble of
// the node to it: a packet sees programs of one generation only. The old bank stays as it is until
// the next generation needs it. The agent calls it at start and when constants change.
package jump

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// slots are the jump slots of a variant's programs, by program name: cali_new_flow stands in
// SlotNewFlow.
var slots = func() map[string]layout.Slot {
	all := map[string]layout.Slot{}
	for slot := layout.SlotMain; slot < layout.SlotStride; slot++ {
		all["cali_"+strings.ReplaceAll(slot.String(), "-", "_")] = slot
	}
	delete(all, "cali_policy") // policies have a map of their own
	return all
}()

// MainProgram is the program of a variant that preambles jump to.
const MainProgram = "cali_main"

// NextBank is the base index of the bank that no preamble jumps to: what Config.JumpBank must be
// when the next generation is loaded.
func NextBank(set *maps.Set) (uint32, error) {
	g, err := set.Globals.Read()
	if err != nil {
		return 0, err
	}
	if g.JumpBase == 0 {
		return uint32(layout.BankStride), nil
	}
	return 0, nil
}

// Install fills a bank with a whole generation and switches the preambles to it. On an error the
// generation that was active stays active. Every variant must be there, with its main program.
func Install(set *maps.Set, bank uint32, generation []*load.Object) error {
	wanted, err := plan(bank, generation)
	if err != nil {
		return err
	}
	g, err := set.Globals.Read()
	if err != nil {
		return err
	}
	if g.JumpBase == bank && inUse(set, bank) {
		return fmt.Errorf("jump bank %d is the active one: load the generation for the other", bank)
	}
	if err := fill(set.Jump, bank, wanted); err != nil {
		return err
	}
	return set.Globals.Change(func(g *layout.Globals) { g.JumpBase = bank })
}

// inUse tells a bank with programs from the empty one of a new node.
func inUse(set *maps.Set, bank uint32) bool {
	for _, v := range variants.All() {
		if _, found, err := set.Jump.Get(bank + v.Slot(layout.SlotMain)); found || err != nil {
			return true
		}
	}
	return false
}

// plan says which program belongs into which slot.
func plan(bank uint32, generation []*load.Object) (map[uint32]*ebpf.Program, error) {
	if bank%uint32(layout.BankStride) != 0 || bank/uint32(layout.BankStride) >= uint32(layout.BankCount) {
		return nil, fmt.Errorf("jump bank %d does not exist", bank)
	}
	wanted := map[uint32]*ebpf.Program{}
	seen := map[variants.Variant]bool{}
	for _, o := range generation {
		for name, program := range o.Programs {
			slot, ok := slots[name]
			if !ok {
				return nil, fmt.Errorf("%s: program %s has no jump slot", o.Name, name)
			}
			wanted[bank+o.Variant.Slot(slot)] = program
		}
		if o.Programs[MainProgram] == nil {
			return nil, fmt.Errorf("%s has no program %s", o.Name, MainProgram)
		}
		seen[o.Variant] = true
	}
	for _, v := range variants.All() {
		if !seen[v] {
			return nil, fmt.Errorf("variant %s is missing from the generation", v)
		}
	}
	return wanted, nil
}

// fill writes all slots of an inactive bank, empties those that this generation does not have, and
// reads everything back.
func fill(jump *maps.Programs, bank uint32, wanted map[uint32]*ebpf.Program) error {
	for slot := bank; slot < bank+uint32(layout.BankStride); slot++ {
		var err error
		if program := wanted[slot]; program != nil {
			err = jump.Set(slot, program)
		} else {
			err = jump.Clear(slot)
		}
		if err != nil {
			return err
		}
	}
	for slot, program := range wanted {
		info, err := program.Info()
		if err != nil {
			return err
		}
		want, _ := info.ID()
		have, found, err := jump.Get(slot)
		if err != nil {
			return err
		}
		if !found || have != want {
			return fmt.Errorf("cali_jump2[%d] holds program %d, want %d", slot, have, want)
		}
	}
	return nil
}

// InstallPolicies puts the policies that always stand in cali_policy2 into their slots, in place of
// those of an earlier build. It is called before any preamble is attached.
func InstallPolicies(set *maps.Set, policies *load.Object) error {
	for _, p := range []struct {
		name string
		slot layout.PolicyIndex
	}{
		{load.PolicyDenyProgram, layout.PolicyDeny},
		{load.PolicyAllowProgram, layout.PolicyAllow},
	} {
		program := policies.Programs[p.name]
		if program == nil {
			return fmt.Errorf("%s has no program %s", policies.Name, p.name)
		}
		if err := set.Policy.Set(uint32(p.slot), program); err != nil {
			return err
		}
	}
	return nil
}
