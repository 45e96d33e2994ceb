// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// simMaps are the frontend and backend maps of both families, as a packet would see them.
type simMaps struct {
	frontends map[FrontendKey]FrontendValue
	backends  map[BackendKey]BackendValue
}

func newSimMaps() *simMaps {
	return &simMaps{map[FrontendKey]FrontendValue{}, map[BackendKey]BackendValue{}}
}

// op is one write or deletion.
type op struct {
	what string
	do   func(*simMaps)
}

// ops lists what a delta asks for, in its order.
func (d Delta) ops() []op {
	var out []op
	for _, b := range d.Backends {
		out = append(out, op{fmt.Sprintf("write backend %v = %v", b.Key, b.Value), func(m *simMaps) { m.backends[b.Key] = b.Value }})
	}
	for _, f := range d.Frontends {
		out = append(out, op{fmt.Sprintf("write frontend %v = %+v", f.Key, f.Value), func(m *simMaps) { m.frontends[f.Key] = f.Value }})
	}
	for _, k := range d.DeleteFrontends {
		out = append(out, op{fmt.Sprintf("delete frontend %v", k), func(m *simMaps) { delete(m.frontends, k) }})
	}
	for _, k := range d.DeleteBackends {
		out = append(out, op{fmt.Sprintf("delete backend %v", k), func(m *simMaps) { delete(m.backends, k) }})
	}
	return out
}

// equal compares the maps with the truth: every entry is needed, and says the right thing.
func (m *simMaps) equal(t truth) error {
	ids := map[portName]uint32{}
	owners := map[[2]uint32]portName{}
	needed := map[BackendKey]bool{}
	for k, p := range t.owner {
		v, ok := m.frontends[k]
		if !ok {
			return fmt.Errorf("frontend %v of %v is missing", k, p)
		}
		if id, known := ids[p]; known && id != v.ServiceID {
			return fmt.Errorf("service port %v has ids %d and %d", p, id, v.ServiceID)
		}
		if o, known := owners[[2]uint32{uint32(p.family), v.ServiceID}]; known && o != p {
			return fmt.Errorf("id %d belongs to %v and %v", v.ServiceID, o, p)
		}
		ids[p], owners[[2]uint32{uint32(p.family), v.ServiceID}] = v.ServiceID, p
		if v.Flags != t.flags[k] || v.AffinityTimeout != t.affinity[p] {
			return fmt.Errorf("frontend %v: %+v, want flags %#x, affinity %d", k, v, t.flags[k], t.affinity[p])
		}
		if v.ServiceID == 0 || int(v.ClusterCount) != len(t.cluster[p]) || int(v.LocalCount) != len(t.local[p]) {
			return fmt.Errorf("frontend %v: %+v, want %d cluster and %d local backends", k, v, len(t.cluster[p]), len(t.local[p]))
		}
		byID := map[uint32]BackendValue{}
		for _, l := range []struct {
			list, flag uint32
			want       map[target]bool
		}{{ClusterList, InCluster, t.cluster[p]}, {LocalList, InLocal, t.local[p]}} {
			seen := map[target]bool{}
			for i := range uint32(len(l.want)) {
				key := BackendKey{p.family, v.ServiceID, l.list | i}
				be, ok := m.backends[key]
				tg := target{be.addrPort(), be.Weight}
				if !ok || !l.want[tg] || seen[tg] || be.ID == 0 || be.ID > maxBackendID || be.Flags != 0 {
					return fmt.Errorf("frontend %v of %v: backend %v is %+v (present %v, twice %v), want one of %v", k, p, key, be, ok, seen[tg], l.want)
				}
				seen[tg], needed[key] = true, true
				if have, dup := byID[be.ID]; dup && have.addrPort() != be.addrPort() {
					return fmt.Errorf("backend id %d of %v is both %v and %v", be.ID, p, have, be)
				}
				be.Flags = byID[be.ID].Flags | l.flag
				byID[be.ID] = be
			}
		}
		for id, want := range byID {
			key := BackendKey{p.family, v.ServiceID, ByIDList | id}
			if m.backends[key] != want {
				return fmt.Errorf("by-id backend %v of %v: %+v, want %+v", key, p, m.backends[key], want)
			}
			needed[key] = true
		}
	}
	for k, v := range m.frontends {
		if _, ok := t.owner[k]; !ok {
			return fmt.Errorf("frontend %v = %+v is left over", k, v)
		}
	}
	for k, v := range m.backends {
		if !needed[k] {
			return fmt.Errorf("backend %v = %+v is left over", k, v)
		}
	}
	return nil
}

// allowedBetween returns, for each frontend, the backends that it may lead to while the maps change
// from one truth to another: what its owners, the old and the new one, have before or after.
func allowedBetween(before, after truth) func(FrontendKey) map[netip.AddrPort]bool {
	known := map[FrontendKey]map[netip.AddrPort]bool{}
	return func(k FrontendKey) map[netip.AddrPort]bool {
		if allowed, ok := known[k]; ok {
			return allowed
		}
		allowed := map[netip.AddrPort]bool{}
		for _, t := range []truth{before, after} {
			for _, p := range []portName{before.owner[k], after.owner[k]} {
				for tg := range t.cluster[p] {
					allowed[tg.at] = true
				}
				for tg := range t.local[p] {
					allowed[tg.at] = true
				}
			}
		}
		known[k] = allowed
		return allowed
	}
}

// consistent checks what must hold between any two writes.
func (m *simMaps) consistent(allowed func(FrontendKey) map[netip.AddrPort]bool) error {
	for k, v := range m.frontends {
		for _, l := range []struct{ list, n uint32 }{{ClusterList, v.ClusterCount}, {LocalList, v.LocalCount}} {
			for i := range l.n {
				be, ok := m.backends[BackendKey{k.Family(), v.ServiceID, l.list | i}]
				if !ok {
					return fmt.Errorf("frontend %v counts %d backends in list %#x, number %d is missing", k, l.n, l.list, i)
				}
				if !allowed(k)[be.addrPort()] {
					return fmt.Errorf("frontend %v leads to %v, which is not one of its backends, before or after", k, be.addrPort())
				}
			}
		}
	}
	return nil
}

// dump returns what Seed is given after a restart.
func (m *simMaps) dump(f model.Family) (fes []Frontend, bes []Backend) {
	for k, v := range m.frontends {
		if k.Family() == f {
			fes = append(fes, Frontend{k, v})
		}
	}
	for k, v := range m.backends {
		if k.Family == f {
			bes = append(bes, Backend{k, v})
		}
	}
	return fes, bes
}

// same compares the maps with what the calculator says they should hold.
func (m *simMaps) same(c *Calculator) error {
	frontends, backends := 0, 0
	for _, f := range model.Families {
		for k, v := range c.Frontends(f) {
			if frontends++; m.frontends[k] != v {
				return fmt.Errorf("Frontends: %v is %+v, in the map %+v", k, v, m.frontends[k])
			}
		}
		for k, v := range c.Backends(f) {
			if backends++; m.backends[k] != v {
				return fmt.Errorf("Backends: %v is %+v, in the map %+v", k, v, m.backends[k])
			}
		}
	}
	if frontends != len(m.frontends) || backends != len(m.backends) {
		return fmt.Errorf("desired %d frontends and %d backends, the maps have %d and %d", frontends, backends, len(m.frontends), len(m.backends))
	}
	return nil
}
