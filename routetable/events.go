// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Event is what the kernel reported since the last one, for HandleEvent.
type Event struct {
	messages []message
	lost     bool // some reports did not reach us
	err      error
}

// Lost tells whether reports were lost; the RouteTable then reads everything again. Err says why.
func (e Event) Lost() (bool, error) { return e.lost, e.err }

// message is one netlink report; exactly one of the pointers is set, or addr is valid.
type message struct {
	deleted   bool
	link      *linkMsg
	route     *routeMsg
	neighbour *neighbourMsg
	addr      netip.Addr
}

const (
	// maxEvent is how many reports are handed over in one Event.
	maxEvent = 256
	// watchBuffer holds some thousand reports while the loop is busy; more are lost, which costs a resync.
	watchBuffer = 1 << 20
	// rewatchDelay is the pause before the socket is opened again after an error.
	rewatchDelay = 100 * time.Millisecond
)

// Watch starts reading the kernel's reports. They come out of Events until ctx is done or Close is called.
func (r *RouteTable) Watch(ctx context.Context) error {
	socket, err := r.subscribe()
	if err != nil {
		return err
	}
	ctx, r.watchCancel = context.WithCancel(ctx)
	r.watchDone = make(chan struct{})
	go func() {
		defer close(r.watchDone)
		r.watch(ctx, socket)
	}()
	return nil
}

// Events is the channel that Watch's events come by.
func (r *RouteTable) Events() <-chan Event { return r.events }

func (r *RouteTable) subscribe() (*nl.NetlinkSocket, error) {
	groups := []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR}
	s, err := subscribeAt(r.opts.Namespace, groups)
	if err != nil {
		return nil, fmt.Errorf("route table: watch: %w", err)
	}
	if err := s.SetReceiveBufferSize(watchBuffer, true); err != nil {
		// Without CAP_NET_ADMIN in the first user namespace the limit of net.core.rmem_max holds.
		if err := s.SetReceiveBufferSize(watchBuffer, false); err != nil {
			s.Close()
			return nil, fmt.Errorf("route table: watch: receive buffer: %w", err)
		}
	}
	return s, nil
}

// watch is the goroutine: it reads the socket and opens it anew after an error. One socket for all groups keeps the
// kernel's order: an interface's end is not overtaken by the routes of its successor.
func (r *RouteTable) watch(ctx context.Context, socket *nl.NetlinkSocket) {
	for {
		stop := context.AfterFunc(ctx, socket.Close)
		err := r.receive(ctx, socket)
		if stop() {
			socket.Close()
		}
		for {
			if ctx.Err() != nil {
				return
			}
			var serr error
			if socket, serr = r.subscribe(); serr == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rewatchDelay):
			}
		}
		// Only now, with the new socket open, can reading everything again miss nothing.
		select {
		case <-ctx.Done():
			socket.Close()
			return
		case r.events <- Event{lost: true, err: err}:
		}
	}
}

// receive reads until an error. Reports that come while the loop is busy are put together.
func (r *RouteTable) receive(ctx context.Context, socket *nl.NetlinkSocket) error {
	received := make(chan []message, 16)
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			raw, from, err := socket.Receive()
			if err != nil {
				failed <- err
				return
			}
			if from.Pid != nl.PidKernel {
				continue
			}
			if messages := parseAll(raw); len(messages) > 0 {
				select {
				case received <- messages:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	var pending []message
	for {
		var out chan<- Event
		var in <-chan []message
		if len(pending) > 0 {
			out = r.events
		}
		if len(pending) < maxEvent {
			in = received
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case messages := <-in:
			pending = append(pending, messages...)
		case out <- Event{messages: pending}:
			pending = nil
		}
	}
}

// HandleEvent takes in what the kernel reported and marks what it makes necessary. Apply does it.
func (r *RouteTable) HandleEvent(e Event) {
	if e.lost {
		r.lost = true
	}
	for _, m := range e.messages {
		switch {
		case m.link != nil && m.deleted:
			r.linkGone(m.link.index)
		case m.link != nil:
			r.linkSeen(m.link.index, link{m.link.name, m.link.up})
		case m.route != nil:
			r.routeReported(m.route, m.deleted)
		case m.neighbour != nil:
			r.neighbourReported(m.neighbour, m.deleted)
		case m.deleted:
			r.addressGone(m.addr)
		default:
			r.retryGateways()
			for dst := range r.routesFrom[m.addr] {
				r.routes.Retry(keyOf(dst))
			}
		}
	}
}

// addressGone takes in what the kernel does, without a word, to the routes whose source an address was: IPv4's are dropped,
// IPv6's lose the source.
func (r *RouteTable) addressGone(addr netip.Addr) {
	for dst := range r.routesFrom[addr] {
		k := keyOf(dst)
		have, ok := r.routes.Actual(k)
		switch {
		case !ok || have.source != addr:
		case addr.Is4():
			r.routes.ObserveGone(k)
		default:
			have.source = netip.Addr{}
			r.routes.Observe(k, have)
		}
	}
}

// routeReported compares a reported route with what should be there.
func (r *RouteTable) routeReported(m *routeMsg, deleted bool) {
	ours := m.protocol == r.opts.Protocol
	_, wanted := r.routes.Desired(m.key)
	_, present := r.routes.Actual(m.key)
	switch {
	case !ours && !wanted && !present:
		// None of our business.
	case ours && deleted:
		r.routes.ObserveGone(m.key)
	case ours:
		r.routes.Observe(m.key, m.value)
	case deleted:
		r.routes.Retry(m.key) // the place may be free now
	default:
		// Somebody's route in our place. "ip route replace" removes ours without saying so: look again.
		r.routes.ObserveGone(m.key)
	}
}

// neighbourReported compares a reported neighbour with what should be there.
func (r *RouteTable) neighbourReported(m *neighbourMsg, deleted bool) {
	name := r.links.name(m.ifindex)
	if name == "" {
		return
	}
	key := NeighbourKey{name, m.addr}
	_, wanted := r.neighbours.Desired(key)
	_, present := r.neighbours.Actual(key)
	switch {
	case !wanted && !present:
		// The kernel's own cache, or somebody's.
	case !deleted && m.permanent() && m.protocol == r.opts.Protocol:
		r.neighbours.Observe(key, neighbourValue{m.ifindex, m.mac})
	case present:
		r.neighbours.ObserveGone(key)
	default:
		r.neighbours.Retry(key)
	}
}
