// SPDX-License-Identifier: Apache-2.0

// Package objects carries the compiled BPF objects inside the binary.
//
// In: what `make build` left in bin/. Out: readers and parsed specifications, by name. The object of
// a variant is named by its flags (bpf-go/variants), the others by the constants below. It loads
// nothing into the kernel: that is bpf-go/load.
package objects

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
)

// Names of the objects that are not variants of tc.c.
const (
	Preamble = "preamble"
	Policy   = "policy"
	Clock    = "clock"
	CTLBV4   = "ctlb_v4"
	CTLBV6   = "ctlb_v6"
	CTLBV46  = "ctlb_v46" // IPv4-mapped destinations of IPv6 sockets
	LayoutV4 = "layout_v4"
	LayoutV6 = "layout_v6"
)

//go:embed bin
var files embed.FS

// ErrMissing means that an object is not in the binary.
var ErrMissing = errors.New("object is not built in: run `make build`")

// Bytes is the ELF file of an object. The error wraps ErrMissing if there is none.
func Bytes(name string) ([]byte, error) {
	data, err := files.ReadFile("bin/" + name + ".o")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s.o: %w", name, ErrMissing)
	}
	return data, err
}

// Spec is the parsed object. Each call returns a new one, which the caller may change.
func Spec(name string) (*ebpf.CollectionSpec, error) {
	data, err := Bytes(name)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s.o: %w", name, err)
	}
	return spec, nil
}

// Names are the objects that are built in, sorted.
func Names() []string {
	entries, err := files.ReadDir("bin")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".o"); ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}
