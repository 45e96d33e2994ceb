// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// link is what a route needs to know of an interface.
type link struct {
	name string
	up   bool
}

// links are the interfaces that are there.
type links struct {
	byIndex map[int]link
	byName  map[string]int
}

// index is an interface's index; 0 if it is not there.
func (l *links) index(name string) int { return l.byName[name] }

// name is an interface's name; empty if it is not there.
func (l *links) name(index int) string { return l.byIndex[index].name }

func (l *links) up(index int) bool { return l.byIndex[index].up }

// readLinks reads all interfaces, and treats what differs from what was known as an event would be.
func (r *RouteTable) readLinks() error {
	now := make(map[int]link)
	err := r.conn.dumpLinks(func(m linkMsg) { now[m.index] = link{m.name, m.up} })
	if err != nil {
		return fmt.Errorf("read links: %w", err)
	}
	for index := range r.links.byIndex {
		if _, ok := now[index]; !ok {
			r.linkGone(index)
		}
	}
	for index, l := range now {
		r.linkSeen(index, l)
	}
	return nil
}

// linkSeen takes in that an interface is there, new, changed or as before.
func (r *RouteTable) linkSeen(index int, l link) {
	old, known := r.links.byIndex[index]
	if known && old == l {
		return
	}
	if known && old.name != l.name {
		// Renamed: by the old name it is gone. What it had it still has: everything must be read again.
		r.linkGone(index)
		known, r.lost = false, true
	}
	if r.links.byIndex == nil {
		r.links = links{make(map[int]link), make(map[string]int)}
	}
	r.links.byIndex[index], r.links.byName[l.name] = l, index
	if known && !l.up {
		r.flushed(index)
	}
	r.resolveInterface(l.name)
	if l.up {
		r.retryInterface(l.name)
	}
}

// linkGone takes in that an interface is no longer there.
func (r *RouteTable) linkGone(index int) {
	l, known := r.links.byIndex[index]
	if !known {
		return
	}
	r.flushed(index)
	delete(r.links.byIndex, index)
	if r.links.byName[l.name] == index {
		delete(r.links.byName, l.name)
		r.resolveInterface(l.name)
	}
}

// flushed takes in that the kernel has dropped all routes and neighbours of an interface: it does when one goes down,
// and for IPv4 routes it does not say so.
func (r *RouteTable) flushed(index int) {
	name := r.links.name(index)
	for dst := range r.routesBy[name] {
		r.routeFlushed(keyOf(dst), index)
	}
	for dst := range r.routesBy[""] {
		r.routeFlushed(keyOf(dst), index)
	}
	for key := range r.neighsBy[name] {
		if have, ok := r.neighbours.Actual(key); ok && have.ifindex == index {
			r.neighbours.ObserveGone(key)
		}
	}
}

func (r *RouteTable) routeFlushed(k routeKey, index int) {
	if have, ok := r.routes.Actual(k); ok && have.ifindex == index {
		r.routes.ObserveGone(k)
	}
}

// resolveInterface gives the desired objects of an interface its present index.
func (r *RouteTable) resolveInterface(name string) {
	for dst, route := range r.routesBy[name] {
		r.routes.Set(keyOf(dst), r.resolve(route))
	}
	for key := range r.neighsBy[name] {
		if want, ok := r.neighbours.Desired(key); ok {
			r.neighbours.Set(key, neighbourValue{r.links.index(name), want.mac})
		}
	}
}

// retryInterface tries at once what waited for an interface.
func (r *RouteTable) retryInterface(name string) {
	for dst := range r.routesBy[name] {
		r.routes.Retry(keyOf(dst))
	}
	r.retryGateways()
	for key := range r.neighsBy[name] {
		r.neighbours.Retry(key)
	}
}

// retryGateways tries at once what waited for its gateway to be reachable.
func (r *RouteTable) retryGateways() {
	for dst := range r.routesBy[""] {
		r.routes.Retry(keyOf(dst))
	}
}

// linkMsg is an interface as netlink tells it.
type linkMsg struct {
	index int
	name  string
	up    bool
}

func flagUp(flags uint32) bool { return flags&unix.IFF_UP != 0 }
