// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"hash/fnv"

	"github.com/cilium/ebpf"
)

// Generation is the mark that SetGeneration left in the owner marker; 0 if there is none.
func (s *Set) Generation() (uint32, error) {
	var mark uint32
	err := s.withMarker(func(m *ebpf.Map) error { return m.Lookup(uint32(0), &mark) })
	return mark, err
}

// SetGeneration notes which generation of programs stands in the active bank, for the next agent: one
// with the same mark needs not load the same programs again. 0 means that nothing is known.
func (s *Set) SetGeneration(mark uint32) error {
	return s.withMarker(func(m *ebpf.Map) error { return m.Update(uint32(0), mark, ebpf.UpdateAny) })
}

func (s *Set) withMarker(do func(*ebpf.Map) error) error {
	m, err := ebpf.LoadPinnedMap(s.pin(ownerName), nil)
	if err == nil {
		defer m.Close()
		err = do(m)
	}
	if err != nil {
		return fmt.Errorf("owner marker: %w", err)
	}
	return nil
}

// Fingerprint tells one set of maps from another: it changes when any of them is replaced, because
// programs that were loaded before hold the old one.
func (s *Set) Fingerprint() (uint64, error) {
	h := fnv.New64a()
	for _, name := range s.Names() {
		info, err := s.open[name].Info()
		if err != nil {
			return 0, fmt.Errorf("map %s: %w", name, err)
		}
		id, ok := info.ID()
		if !ok {
			return 0, fmt.Errorf("map %s: the kernel tells no id", name)
		}
		fmt.Fprintf(h, "%s=%d\n", name, id)
	}
	return h.Sum64(), nil
}
