// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"fmt"
	"path/filepath"
	"sort"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

// Sizes are the numbers of entries that can be configured, each for one family. Zero means the
// default that stands in the C source.
type Sizes struct {
	Conntrack         uint32
	ConntrackHalfOpen uint32
	NATFrontend       uint32
	NATBackend        uint32
	NATAffinity       uint32
	Routes            uint32
	Interfaces        uint32 // also sizes the counters: four rows for each interface
}

// Options of Open.
type Options struct {
	Sizes Sizes
	// NoBatch keeps to single system calls, as on kernels without batch operations.
	NoBatch bool
	Log     logrus.FieldLogger
}

// Set is all of a node's maps, open.
type Set struct {
	Jump     *Programs
	Policy   *Programs
	Globals  *Globals
	Counters *Counters

	Interfaces *Interfaces
	Frontends  *Frontends
	Backends   *Backends
	Affinity   *Affinity
	Routes     *Routes

	ConntrackV4 *Conntrack[layout.AddrV4]
	ConntrackV6 *Conntrack[layout.AddrV6]

	SocketOff    *SocketOff
	SocketProbes *SocketProbes
	SocketsV4    *SocketRecords[layout.AddrV4]
	SocketsV6    *SocketRecords[layout.AddrV6]

	dir     string
	log     logrus.FieldLogger
	specs   map[string]*ebpf.MapSpec
	open    map[string]*ebpf.Map
	replace map[string]func(*ebpf.Map)
	resized []resized
	noBatch bool
}

// loadSpecs are the specifications of all maps by name, from the layout objects of both families.
func loadSpecs() (map[string]*ebpf.MapSpec, error) {
	all := map[string]*ebpf.MapSpec{}
	for _, object := range []string{objects.LayoutV4, objects.LayoutV6} {
		spec, err := objects.Spec(object)
		if err != nil {
			return nil, err
		}
		for name, m := range spec.Maps {
			if m.Pinning == ebpf.PinByName {
				all[name] = m
			}
		}
	}
	return all, nil
}

// apply sets the sizes in the specifications.
func (s Sizes) apply(specs map[string]*ebpf.MapSpec) {
	for name, size := range map[string]uint32{
		"cali_iface2":     s.Interfaces,
		"cali_counters2":  s.Interfaces * rowsPerSlot,
		"cali_v4_ct3":     s.Conntrack,
		"cali_v6_ct3":     s.Conntrack,
		"cali_v4_ct_half": s.ConntrackHalfOpen,
		"cali_v6_ct_half": s.ConntrackHalfOpen,
		"cali_v4_nat_fe3": s.NATFrontend,
		"cali_v6_nat_fe3": s.NATFrontend,
		"cali_v4_nat_be":  s.NATBackend,
		"cali_v6_nat_be":  s.NATBackend,
		"cali_v4_nat_aff": s.NATAffinity,
		"cali_v6_nat_aff": s.NATAffinity,
		"cali_v4_routes":  s.Routes,
		"cali_v6_routes":  s.Routes,
	} {
		if size != 0 && specs[name] != nil {
			specs[name].MaxEntries = size
		}
	}
}

