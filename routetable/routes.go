// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// metric6 is what IPv6 makes of a route without metric; an IPv4 route without has 0.
const metric6 = 1024

// routeKey is what tells routes of one table apart: two with the same prefix and metric have the same place.
type routeKey struct {
	dst    netip.Prefix
	metric uint32
}

// lastMetric is that of routes which say that there is nothing: any other route of the prefix goes before.
const lastMetric = 1<<32 - 1

func keyOf(dst netip.Prefix) routeKey {
	if dst.Addr().Is4() {
		return routeKey{dst, 0}
	}
	return routeKey{dst, metric6}
}

func keyOfRoute(r Route) routeKey {
	if r.Unreachable {
		return routeKey{r.Dst, lastMetric}
	}
	return keyOf(r.Dst)
}

// anyInterface in a desired route leaves the interface to the kernel.
const anyInterface = -1

// routeValue is a route as the kernel has it, or is to have it.
type routeValue struct {
	ifindex int // 0: the interface is not there
	gateway netip.Addr
	onlink  bool
	source  netip.Addr // of packets that this host sends; invalid: the kernel chooses
	mtu     uint32     // 0: the interface's
	nothing bool       // it says that there is nothing
	other   bool       // has something that we never set: another type, several next hops, other metrics
}

// satisfies tells whether an actual route is as good as the desired one.
func (have routeValue) satisfies(want routeValue) bool {
	if want.ifindex == anyInterface {
		want.ifindex = have.ifindex
	}
	return have == want
}

// resolve finds the interface of a desired route.
func (r *RouteTable) resolve(route Route) routeValue {
	v := routeValue{ifindex: anyInterface, gateway: route.Gateway, onlink: route.Onlink, source: route.Source, mtu: route.MTU,
		nothing: route.Unreachable}
	if route.Interface != "" {
		v.ifindex = r.links.index(route.Interface)
	}
	return v
}

// routeOps is how the table of routes reaches the kernel.
type routeOps struct{ r *RouteTable }

// List reads our routes. The kernel picks them out by protocol where it can.
func (o routeOps) List(ctx context.Context, visit func(routeKey, routeValue)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := o.r.conn.dumpRoutes(family, o.r.opts.Protocol, func(m routeMsg) {
			if m.protocol == o.r.opts.Protocol {
				visit(m.key, m.value)
			}
		})
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Update writes routes one by one; netlink has no batches, and needs none for some thousand.
func (o routeOps) Update(ctx context.Context, batch []reconcile.Entry[routeKey, routeValue]) []error {
	return each(ctx, len(batch), func(i int) error { return o.update(batch[i].Key, batch[i].Value) })
}

func (o routeOps) update(k routeKey, v routeValue) error {
	if v.ifindex == 0 {
		return fmt.Errorf("route %s: interface is not there: %w", k.dst, reconcile.ErrPending)
	}
	if v.ifindex > 0 && !o.r.links.up(v.ifindex) {
		return fmt.Errorf("route %s: interface %s is down: %w", k.dst, o.r.links.name(v.ifindex), reconcile.ErrPending)
	}
	route := o.message(k, v)
	// A place that is ours is replaced, without a gap. Any other must be free: "replace" would take it from whoever
	// has it, whatever the protocol.
	if _, ours := o.r.routes.Actual(k); ours {
		return o.explain(k, v, o.r.handle.RouteReplace(route))
	}
	err := o.r.handle.RouteAdd(route)
	if !errors.Is(err, unix.EEXIST) {
		return o.explain(k, v, err)
	}
	holder, ours, err := o.holder(k)
	switch {
	case err != nil:
		return fmt.Errorf("route %s: who has its place: %w", k.dst, err)
	case holder != "" && ours != nil && ours.satisfies(v):
		return nil // both are there, and the kernel uses the older one
	case holder != "":
		return fmt.Errorf("route %s: %w by a route of protocol %s", k.dst, ErrConflict, holder)
	case ours != nil: // written by us, and the table did not know
		return o.explain(k, v, o.r.handle.RouteReplace(route))
	}
	return o.explain(k, v, o.r.handle.RouteAdd(route)) // gone meanwhile
}

// holder reads who has a route's place: the foreign protocol's name, and our own route if it is we. It reads the whole table,
// which is only done when the place was found taken.
func (o routeOps) holder(k routeKey) (foreign string, ours *routeValue, err error) {
	family := uint8(unix.AF_INET6)
	if k.dst.Addr().Is4() {
		family = unix.AF_INET
	}
	err = o.r.conn.dumpRoutes(family, 0, func(m routeMsg) {
		switch {
		case m.key != k:
		case m.protocol == o.r.opts.Protocol:
			ours = &m.value
		default:
			foreign = netlink.RouteProtocol(m.protocol).String()
		}
	})
	return foreign, ours, err
}

// explain tells what is normal from what is wrong.
func (o routeOps) explain(k routeKey, v routeValue, err error) error {
	switch {
	case err == nil:
		return nil
	case v.source.IsValid() && errors.Is(err, unix.EINVAL):
		return fmt.Errorf("route %s: source %s is no address of this node (%w): %w", k.dst, v.source, err, reconcile.ErrPending)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("route %s: interface is not there or down (%w): %w", k.dst, err, reconcile.ErrPending)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fmt.Errorf("route %s: gateway can not be reached (%w): %w", k.dst, err, reconcile.ErrPending)
	}
	return fmt.Errorf("route %s: %w", k.dst, err)
}

// Delete removes routes of ours: the kernel compares the protocol.
func (o routeOps) Delete(ctx context.Context, keys []routeKey) []error {
	return each(ctx, len(keys), func(i int) error {
		err := o.r.handle.RouteDel(&netlink.Route{
			Dst: ipNet(keys[i].dst), Priority: int(keys[i].metric), Table: unix.RT_TABLE_MAIN,
			Protocol: netlink.RouteProtocol(o.r.opts.Protocol), Scope: netlink.SCOPE_NOWHERE,
			LinkIndex: o.actualIndex(keys[i]),
		})
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete route %s: %w", keys[i].dst, err)
		}
		return nil
	})
}

// actualIndex is the interface of a route that is being deleted, where it has one.
func (o routeOps) actualIndex(k routeKey) int {
	have, _ := o.r.routes.Actual(k)
	return max(have.ifindex, 0)
}

func (o routeOps) message(k routeKey, v routeValue) *netlink.Route {
	m := &netlink.Route{
		Dst: ipNet(k.dst), Priority: int(k.metric), Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST,
		Protocol: netlink.RouteProtocol(o.r.opts.Protocol), Scope: netlink.SCOPE_UNIVERSE,
		LinkIndex: max(v.ifindex, 0),
	}
	if v.nothing {
		m.Type = unix.RTN_UNREACHABLE
	} else if v.gateway.IsValid() {
		m.Gw = v.gateway.AsSlice()
	} else if k.dst.Addr().Is4() {
		m.Scope = netlink.SCOPE_LINK
	}
	if v.onlink {
		m.Flags |= int(netlink.FLAG_ONLINK)
	}
	if v.source.IsValid() {
		m.Src = v.source.AsSlice()
	}
	m.MTU = int(v.mtu)
	return m
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// each runs f for n objects and collects the results as reconcile.Operations wants them.
func each(ctx context.Context, n int, f func(i int) error) []error {
	var errs []error
	for i := range n {
		err := ctx.Err()
		if err == nil {
			err = f(i)
		}
		if err == nil {
			continue
		}
		if errs == nil {
			errs = make([]error, n)
		}
		errs[i] = err
	}
	return errs
}
