// SPDX-License-Identifier: Apache-2.0

// Package routetable keeps the routes and permanent neighbours that the node's pods and the other nodes need in the
// kernel's main table, in both families.
//
// In: desired routes and neighbours in plain types, naming interfaces, which need not exist yet; and what the kernel
// says about links, routes and neighbours (Events, which the agent's loop hands back to HandleEvent). Out: netlink
// writes, made by Apply, and for each object whether it is in place. The loop that owns the dataplane's state is the
// only caller; what else runs here reads the netlink socket and does nothing but send events to that loop.
//
// What is ours carries our protocol number, routes and neighbours alike. Nothing else is ever changed or removed: a
// foreign route in a place that we want stays, and ours is reported as a conflict until that one is gone. The exception
// is a neighbour on an interface that is ours altogether (Options.OwnInterface), which is repaired whoever changed it.
package routetable

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// DefaultProtocol marks our routes and neighbours.
const DefaultProtocol = 241

// lostDelay is the pause after a failed attempt to read everything again.
const lostDelay = time.Second

// ErrConflict is wrapped by the error of a route or neighbour whose place somebody else has taken.
var ErrConflict = errors.New("place is taken")

// MAC is an Ethernet address that can be compared.
type MAC [6]byte

// String is the usual text form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Route is a desired unicast route of the main table; its key is Dst.
type Route struct {
	Dst netip.Prefix
	// Interface is the device's name. Empty: the kernel finds it by the gateway.
	Interface string
	// Gateway is invalid for what is directly on the interface (scope link).
	Gateway netip.Addr
	// Onlink: the gateway is on the interface although no address of it says so.
	Onlink bool
	// Source is the address of what this host itself sends along the route; invalid: the kernel chooses. It must be one of
	// the host's: until it is, the route waits.
	Source netip.Addr
	// MTU of the route; 0: the interface's.
	MTU uint32
	// Unreachable: there is nothing at Dst but what other routes say, be they somebody else's. It has neither interface nor
	// gateway.
	Unreachable bool
}

// String is the route as `ip route` would say it.
func (r Route) String() string {
	var b strings.Builder
	if r.Unreachable {
		b.WriteString("unreachable ")
	}
	b.WriteString(r.Dst.String())
	if r.Gateway.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Gateway)
	}
	if r.Interface != "" {
		fmt.Fprintf(&b, " dev %s", r.Interface)
	}
	if r.Onlink {
		b.WriteString(" onlink")
	}
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Source)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	return b.String()
}

// check refuses what the kernel would not keep as it is given.
func (r Route) check() error {
	switch {
	case !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Dst.Addr().Is4In6():
		return fmt.Errorf("route %s: destination is not a prefix", r)
	case r.Gateway.IsValid() && r.Gateway.Is4() != r.Dst.Addr().Is4():
		return fmt.Errorf("route %s: gateway is of another family", r)
	case r.Source.IsValid() && (r.Source.Is4() != r.Dst.Addr().Is4() || r.Source.Zone() != ""):
		return fmt.Errorf("route %s: source is of another family", r)
	case r.Unreachable && (r.Interface != "" || r.Gateway.IsValid() || r.Source.IsValid() || r.MTU != 0):
		return fmt.Errorf("route %s: what is unreachable is so by nothing", r)
	case !r.Unreachable && r.Interface == "" && !r.Gateway.IsValid():
		return fmt.Errorf("route %s: neither interface nor gateway", r)
	case r.Onlink && (r.Interface == "" || !r.Gateway.IsValid()):
		return fmt.Errorf("route %s: onlink needs interface and gateway", r)
	}
	return nil
}

// NeighbourKey names a neighbour entry.
type NeighbourKey struct {
	Interface string
	Addr      netip.Addr
}

// String is the key as people read it.
func (k NeighbourKey) String() string { return k.Addr.String() + " dev " + k.Interface }

// Neighbour is a desired permanent neighbour entry.
type Neighbour struct {
	NeighbourKey
	MAC MAC
}

// Options of a RouteTable; all may be zero.
type Options struct {
	// Protocol marks what is ours; DefaultProtocol if zero.
	Protocol uint8
	// Namespace is the network namespace to act in; zero: the one of the thread that calls New.
	Namespace netns.NsHandle
	// OwnInterface tells whether an interface is ours altogether: nobody else has a say about neighbours on it.
	OwnInterface func(name string) bool
	// Now is the loop's clock; time.Now if nil.
	Now func() time.Time
	// MinRetry and MaxRetry bound the back-off of an object that can not be applied (reconcile.Options).
	MinRetry, MaxRetry time.Duration
}