// bind gives every field its map.
func (s *Set) bind() {
	s.replace = map[string]func(*ebpf.Map){}
	s.Jump = &Programs{name: "cali_jump2", m: s.open["cali_jump2"]}
	s.Policy = &Programs{name: "cali_policy2", m: s.open["cali_policy2"]}
	s.Globals = &Globals{typed[uint32, layout.Globals](s, "cali_globals2")}
	s.Counters = &Counters{name: "cali_counters2"}
	s.Counters.m.Store(s.open["cali_counters2"])
	s.replace["cali_counters2"] = s.Counters.m.Store

	s.Interfaces = &Interfaces{typed[uint32, layout.IfaceValue](s, "cali_iface2")}
	s.Frontends = &Frontends{dual(s, "nat_fe3", frontendCodec[layout.AddrV4](), frontendCodec[layout.AddrV6](),
		func(k FrontendKey) layout.Family { return layout.FamilyOf(k.Addr) })}
	s.Backends = &Backends{dual(s, "nat_be", backendCodec[layout.AddrV4](), backendCodec[layout.AddrV6](),
		func(k BackendKey) layout.Family { return k.Family & 1 })}
	s.Affinity = &Affinity{dual(s, "nat_aff", affinityCodec[layout.AddrV4](), affinityCodec[layout.AddrV6](),
		func(k AffinityKey) layout.Family { return layout.FamilyOf(k.Client) })}
	s.Routes = &Routes{dual(s, "routes", routeCodec[layout.AddrV4](), routeCodec[layout.AddrV6](),
		routeFamily)}
	s.ConntrackV4 = conntrack[layout.AddrV4](s)
	s.ConntrackV6 = conntrack[layout.AddrV6](s)
	s.SocketOff = &SocketOff{typed[uint64, uint32](s, "cali_ctlb_off2")}
	s.SocketProbes = &SocketProbes{typed[uint64, uint64](s, "cali_ctlb_probe2")}
	s.SocketsV4 = socketRecords[layout.AddrV4](s)
	s.SocketsV6 = socketRecords[layout.AddrV6](s)
}

func typed[K comparable, V any](s *Set, name string) *Map[K, V] {
	m := &Map[K, V]{name: name}
	m.m.Store(s.open[name])
	m.noBatch.Store(s.noBatch)
	s.replace[name] = m.m.Store
	return m
}

func dual[K comparable, V any, K4, K6 comparable, V4, V6 any](s *Set, name string, v4 codec[K, V, K4, V4],
	v6 codec[K, V, K6, V6], family func(K) layout.Family) *Dual[K, V] {
	return &Dual[K, V]{family: family, halves: [2]half[K, V]{
		converted[K, V, K4, V4]{typed[K4, V4](s, "cali_v4_"+name), v4},
		converted[K, V, K6, V6]{typed[K6, V6](s, "cali_v6_"+name), v6},
	}}
}

func conntrack[A layout.Address](s *Set) *Conntrack[A] {
	var a A
	prefix := "cali_" + a.Family().String() + "_"
	return &Conntrack[A]{
		Confirmed: typed[layout.CTKey[A], layout.CTValue[A]](s, prefix+"ct3"),
		HalfOpen:  typed[layout.CTKey[A], layout.CTValue[A]](s, prefix+"ct_half"),
	}
}

// Raw are all maps by name: what bpf-go/load puts in place of an object's own. The maps stay the
// Set's to close.
func (s *Set) Raw() map[string]*ebpf.Map {
	all := make(map[string]*ebpf.Map, len(s.open))
	for name, m := range s.open {
		all[name] = m
	}
	return all
}

// Names are the names of all maps, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.open))
	for name := range s.open {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Dir is where the maps are pinned.
func (s *Set) Dir() string { return s.dir }

// Root is the node's bpffs root.
func (s *Set) Root() string { return filepath.Dir(filepath.Dir(s.dir)) }

// Writes counts the entries that the agent's tables wrote or deleted since Open: interfaces,
// frontends, backends, routes and globals.
func (s *Set) Writes() uint64 {
	return s.Interfaces.Writes() + s.Frontends.Writes() + s.Backends.Writes() + s.Routes.Writes() +
		s.Globals.Writes()
}

// Close closes the maps. Pins, and so the dataplane, stay.
func (s *Set) Close() error {
	for _, r := range s.resized {
		r.old.Close()
	}
	for _, m := range s.open {
		m.Close()
	}
	return nil
}

// mapsDir is where a node's maps are pinned.
func mapsDir(root string) string { return filepath.Join(root, "tc", "globals") }

// LinksDir is where the links of a node are pinned: those on interfaces (TCX), and those on its cgroup.
func LinksDir(root string) string { return filepath.Join(root, "tc", "links") }

func (s *Set) pin(name string) string { return filepath.Join(s.dir, name) }

func describe(m *ebpf.MapSpec) string {
	return fmt.Sprintf("%s, key %d, value %d bytes", m.Type, m.KeySize, m.ValueSize)
}
