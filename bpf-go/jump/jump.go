// SPDX-License-Identifier: Apache-2.0

// Package jump puts loaded programs into the jump maps: a whole generation of variants at once, and
// the policies.
//
// cali_jump2 has two banks. A generation is loaded for the bank that no preamble jumps to, all its
// slots are filled and read back, and then one write to cali_globals2 switches every preamble of
// the node to it: a packet sees programs of one generation only. The old bank stays as it is until
// the next generation needs it. A node without any programs gets its first generation class by class
// (InstallClasses), so that pods need not wait for the programs of other interfaces. The agent calls it
// at start and when constants change.
package jump

import (
	"errors"
	"fmt"
	"slices"
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
	wanted, err := plan(bank, generation, variants.Classes())
	if err != nil {
		return err
	}
	g, err := set.Globals.Read()
	if err != nil {
		return err
	}
	if g.JumpBase == bank {
		if _, empty, err := standing(set, bank); err != nil || !empty {
			return errors.Join(err, fmt.Errorf("jump bank %d is the active one: load the generation for the other", bank))
		}
	}
	if err := fill(set.Jump, bank, bank+uint32(layout.BankStride), wanted); err != nil {
		return err
	}
	return set.Globals.Change(func(g *layout.Globals) { g.JumpBase = bank })
}

// InstallClasses puts the programs of some classes into the slots of a bank and switches the preambles to
// it, where no program stands in the active bank yet or this is the active bank and has none of these
// classes: the first generation of a node, in parts. An interface may be attached once the programs of
// its class are there; all variants of each class must come at once.
func InstallClasses(set *maps.Set, bank uint32, objects []*load.Object, classes ...layout.Class) error {
	wanted, err := plan(bank, objects, classes)
	if err != nil {
		return err
	}
	g, err := set.Globals.Read()
	if err != nil {
		return err
	}
	there, empty, err := standing(set, g.JumpBase)
	if err != nil {
		return err
	}
	for _, class := range classes {
		if g.JumpBase == bank && there[class] != 0 {
			return fmt.Errorf("jump bank %d is the active one and has programs of class %s: load a generation for the other", bank, class)
		}
	}
	if g.JumpBase != bank && !empty {
		return fmt.Errorf("jump bank %d is not the active one: it takes nothing less than a whole generation", bank)
	}
	for _, class := range classes {
		first := bank + variants.Variant{Class: class}.Slot(layout.SlotMain)
		after := bank + variants.Variant{Class: class + 1}.Slot(layout.SlotMain)
		if err := fill(set.Jump, first, after, wanted); err != nil {
			return err
		}
	}
	if g.JumpBase == bank {
		return nil
	}
	return set.Globals.Change(func(g *layout.Globals) { g.JumpBase = bank })
}

// Active are the classes whose programs all stand in the bank that preambles jump to. empty says that none
// at all stands there: the bank of a new node.
func Active(set *maps.Set) (classes []layout.Class, empty bool, err error) {
	g, err := set.Globals.Read()
	if err != nil {
		return nil, false, err
	}
	there, empty, err := standing(set, g.JumpBase)
	if err != nil {
		return nil, false, err
	}
	for _, class := range variants.Classes() {
		if there[class] == len(variants.Hooks)*len(variants.Families) {
			classes = append(classes, class)
		}
	}
	return classes, empty, nil
}

// standing counts the main programs of each class in a bank.
func standing(set *maps.Set, bank uint32) (there map[layout.Class]int, empty bool, err error) {
	there, empty = map[layout.Class]int{}, true
	for _, v := range variants.All() {
		_, found, err := set.Jump.Get(bank + v.Slot(layout.SlotMain))
		if err != nil {
			return nil, false, err
		}
		if found {
			there[v.Class]++
			empty = false
		}
	}
	return there, empty, nil
}

// plan says which program belongs into which slot, for all programs of the classes and no others.
func plan(bank uint32, generation []*load.Object, classes []layout.Class) (map[uint32]*ebpf.Program, error) {
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
		if seen[v] != slices.Contains(classes, v.Class) {
			if seen[v] {
				return nil, fmt.Errorf("variant %s is of none of the classes %v", v, classes)
			}
			return nil, fmt.Errorf("variant %s is missing from the generation", v)
		}
	}
	return wanted, nil
}

// fill writes the slots from first up to after, which nothing can reach yet, empties those that this
// generation does not have, and reads everything back.
func fill(jump *maps.Programs, first, after uint32, wanted map[uint32]*ebpf.Program) error {
	for slot := first; slot < after; slot++ {
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
		if slot < first || slot >= after {
			continue
		}
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
