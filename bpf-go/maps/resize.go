// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sort"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"
)

// resized is a map that was replaced while loaded programs still use the old one.
type resized struct {
	name string
	old  *ebpf.Map
}

// resizable tells the maps whose size may change under running programs: tables of entries. Prog
// arrays and the globals are what the preambles hold, and have a fixed size.
func resizable(name string) bool {
	switch name {
	case "cali_jump2", "cali_policy2", "cali_globals2", "cali_rule_ctrs2", "cali_v4_state2", "cali_v6_state2":
		return false
	}
	return true
}

// Resize gives maps their new sizes and returns the names of those that changed. The content is
// copied, every entry is found again in the copy, and only then is the pin switched: on an error the
// map is as it was. Programs that are loaded go on with the old maps: load and install new ones from
// Raw, then call FinishResize.
func (s *Set) Resize(sizes Sizes) ([]string, error) {
	defaults, err := loadSpecs()
	if err != nil {
		return nil, err
	}
	sizes.apply(defaults)
	var changed []string
	for _, name := range s.Names() {
		want := defaults[name].MaxEntries
		if s.open[name].MaxEntries() == want || !resizable(name) {
			continue
		}
		before := s.specs[name].MaxEntries
		s.specs[name].MaxEntries = want
		created, err := s.resize(name, s.open[name])
		if err != nil {
			s.specs[name].MaxEntries = before
			return changed, fmt.Errorf("map %s: %w", name, err)
		}
		s.open[name] = created
		if replace := s.replace[name]; replace != nil {
			replace(created)
		}
		changed = append(changed, name)
	}
	sort.Strings(changed)
	return changed, nil
}

// resize makes the map of the specification's size, fills it from have, and puts it in have's place.
// have stays open, for FinishResize.
func (s *Set) resize(name string, have *ebpf.Map) (*ebpf.Map, error) {
	created, err := s.make(name)
	if err != nil {
		return nil, err
	}
	n, err := copyVerified(have, created)
	if err == nil {
		err = s.switchPin(name, created)
	}
	if err != nil {
		created.Close()
		return nil, fmt.Errorf("resize from %d to %d entries: %w", have.MaxEntries(), created.MaxEntries(), err)
	}
	s.log.WithFields(logrus.Fields{"map": name, "from": have.MaxEntries(), "to": created.MaxEntries(), "entries": n}).
		Info("map resized with its content")
	s.resized = append(s.resized, resized{name, have})
	return created, nil
}

// switchPin puts a map under a name that another one has, in one step.
func (s *Set) switchPin(name string, m *ebpf.Map) error {
	temporary := s.pin(name + newSuffix)
	if err := removePin(temporary); err != nil {
		return err
	}
	if err := m.Pin(temporary); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	// ebpf's own Pin refuses a name that is taken; bpffs renames over it atomically.
	if err := os.Rename(temporary, s.pin(name)); err != nil {
		return errors.Join(fmt.Errorf("switch pin: %w", err), removePin(temporary))
	}
	return nil
}

// copyVerified copies all entries and then looks every one of them up in the copy. LRU maps may
// lose entries when they shrink: that is what they are for.
func copyVerified(from, to *ebpf.Map) (int, error) {
	if from.Type() == ebpf.PerCPUArray {
		return copyPerCPU(from, to)
	}
	n, err := eachEntry(from, func(key, value []byte) error {
		return to.Update(key, value, ebpf.UpdateAny)
	})
	if err != nil {
		return 0, fmt.Errorf("copy entry %d: %w", n, err)
	}
	if from.Type() == ebpf.LRUHash {
		return n, nil
	}
	missing := 0
	found := make([]byte, to.ValueSize())
	if _, err := eachEntry(from, func(key, _ []byte) error {
		err := to.Lookup(key, &found)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			// Written by the datapath after the copy: FinishResize brings it.
			missing++
			return nil
		}
		return err
	}); err != nil {
		return 0, fmt.Errorf("verify: %w", err)
	}
	if missing > 0 && !datapathWrites(from) {
		return 0, fmt.Errorf("verify: %d of %d entries are not in the copy", missing, n)
	}
	return n, nil
}

// datapathWrites tells the preallocated hashes and LRUs that programs insert into; the other tables
// have no writer but the agent.
func datapathWrites(m *ebpf.Map) bool {
	return m.Type() == ebpf.LRUHash || (m.Type() == ebpf.Hash && m.Flags() == 0)
}

func eachEntry(m *ebpf.Map, do func(key, value []byte) error) (int, error) {
	n := 0
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&key, &value) {
		if err := do(key, value); err != nil {
			return n, err
		}
		n++
	}
	return n, it.Err()
}

func copyPerCPU(from, to *ebpf.Map) (int, error) {
	rows := min(from.MaxEntries(), to.MaxEntries())
	for row := range rows {
		var perCPU [][]byte
		if err := from.Lookup(row, &perCPU); err != nil {
			return int(row), err
		}
		if err := to.Update(row, perCPU, ebpf.UpdateAny); err != nil {
			return int(row), err
		}
	}
	return int(rows), nil
}

// CatchUp brings over what the programs have written into the old maps since Resize. It is called just
// before the programs that use the new ones take over, so that FinishResize finds little that they missed.
func (s *Set) CatchUp() error {
	var errs []error
	for _, r := range s.resized {
		if !datapathWrites(r.old) {
			continue
		}
		n, err := catchUp(r.old, s.open[r.name])
		if err != nil {
			errs = append(errs, fmt.Errorf("map %s: bring over late entries: %w", r.name, err))
		}
		s.log.WithFields(logrus.Fields{"map": r.name, "entries": n}).Debug("late entries brought over")
	}
	return errors.Join(errs...)
}

// FinishResize brings over what programs wrote into replaced maps between the copy and the switch
// to programs that use the new ones, and lets go of the old maps. It is called after the new
// programs are installed; without a pending resize it does nothing.
func (s *Set) FinishResize() error {
	err := s.CatchUp()
	for _, r := range s.resized {
		r.old.Close()
	}
	s.resized = nil
	return err
}

// catchUp copies entries that the new map lacks, or that were used later in the old one. Flows and
// affinities both begin with the (low half of the) time of their last use.
func catchUp(old, current *ebpf.Map) (int, error) {
	n := 0
	have := make([]byte, current.ValueSize())
	_, err := eachEntry(old, func(key, value []byte) error {
		err := current.Lookup(key, &have)
		if err == nil {
			age := binary.NativeEndian.Uint32(value) - binary.NativeEndian.Uint32(have)
			if age == 0 || int32(age) < 0 {
				return nil
			}
		} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		n++
		return current.Update(key, value, ebpf.UpdateAny)
	})
	return n, err
}
