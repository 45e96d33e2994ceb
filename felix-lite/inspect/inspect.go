// SPDX-License-Identifier: Apache-2.0

// Package inspect shows what the dataplane holds, from the live maps, whether an agent runs or not.
//
// What comes in: the maps pinned below a bpffs root, and, where it is there, the state file that an
// agent left in its run directory (names only). What goes out: plain values, sorted, and their text
// or JSON form; the commands of felix-lite/cmd/felix-lite and the tests print the same. Everything
// here reads; only conntrack's flush deletes, and that is package conntrack's work.
//
// It must never need the agent, never guess a name it does not know, and never change a map.
package inspect

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/statefile"
)

// View is one node's maps and what names are known for what is in them.
type View struct {
	Maps  *maps.Set
	State statefile.State // zero where no agent left any

	services map[serviceID]statefile.Service
	ifaces   map[uint32]string // names by index, read once
}

type serviceID struct {
	family string
	id     uint32
}

// Open opens the maps below root for reading. runDir is where the agent leaves its state file.
func Open(root, runDir string) (*View, error) {
	set, err := maps.OpenReadOnly(root)
	if err != nil {
		return nil, err
	}
	v, err := NewView(set, runDir)
	if err != nil {
		set.Close()
		return nil, err
	}
	return v, nil
}

// NewView makes a view of maps that are open already; closing them stays the caller's.
func NewView(set *maps.Set, runDir string) (*View, error) {
	v := &View{Maps: set, services: map[serviceID]statefile.Service{}, ifaces: map[uint32]string{}}
	state, err := statefile.Read(runDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	v.State = state
	for _, s := range state.Services {
		v.services[serviceID{s.Family, s.ID}] = s
	}
	if err := set.Interfaces.All(func(index uint32, i layout.IfaceValue) bool {
		v.ifaces[index] = nameOf(i)
		return true
	}); err != nil {
		return nil, fmt.Errorf("read interfaces: %w", err)
	}
	return v, nil
}

// Close closes the maps.
func (v *View) Close() error { return v.Maps.Close() }

// serviceName returns namespace/name:port of a service port, or its number where the name is not known.
func (v *View) serviceName(family layout.Family, id uint32) string {
	s, ok := v.services[serviceID{family.String(), id}]
	switch {
	case !ok:
		return fmt.Sprintf("#%d", id)
	case s.Port == "":
		return s.Service
	}
	return s.Service + ":" + s.Port
}

// device names an interface by its index.
func (v *View) device(index uint32) string {
	if index == 0 {
		return ""
	}
	if name := v.ifaces[index]; name != "" {
		return name
	}
	return fmt.Sprintf("if%d", index)
}

func nameOf(i layout.IfaceValue) string {
	for n, b := range i.Name {
		if b == 0 {
			return string(i.Name[:n])
		}
	}
	return string(i.Name[:])
}