// RouteTable reconciles routes and neighbours. One loop owns it.
type RouteTable struct {
	opts   Options
	handle *netlink.Handle
	conn   *conn // for what the netlink library does not know
	links  links

	routes      *reconcile.Table[routeKey, routeValue]
	neighbours  *reconcile.Table[NeighbourKey, neighbourValue]
	routesBy    map[string]map[netip.Prefix]Route     // desired routes by interface name
	routesFrom  map[netip.Addr]map[netip.Prefix]Route // desired routes by source, those that have one
	neighsBy    map[string]map[NeighbourKey]struct{}  // desired neighbours by interface name
	desired     map[netip.Prefix]Route                // desired routes
	events      chan Event
	watchCancel context.CancelFunc
	watchDone   chan struct{}
	lost        bool      // events were lost: Apply reads everything again
	lostRetry   time.Time // not before
}

// New opens the netlink sockets and reads which interfaces there are. Watch must be called for events.
func New(opts Options) (*RouteTable, error) {
	if opts.Protocol == 0 {
		opts.Protocol = DefaultProtocol
	}
	if opts.OwnInterface == nil {
		opts.OwnInterface = func(string) bool { return false }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Namespace == 0 {
		opts.Namespace = netns.None()
	}
	handle, err := newHandle(opts.Namespace)
	if err != nil {
		return nil, fmt.Errorf("route table: %w", err)
	}
	conn, err := newConn(opts.Namespace)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("route table: %w", err)
	}
	r := &RouteTable{
		opts: opts, handle: handle, conn: conn,
		routesBy: make(map[string]map[netip.Prefix]Route), routesFrom: make(map[netip.Addr]map[netip.Prefix]Route),
		neighsBy: make(map[string]map[NeighbourKey]struct{}),
		desired:  make(map[netip.Prefix]Route),
		events:   make(chan Event, 16),
	}
	r.routes = reconcile.New[routeKey, routeValue](routeOps{r}, reconcile.Options[routeValue]{
		Equal: routeValue.satisfies, Now: opts.Now, MinRetry: opts.MinRetry, MaxRetry: opts.MaxRetry,
	})
	r.neighbours = reconcile.New[NeighbourKey, neighbourValue](neighbourOps{r}, reconcile.Options[neighbourValue]{
		Equal: neighbourValue.equal, Now: opts.Now, MinRetry: opts.MinRetry, MaxRetry: opts.MaxRetry,
	})
	if err := r.readLinks(); err != nil {
		r.Close()
		return nil, fmt.Errorf("route table: %w", err)
	}
	return r, nil
}

