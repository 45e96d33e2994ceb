// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

const mapsPreface = `# Maps

Written by ` + "`make generate`" + ` from the C headers and the objects' BTF. Do not edit.

All maps are pinned in ` + "`<bpffsRoot>/tc/globals/`" + ` and shared by every program of the node, the agent and the
command line. The shapes below are **frozen**: a new layout gets a new number at the end of the map's name, and a
migration that keeps live connections. Spare members are zero. Names that end in ` + "`_be`" + ` and all addresses are in
network byte order; times are in jiffies unless they say otherwise.

A pinned map ` + "`felix_lite_owner`" + ` marks the directory as ours; ` + "`cali_*`" + ` pins without it belong to somebody else,
and the agent refuses to start. Sizes are defaults: the settings ` + "`mapSize*`" + ` change them, and a resize keeps the content.

## Tables

| map | type | key | value | entries |
|---|---|---|---|---|
`

// renderMaps writes docs/maps.md: every map, and the members of every struct with their offsets.
func renderMaps(v4Path, v6Path string, m *model, c *comments) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(mapsPreface)
	maps := map[string]*ebpf.MapSpec{}
	for _, path := range []string{v4Path, v6Path} {
		spec, err := ebpf.LoadCollectionSpec(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for name, s := range spec.Maps {
			if s.Pinning == ebpf.PinByName {
				maps[name] = s
			}
		}
	}
	names := make([]string, 0, len(maps))
	for name := range maps {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		s := maps[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s %d B | %s %d B | %d |\n", name, s.Type,
			typeName(s.Key), s.KeySize, typeName(s.Value), s.ValueSize, s.MaxEntries)
	}
	b.WriteString("\n## Structs\n\nOffsets in bytes, IPv4 / IPv6 where they differ.\n")
	for _, s := range m.structs {
		renderStruct(&b, s, c)
	}
	return b.Bytes(), nil
}

func typeName(t btf.Type) string {
	if t == nil || t.TypeName() == "" {
		return "-"
	}
	return strings.TrimPrefix(t.TypeName(), "cali_")
}

func renderStruct(b *bytes.Buffer, s structType, c *comments) {
	fmt.Fprintf(b, "\n### %s (%s)\n\n", s.name, both(s.v4.Size, s.v6.Size))
	if text := c.types[s.name]; text != "" {
		fmt.Fprintf(b, "%s\n\n", text)
	}
	b.WriteString("| offset | member | bytes | |\n|---|---|---|---|\n")
	for i, a := range s.v4.Members {
		z := s.v6.Members[i]
		size4, _ := btf.Sizeof(a.Type)
		size6, _ := btf.Sizeof(z.Type)
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", both(a.Offset.Bytes(), z.Offset.Bytes()), a.Name,
			both(uint32(size4), uint32(size6)), c.fields[s.name+"."+a.Name])
	}
}

func both(a, b uint32) string {
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d / %d", a, b)
}
