// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"
)

// scratch is memory that the comparison of lists uses again and again.
type scratch struct {
	candidates []candidate
	index      map[netip.AddrPort]int
	ids        map[netip.AddrPort]uint32
	cluster    []BackendValue
	local      []BackendValue
	holes      []int
	seen       []bool
}

func (v *BackendValue) addrPort() netip.AddrPort { return netip.AddrPortFrom(v.Addr, v.Port) }

// updateLists compares a port's backends with what they should be, emits the difference and, if
// that concerns the port's frontends, has them looked at.
func (c *Calculator) updateLists(t *table, p *port) {
	active := p.owned > 0 && !p.gone
	if !active && p.id == 0 {
		return
	}
	if active && p.id == 0 {
		t.assignID(p)
	}
	var cluster, local []BackendValue
	var affinity uint32
	if active {
		affinity = p.affinity
		cluster, local = c.wanted(t, p)
	}
	p.cluster = c.replaceList(t, p.id, ClusterList, p.cluster, cluster)
	p.local = c.replaceList(t, p.id, LocalList, p.local, local)
	c.replaceByID(t, p, cluster, local, active)

	now := portState{id: p.id, affinity: affinity, clusterCount: uint32(len(p.cluster)), localCount: uint32(len(p.local))}
	if !active {
		t.freed = append(t.freed, p.id)
		p.id, p.cluster, p.local = 0, nil, nil
		now = portState{}
	}
	if now != p.emitted {
		p.emitted = now
		for _, cl := range p.claims {
			t.touch(cl.key)
		}
	}
}

// wanted returns the two lists that a port should have, with the ids of backends that stay.
func (c *Calculator) wanted(t *table, p *port) (cluster, local []BackendValue) {
	s := &c.lists
	s.reset()
	for _, list := range [][]BackendValue{p.cluster, p.local} {
		for i := range list {
			if k := list[i].addrPort(); list[i].ID != 0 {
				if _, known := s.ids[k]; !known {
					s.ids[k] = list[i].ID
				}
			}
		}
	}
	s.collect(p)
	r := categorize(s.candidates, c.opts.NodeName, c.zone, p.wantsLocal())
	for i := range s.candidates {
		if cand := &s.candidates[i]; r.inCluster(cand) {
			s.cluster = append(s.cluster, s.backend(t, cand))
		}
	}
	for i := range s.candidates {
		if cand := &s.candidates[i]; r.inLocal(cand) {
			s.local = append(s.local, s.backend(t, cand))
		}
	}
	return s.cluster, s.local
}

func (s *scratch) reset() {
	if s.index == nil {
		s.index, s.ids = map[netip.AddrPort]int{}, map[netip.AddrPort]uint32{}
	}
	clear(s.index)
	clear(s.ids)
	s.candidates, s.cluster, s.local = s.candidates[:0], s.cluster[:0], s.local[:0]
}

// backend returns the list entry of a candidate, with a new id if it had none.
func (s *scratch) backend(t *table, cand *candidate) BackendValue {
	id := s.ids[cand.at]
	if id == 0 {
		id = t.backends.next(s.ids)
		s.ids[cand.at] = id
	}
	return BackendValue{Addr: cand.at.Addr(), Port: cand.at.Port(), Weight: max(cand.ep.Weight, 1), ID: id}
}

// replaceList turns the list cur into want, which has no duplicates, with as few writes as there
// are: what stays keeps its place, what is new goes into a hole or to the end, and what is left of
// the holes is filled from the end. Deletions of the places at the end come after all writes, so
// until the frontends have the new count every place below the old one is filled.
func (c *Calculator) replaceList(t *table, id, list uint32, cur, want []BackendValue) []BackendValue {
	s := &c.lists
	clear(s.index)
	for j := range want {
		s.index[want[j].addrPort()] = j
	}
	s.seen = append(s.seen[:0], make([]bool, len(want))...)
	s.holes = s.holes[:0]
	write := func(i int) {
		c.delta.Backends = append(c.delta.Backends, Backend{BackendKey{t.family, id, list | uint32(i)}, cur[i]})
	}
	for i := range cur {
		j, stays := s.index[cur[i].addrPort()]
		if !stays || s.seen[j] {
			s.holes = append(s.holes, i)
			continue
		}
		s.seen[j] = true
		if cur[i] != want[j] {
			cur[i] = want[j]
			write(i)
		}
	}
	holes := s.holes
	for j := range want {
		if s.seen[j] {
			continue
		}
		if len(holes) > 0 {
			cur[holes[0]] = want[j]
			write(holes[0])
			holes = holes[1:]
			continue
		}
		cur = append(cur, want[j])
		write(len(cur) - 1)
	}
	for len(holes) > 0 {
		last := len(cur) - 1
		if holes[len(holes)-1] == last {
			holes = holes[:len(holes)-1]
		} else {
			cur[holes[0]] = cur[last]
			write(holes[0])
			holes = holes[1:]
		}
		cur = cur[:last]
		c.delta.DeleteBackends = append(c.delta.DeleteBackends, BackendKey{t.family, id, list | uint32(last)})
	}
	return cur
}

// replaceByID does the same for the entries by id: what has chosen a backend before asks so whether it is still usable.
// Clients with affinity do, UDP sockets, which keep their backend from one datagram to the next, and a TCP flow's
// entry when a SYN comes.
func (c *Calculator) replaceByID(t *table, p *port, cluster, local []BackendValue, wanted bool) {
	if !wanted && p.byID == nil {
		return
	}
	var now map[uint32]BackendValue
	if wanted {
		now = make(map[uint32]BackendValue, len(cluster)+len(local))
		for _, l := range []struct {
			values []BackendValue
			flag   uint32
		}{{cluster, InCluster}, {local, InLocal}} {
			for _, v := range l.values {
				v.Flags = now[v.ID].Flags | l.flag
				now[v.ID] = v
			}
		}
	}
	// Only what differs is put in order: a service may have thousands of backends.
	var writes, deletes []uint32
	for id, v := range now {
		if old, ok := p.byID[id]; !ok || old != v {
			writes = append(writes, id)
		}
	}
	for id := range p.byID {
		if _, stays := now[id]; !stays {
			deletes = append(deletes, id)
		}
	}
	slices.Sort(writes)
	slices.Sort(deletes)
	for _, id := range writes {
		c.delta.Backends = append(c.delta.Backends, Backend{BackendKey{t.family, p.id, ByIDList | id}, now[id]})
	}
	for _, id := range deletes {
		c.delta.DeleteBackends = append(c.delta.DeleteBackends, BackendKey{t.family, p.id, ByIDList | id})
	}
	p.byID = now
}
