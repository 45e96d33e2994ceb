// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"slices"
)

// seeds is what a map held at start and nobody has claimed yet. All its ids stay reserved until the
// first run has given them back to their owners or deleted their entries.
type seeds struct {
	ids      map[uint32]struct{}
	backends map[uint32]map[uint32]BackendValue // by service id and ordinal
	adopted  map[uint32]*port
}

// seed takes over what a map of this family holds.
func (t *table) seed(frontends []Frontend, backends []Backend) {
	if t.seeds == nil {
		t.seeds = &seeds{ids: map[uint32]struct{}{}, backends: map[uint32]map[uint32]BackendValue{}, adopted: map[uint32]*port{}}
	}
	for _, f := range frontends {
		fe := t.touch(f.Key)
		fe.value, fe.written = f.Value, true
		t.seeds.ids[f.Value.ServiceID] = struct{}{}
		t.services.reserve(f.Value.ServiceID)
	}
	for _, b := range backends {
		id := b.Key.ServiceID
		t.seeds.ids[id] = struct{}{}
		t.services.reserve(id)
		t.backends.reserve(b.Value.ID)
		if t.seeds.backends[id] == nil {
			t.seeds.backends[id] = map[uint32]BackendValue{}
		}
		t.seeds.backends[id][b.Key.Ordinal] = b.Value
	}
}

// assignID gives a port the id, and with it the lists, that the map already has for one of the
// frontends it owns; else a new id.
func (t *table) assignID(p *port) {
	if t.seeds != nil {
		for _, cl := range p.claims {
			fe := t.frontends[cl.key]
			id := fe.value.ServiceID
			if fe.owner != p || !fe.written || id == 0 || t.seeds.adopted[id] != nil {
				continue
			}
			p.id = id
			t.seeds.adopted[id] = p
			t.seeds.adopt(p)
			return
		}
	}
	p.id = t.services.next()
}

// adopt gives a port the backends that the map holds under its id. What makes no sense there (a
// gap, an id that two backends have) is left out, and so gets rewritten or deleted.
func (s *seeds) adopt(p *port) {
	entries := s.backends[p.id]
	byID := map[uint32]BackendValue{}
	take := func(list uint32) (out []BackendValue) {
		for i := uint32(0); ; i++ {
			v, ok := entries[list|i]
			if !ok {
				return out
			}
			delete(entries, list|i)
			if known, dup := byID[v.ID]; v.ID > maxBackendID || dup && known.addrPort() != v.addrPort() {
				v.ID = 0
			}
			byID[v.ID] = v
			out = append(out, v)
		}
	}
	p.cluster = take(ClusterList)
	p.local = take(LocalList)
	for ordinal, v := range entries {
		if ordinal&(LocalList|ByIDList) == ByIDList {
			if p.byID == nil {
				p.byID = map[uint32]BackendValue{}
			}
			p.byID[ordinal&^ByIDList] = v
			delete(entries, ordinal)
		}
	}
}

// dropSeeds deletes what the first run has found no owner for. Frontends without owner have been
// deleted like any other.
func (c *Calculator) dropSeeds(t *table) {
	if t.seeds == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(t.seeds.backends)) {
		p := t.seeds.adopted[id]
		for _, ordinal := range slices.Sorted(maps.Keys(t.seeds.backends[id])) {
			// A place behind a gap may have been written anew.
			if p == nil || p.id != id || !p.holds(ordinal) {
				c.delta.DeleteBackends = append(c.delta.DeleteBackends, BackendKey{t.family, id, ordinal})
			}
		}
	}
	for id := range t.seeds.ids {
		if t.seeds.adopted[id] == nil {
			t.freed = append(t.freed, id)
		}
	}
	t.seeds = nil
}

// holds reports whether one of the port's lists covers an ordinal.
func (p *port) holds(ordinal uint32) bool {
	if ordinal&LocalList != 0 {
		return uint64(ordinal&^LocalList) < uint64(len(p.local))
	}
	return uint64(ordinal) < uint64(len(p.cluster))
}
