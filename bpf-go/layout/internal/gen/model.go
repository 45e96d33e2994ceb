// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// model is what the two objects declare.
type model struct {
	structs []structType
	enums   []*btf.Enum
}

// structType is one C struct with its two compilations.
type structType struct {
	name   string
	v4, v6 *btf.Struct
	// shape says how the two relate.
	shape shape
}

type shape int

const (
	shared  shape = iota // no address inside: one Go type
	generic              // the same members but for the address: one generic type and two aliases
	twins                // other members differ too (filling up to an alignment): two types
)

func readModel(v4Path, v6Path string) (*model, error) {
	v4, enums, err := readObject(v4Path)
	if err != nil {
		return nil, err
	}
	v6, _, err := readObject(v6Path)
	if err != nil {
		return nil, err
	}
	m := &model{enums: enums}
	for name, a := range v4 {
		b, ok := v6[name]
		if !ok {
			return nil, fmt.Errorf("struct %s is in %s but not in %s", name, v4Path, v6Path)
		}
		s := structType{name: name, v4: a, v6: b}
		if s.shape, err = compare(a, b); err != nil {
			return nil, fmt.Errorf("struct %s: %w", name, err)
		}
		m.structs = append(m.structs, s)
	}
	sort.Slice(m.structs, func(i, j int) bool { return m.structs[i].name < m.structs[j].name })
	sort.Slice(m.enums, func(i, j int) bool { return m.enums[i].Name < m.enums[j].Name })
	return m, nil
}

// readObject returns an object's structs by name, and its enums.
func readObject(path string) (map[string]*btf.Struct, []*btf.Enum, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	spec, err := btf.LoadSpecFromReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	structs := map[string]*btf.Struct{}
	var enums []*btf.Enum
	for t, err := range spec.All() {
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(t.TypeName(), "cali_") {
			continue
		}
		switch t := t.(type) {
		case *btf.Struct:
			structs[t.Name] = t
		case *btf.Enum:
			enums = append(enums, t)
		}
	}
	return structs, enums, nil
}

// compare tells how the two compilations of a struct relate. Names and order of the members must
// be equal: code that serves both families relies on it.
func compare(a, b *btf.Struct) (shape, error) {
	if len(a.Members) != len(b.Members) {
		return 0, fmt.Errorf("%d members in IPv4, %d in IPv6", len(a.Members), len(b.Members))
	}
	result := shared
	for i := range a.Members {
		ma, mb := a.Members[i], b.Members[i]
		if ma.Name != mb.Name {
			return 0, fmt.Errorf("member %d is %q in IPv4 and %q in IPv6", i, ma.Name, mb.Name)
		}
		s, err := compareTypes(ma.Type, mb.Type)
		if err != nil {
			return 0, fmt.Errorf("member %s: %w", ma.Name, err)
		}
		result = max(result, s)
	}
	return result, nil
}

func compareTypes(a, b btf.Type) (shape, error) {
	a, b = btf.UnderlyingType(a), btf.UnderlyingType(b)
	if sa, ok := a.(*btf.Struct); ok {
		sb, ok := b.(*btf.Struct)
		if !ok || sa.Name != sb.Name {
			return 0, fmt.Errorf("%v in IPv4, %v in IPv6", a, b)
		}
		if sa.Name == "cali_ip" {
			return generic, nil
		}
		return compare(sa, sb)
	}
	if aa, ok := a.(*btf.Array); ok {
		ab, ok := b.(*btf.Array)
		if !ok {
			return 0, fmt.Errorf("%v in IPv4, %v in IPv6", a, b)
		}
		s, err := compareTypes(aa.Type, ab.Type)
		if err == nil && aa.Nelems != ab.Nelems {
			s = twins
		}
		return s, err
	}
	sizeA, errA := btf.Sizeof(a)
	sizeB, errB := btf.Sizeof(b)
	if errA != nil || errB != nil || sizeA != sizeB {
		return 0, fmt.Errorf("%v in IPv4, %v in IPv6", a, b)
	}
	return shared, nil
}