func newHandle(ns netns.NsHandle) (*netlink.Handle, error) {
	if !ns.IsOpen() {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	return netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
}

// Close stops watching and closes the sockets. Routes and neighbours stay.
func (r *RouteTable) Close() {
	if r.watchCancel != nil {
		r.watchCancel()
		<-r.watchDone
	}
	r.handle.Close()
	r.conn.close()
}

// SetRoute desires a route; one with the same Dst is replaced. A route that can never be right is refused.
func (r *RouteTable) SetRoute(route Route) error {
	if err := route.check(); err != nil {
		return err
	}
	if old, ok := r.desired[route.Dst]; ok {
		r.forget(old)
		if keyOfRoute(old) != keyOfRoute(route) {
			r.routes.Delete(keyOfRoute(old))
		}
	}
	r.desired[route.Dst] = route
	addTo(r.routesBy, route.Interface, route.Dst, route)
	if route.Source.IsValid() {
		addTo(r.routesFrom, route.Source, route.Dst, route)
	}
	r.routes.Set(keyOfRoute(route), r.resolve(route))
	return nil
}

// DeleteRoute desires that our route to dst is gone.
func (r *RouteTable) DeleteRoute(dst netip.Prefix) {
	old, ok := r.desired[dst]
	if !ok {
		return
	}
	delete(r.desired, dst)
	r.forget(old)
	r.routes.Delete(keyOfRoute(old))
}

// forget takes a route out of what it is found by.
func (r *RouteTable) forget(route Route) {
	removeFrom(r.routesBy, route.Interface, route.Dst)
	removeFrom(r.routesFrom, route.Source, route.Dst)
}

// SetNeighbour desires a permanent neighbour entry.
func (r *RouteTable) SetNeighbour(n Neighbour) error {
	if n.Interface == "" || !n.Addr.IsValid() || n.Addr.Is4In6() || n.Addr.Zone() != "" {
		return fmt.Errorf("neighbour %s: want an interface and an address", n.NeighbourKey)
	}
	addTo(r.neighsBy, n.Interface, n.NeighbourKey, struct{}{})
	r.neighbours.Set(n.NeighbourKey, neighbourValue{r.links.index(n.Interface), n.MAC})
	return nil
}

// DeleteNeighbour desires that the entry is gone.
func (r *RouteTable) DeleteNeighbour(key NeighbourKey) {
	removeFrom(r.neighsBy, key.Interface, key)
	r.neighbours.Delete(key)
}

// AllowPrune says that every source has reported all it has: from now on, routes and neighbours of ours that nobody
// desires are removed.
func (r *RouteTable) AllowPrune() {
	r.routes.AllowPrune()
	r.neighbours.AllowPrune()
}

// Apply does what is due: neighbours before the routes that lead to them, deletes last and the other way round.
func (r *RouteTable) Apply(ctx context.Context) reconcile.Result {
	var res reconcile.Result
	if r.lost && !r.opts.Now().Before(r.lostRetry) {
		if _, err := r.Resync(ctx); err != nil {
			res.Err, r.lostRetry = err, r.opts.Now().Add(lostDelay)
		}
	}
	res.Unread = r.lost
	res = res.Add(r.neighbours.ApplyUpdates(ctx))
	res = res.Add(r.routes.ApplyUpdates(ctx))
	res = res.Add(r.routes.ApplyDeletes(ctx))
	res = res.Add(r.neighbours.ApplyDeletes(ctx))
	return res
}

// Resync reads links, routes and neighbours from the kernel and queues repairs, which the next Apply makes. It returns
// how much had been changed by others without our noticing.
func (r *RouteTable) Resync(ctx context.Context) (reconcile.Drift, error) {
	if err := r.readLinks(); err != nil {
		return reconcile.Drift{}, fmt.Errorf("route table: %w", err)
	}
	routes, err := r.routes.Resync(ctx)
	if err != nil {
		return routes, fmt.Errorf("routes: %w", err)
	}
	neighs, err := r.neighbours.Resync(ctx)
	if err != nil {
		return routes, fmt.Errorf("neighbours: %w", err)
	}
	r.lost = false
	return reconcile.Drift{
		Missing: routes.Missing + neighs.Missing,
		Changed: routes.Changed + neighs.Changed,
		Extra:   routes.Extra + neighs.Extra,
	}, nil
}

// NextRetry is when Apply has something to do next; false if nothing is waiting.
func (r *RouteTable) NextRetry() (time.Time, bool) {
	if r.lost {
		return r.lostRetry, true
	}
	a, okA := r.routes.NextRetry()
	b, okB := r.neighbours.NextRetry()
	if !okA || okB && b.Before(a) {
		return b, okB
	}
	return a, okA
}

// Counts of routes and of neighbours, for metrics.
func (r *RouteTable) Counts() (routes, neighbours reconcile.Counts) {
	return r.routes.Counts(), r.neighbours.Counts()
}

// RouteStatus tells how our route to dst stands.
func (r *RouteTable) RouteStatus(dst netip.Prefix) (reconcile.Status, bool) {
	if route, ok := r.desired[dst]; ok {
		return r.routes.Status(keyOfRoute(route))
	}
	return r.routes.Status(keyOf(dst))
}

// NeighbourStatus tells how a neighbour entry stands.
func (r *RouteTable) NeighbourStatus(key NeighbourKey) (reconcile.Status, bool) {
	return r.neighbours.Status(key)
}

func addTo[N, K comparable, V any](by map[N]map[K]V, name N, key K, value V) {
	if by[name] == nil {
		by[name] = make(map[K]V)
	}
	by[name][key] = value
}

func removeFrom[N, K comparable, V any](by map[N]map[K]V, name N, key K) {
	delete(by[name], key)
	if len(by[name]) == 0 {
		delete(by, name)
	}
}
