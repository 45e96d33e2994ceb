// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// lab is a RouteTable in a namespace of its own, with a loop like the agent's.
type lab struct {
	t *testing.T
	r *RouteTable
}

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	return newLabIn(t, testenv.NetNS(t), Options{})
}

func newLabIn(t *testing.T, ns interface{ IsOpen() bool }, opts Options) *lab {
	t.Helper()
	if !ns.IsOpen() {
		t.Fatal("no namespace")
	}
	if opts.OwnInterface == nil {
		opts.OwnInterface = func(name string) bool { return strings.HasPrefix(name, "cali") }
	}
	opts.MinRetry = 10 * time.Millisecond
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if err := r.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &lab{t, r}
}

// until runs the loop until cond holds.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		var due <-chan time.Time
		if at, ok := l.r.NextRetry(); ok {
			if !at.After(time.Now()) {
				l.r.Apply(l.t.Context())
				if cond() {
					return
				}
				continue
			}
			due = time.After(time.Until(at))
		}
		if cond() {
			return
		}
		select {
		case e := <-l.r.Events():
			l.r.HandleEvent(e)
		case <-due:
		case <-time.After(20 * time.Millisecond): // cond may look at the kernel
		case <-deadline.C:
			l.t.Fatalf("not reached: %s\nproblems: %v\n%s", what, l.r.Problems(), l.dump())
		}
	}
}

func (l *lab) dump() string {
	return testenv.Run(l.t, "sh", "-c", "ip -d route; ip -d -6 route; ip neigh; ip -6 neigh; ip -br link")
}

func (l *lab) setRoute(r Route) {
	l.t.Helper()
	if err := l.r.SetRoute(r); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) setNeighbour(dev, addr string, mac MAC) NeighbourKey {
	l.t.Helper()
	key := NeighbourKey{dev, netip.MustParseAddr(addr)}
	if err := l.r.SetNeighbour(Neighbour{key, mac}); err != nil {
		l.t.Fatal(err)
	}
	return key
}

func (l *lab) routeDone(dst string) bool {
	s, ok := l.r.RouteStatus(netip.MustParsePrefix(dst))
	return ok && s.Phase == reconcile.Done
}

func (l *lab) neighbourDone(k NeighbourKey) bool {
	s, ok := l.r.NeighbourStatus(k)
	return ok && s.Phase == reconcile.Done
}

// ip tells what `ip` shows, on one line.
func (l *lab) ip(args ...string) string {
	l.t.Helper()
	return strings.Join(strings.Fields(testenv.Run(l.t, append([]string{"ip"}, args...)...)), " ")
}

func (l *lab) want(got string, parts ...string) {
	l.t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			l.t.Fatalf("want %q in %q", p, got)
		}
	}
}

// veth makes a pair as for a pod, host side up, and returns its index when the RouteTable has heard of it.
func (l *lab) veth(name string) int {
	l.t.Helper()
	a, _ := testenv.Veth(l.t, name, name+"p", -1)
	deadline := time.After(30 * time.Second)
	for l.r.links.index(name) != a.Attrs().Index || !l.r.links.up(a.Attrs().Index) {
		select {
		case e := <-l.r.Events():
			l.r.HandleEvent(e)
		case <-deadline:
			l.t.Fatalf("no event for %s", name)
		}
	}
	return a.Attrs().Index
}

func direct(dst, dev string) Route { return Route{Dst: netip.MustParsePrefix(dst), Interface: dev} }

func via(dst, gw, dev string, onlink bool) Route {
	return Route{Dst: netip.MustParsePrefix(dst), Interface: dev, Gateway: netip.MustParseAddr(gw), Onlink: onlink}
}

var (
	mac1 = MAC{2, 0, 0, 0, 0, 1}
	mac2 = MAC{2, 0, 0, 0, 0, 2}
)

// families are the addresses that tests use in each family.
var families = []struct {
	name, flag, pod, podAddr, cidr, gw, other string
}{
	{"IPv4", "-4", "10.65.1.2/32", "10.65.1.2", "10.65.2.0/24", "169.254.1.2", "10.65.9.9/32"},
	{"IPv6", "-6", "fd00:65:1::2/128", "fd00:65:1::2", "fd00:65:2::/64", "fe80::2", "fd00:65:9::9/128"},
}

func TestRoutesAndNeighboursAreWrittenAsThePodsAndNodesNeedThem(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.setRoute(direct(f.pod, "cali1"))
			l.setRoute(via(f.cidr, f.gw, "cali1", true))
			k := l.setNeighbour("cali1", f.podAddr, mac1)
			g := l.setNeighbour("cali1", f.gw, mac2)
			res := l.r.Apply(t.Context())
			if res.Updated != 4 || res.Err != nil {
				t.Fatalf("got %+v, want 4 updates", res)
			}
			if !l.neighbourDone(k) || !l.neighbourDone(g) || !l.routeDone(f.pod) || !l.routeDone(f.cidr) {
				t.Fatal("not everything is done")
			}
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev cali1 proto 241")
			l.want(l.ip(f.flag, "route", "show", f.cidr), "via "+f.gw+" dev cali1 proto 241", "onlink")
			if f.name == "IPv4" {
				l.want(l.ip("route", "show", f.pod), "scope link")
			}
			l.want(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "cali1"), mac1.String()+" PERMANENT", "proto 241")
			if drift, err := l.r.Resync(t.Context()); err != nil || drift.Total() != 0 {
				t.Fatalf("after writing: drift %+v, %v", drift, err)
			}
			if res := l.r.Apply(t.Context()); res.Updated != 0 || res.Deleted != 0 {
				t.Fatalf("after reading back: %+v, want nothing to do", res)
			}

			// Gone when no longer desired.
			l.r.AllowPrune()
			l.r.DeleteRoute(netip.MustParsePrefix(f.pod))
			l.r.DeleteRoute(netip.MustParsePrefix(f.cidr))
			l.r.DeleteNeighbour(k)
			l.r.DeleteNeighbour(g)
			if res := l.r.Apply(t.Context()); res.Deleted != 4 || res.Err != nil {
				t.Fatalf("got %+v, want 4 deletes", res)
			}
			if got := l.ip(f.flag, "route", "show", "proto", "241") + l.ip(f.flag, "neigh", "show", "nud", "permanent", "dev", "cali1"); got != "" {
				t.Fatalf("left: %s", got)
			}
		})
	}
}

func TestARouteIsChangedInPlaceWithoutAGap(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.veth("cali2")
			l.setRoute(direct(f.pod, "cali1"))
			l.until("written", func() bool { return l.routeDone(f.pod) })
			changes := make(chan netlink.RouteUpdate, 64)
			if err := netlink.RouteSubscribe(changes, t.Context().Done()); err != nil {
				t.Fatal(err)
			}
			for _, want := range []Route{direct(f.pod, "cali2"), via(f.pod, f.gw, "cali2", true), direct(f.pod, "cali1")} {
				l.setRoute(want)
				l.until("changed", func() bool { return l.routeDone(f.pod) })
				got := l.ip(f.flag, "route", "show", f.pod)
				l.want(got, "dev "+want.Interface)
				if strings.Count(got, "proto 241") != 1 || strings.Contains(got, "via") != want.Gateway.IsValid() {
					t.Fatalf("want one route %s, got %s", want, got)
				}
			}
			for {
				select {
				case u := <-changes:
					if u.Type == unix.RTM_DELROUTE && u.Table == unix.RT_TABLE_MAIN {
						t.Fatalf("the route was deleted in between: %v", u.Route)
					}
					continue
				default:
				}
				break
			}
		})
	}
}

func TestNothingIsDeletedBeforeTheFirstSyncAndAfterwardsOnlyOurs(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			// Left by an earlier run: one still desired, one not. And somebody else's.
			testenv.Run(t, "ip", f.flag, "route", "add", f.pod, "dev", "cali1", "proto", "241")
			testenv.Run(t, "ip", f.flag, "route", "add", f.cidr, "dev", "cali1", "proto", "241")
			testenv.Run(t, "ip", f.flag, "route", "add", f.other, "dev", "cali1", "proto", "static")
			testenv.Run(t, "ip", f.flag, "neigh", "add", f.podAddr, "dev", "cali1", "lladdr", mac1.String(), "nud", "permanent", "protocol", "241")
			testenv.Run(t, "ip", f.flag, "neigh", "add", f.gw, "dev", "cali1", "lladdr", mac1.String(), "nud", "permanent")
			l.setRoute(direct(f.pod, "cali1"))
			if res := l.r.Apply(t.Context()); res != (reconcile.Result{}) {
				t.Fatalf("adopting: %+v, want nothing written", res)
			}
			if !l.routeDone(f.pod) {
				t.Fatal("the adopted route is not done")
			}
			l.want(l.ip(f.flag, "route", "show", f.cidr), "proto 241")
			l.r.AllowPrune()
			if res := l.r.Apply(t.Context()); res.Deleted != 2 || res.Err != nil {
				t.Fatalf("pruning: %+v, want 2 deletes", res)
			}
			if got := l.ip(f.flag, "route", "show", f.cidr); got != "" {
				t.Fatalf("still there: %s", got)
			}
			l.want(l.ip(f.flag, "route", "show", f.pod), "proto 241")
			l.want(l.ip(f.flag, "route", "show", f.other), "proto static")
			l.want(l.ip(f.flag, "neigh", "show", f.gw, "dev", "cali1"), "PERMANENT")
		})
	}
}

func TestAForeignRouteInOurPlaceIsReportedAndNotStolen(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.veth("eth1")
			testenv.Run(t, "ip", f.flag, "route", "add", f.pod, "dev", "eth1", "proto", "static")
			l.setRoute(direct(f.pod, "cali1"))
			l.until("conflict", func() bool {
				s, _ := l.r.RouteStatus(netip.MustParsePrefix(f.pod))
				return errors.Is(s.Err, ErrConflict)
			})
			s, _ := l.r.RouteStatus(netip.MustParsePrefix(f.pod))
			l.want(s.Err.Error(), f.pod, "place is taken by a route of protocol static")
			if s.Phase != reconcile.Failed || len(l.r.Problems()) != 1 {
				t.Fatalf("status %+v, problems %v", s, l.r.Problems())
			}
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev eth1 proto static")

			testenv.Run(t, "ip", f.flag, "route", "del", f.pod, "dev", "eth1")
			l.until("ours once the place is free", func() bool { return l.routeDone(f.pod) })
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev cali1 proto 241")

			// Somebody takes it over: theirs stays.
			testenv.Run(t, "ip", f.flag, "route", "replace", f.pod, "dev", "eth1", "proto", "static")
			l.until("conflict again", func() bool {
				s, _ := l.r.RouteStatus(netip.MustParsePrefix(f.pod))
				return errors.Is(s.Err, ErrConflict)
			})
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev eth1 proto static")

			// Not ours any more: not deleted either.
			l.r.AllowPrune()
			l.r.DeleteRoute(netip.MustParsePrefix(f.pod))
			l.r.Apply(t.Context())
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev eth1 proto static")
		})
	}
}

func TestWhatSomebodyChangesOrDeletesIsRepaired(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.veth("cali2")
			l.setRoute(direct(f.pod, "cali1"))
			k := l.setNeighbour("cali1", f.podAddr, mac1)
			done := func() bool { return l.routeDone(f.pod) && l.neighbourDone(k) }
			l.until("written", done)

			for name, harm := range map[string][]string{
				"route deleted":              {"ip", f.flag, "route", "del", f.pod},
				"route moved":                {"ip", f.flag, "route", "replace", f.pod, "dev", "cali2", "proto", "241"},
				"route got a metric":         {"ip", f.flag, "route", "replace", f.pod, "dev", "cali1", "proto", "241", "mtu", "1000"},
				"neighbour deleted":          {"ip", f.flag, "neigh", "del", f.podAddr, "dev", "cali1"},
				"neighbour changed":          {"ip", f.flag, "neigh", "replace", f.podAddr, "dev", "cali1", "lladdr", mac2.String(), "nud", "permanent"},
				"neighbour left to the ARP":  {"ip", f.flag, "neigh", "replace", f.podAddr, "dev", "cali1", "lladdr", mac1.String(), "nud", "stale"},
				"everything on it forgotten": {"ip", f.flag, "route", "flush", "dev", "cali1"},
			} {
				testenv.Run(t, harm...)
				l.until(name, func() bool {
					route := l.ip(f.flag, "route", "show", f.pod)
					return done() && strings.Contains(route, "dev cali1 proto 241") && !strings.Contains(route, "mtu") &&
						strings.Contains(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "cali1"), mac1.String()+" PERMANENT")
				})
			}
			if s := l.r.Problems(); len(s) != 0 {
				t.Fatalf("problems: %v", s)
			}
		})
	}
}

func TestResyncFindsWhatNoEventTold(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.setRoute(direct(f.pod, "cali1"))
			l.setRoute(direct(f.other, "cali1"))
			k := l.setNeighbour("cali1", f.podAddr, mac1)
			l.r.AllowPrune()
			l.until("written", func() bool { return l.routeDone(f.pod) && l.routeDone(f.other) && l.neighbourDone(k) })
			testenv.Run(t, "ip", f.flag, "route", "del", f.pod)
			testenv.Run(t, "ip", f.flag, "route", "replace", f.other, "dev", "lo", "proto", "241")
			testenv.Run(t, "ip", f.flag, "route", "add", f.cidr, "dev", "cali1", "proto", "241")
			testenv.Run(t, "ip", f.flag, "neigh", "del", f.podAddr, "dev", "cali1")
			drift, err := l.r.Resync(t.Context())
			if want := (reconcile.Drift{Missing: 2, Changed: 1, Extra: 1}); err != nil || drift != want {
				t.Fatalf("drift %+v, %v; want %+v", drift, err, want)
			}
			if res := l.r.Apply(t.Context()); res.Updated != 3 || res.Deleted != 1 {
				t.Fatalf("repair: %+v", res)
			}
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev cali1")
			l.want(l.ip(f.flag, "route", "show", f.other), "dev cali1")
		})
	}
}

func TestLostEventsAreMadeGoodByReadingEverything(t *testing.T) {
	l := newLab(t)
	l.veth("cali1")
	l.setRoute(direct("10.65.1.2/32", "cali1"))
	l.until("written", func() bool { return l.routeDone("10.65.1.2/32") })
	testenv.Run(t, "ip", "route", "del", "10.65.1.2/32")
	l.r.HandleEvent(Event{lost: true, err: unix.ENOBUFS})
	if _, ok := l.r.NextRetry(); !ok {
		t.Fatal("nothing is due after events were lost")
	}
	if res := l.r.Apply(t.Context()); res.Updated != 1 {
		t.Fatalf("got %+v, want the route written again", res)
	}
}

// What is unreachable is so only where nobody else has a route, and turns into another route and back without being left.
func TestAnUnreachableRangeGivesWayToAnyOtherRoute(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.r.AllowPrune()
			l.veth("cali1")
			l.veth("eth1")
			nothing := Route{Dst: netip.MustParsePrefix(f.cidr), Unreachable: true}
			l.setRoute(nothing)
			l.until("written", func() bool { return l.routeDone(f.cidr) })
			l.want(l.ip(f.flag, "route", "show", f.cidr), "unreachable "+f.cidr, "proto 241 metric 4294967295")
			if res := l.r.Apply(t.Context()); res != (reconcile.Result{}) {
				t.Fatalf("again: %+v, want nothing to do", res)
			}
			if d, err := l.r.Resync(t.Context()); err != nil || d.Total() != 0 {
				t.Fatalf("resync: %+v, %v", d, err)
			}
			// Somebody else's route of the same range has no quarrel with it.
			testenv.Run(t, "ip", f.flag, "route", "add", f.cidr, "dev", "eth1", "proto", "static")
			l.setRoute(direct(f.pod, "cali1"))
			l.until("a pod's route in it", func() bool { return l.routeDone(f.pod) })
			if p := l.r.Problems(); len(p) != 0 {
				t.Fatalf("problems %v", p)
			}
			l.want(l.ip(f.flag, "route", "get", f.podAddr), "dev cali1")
			testenv.Run(t, "ip", f.flag, "route", "del", f.cidr, "dev", "eth1")
			testenv.Run(t, "ip", f.flag, "route", "del", "unreachable", f.cidr)
			l.until("repaired", func() bool {
				l.r.Apply(t.Context())
				return strings.Contains(l.ip(f.flag, "route", "show", f.cidr), "unreachable")
			})
			l.setRoute(direct(f.cidr, "cali1"))
			l.until("another route of the range", func() bool {
				got := l.ip(f.flag, "route", "show", f.cidr)
				return strings.Contains(got, "dev cali1") && !strings.Contains(got, "unreachable")
			})
			l.setRoute(nothing)
			l.until("unreachable again", func() bool {
				got := l.ip(f.flag, "route", "show", f.cidr)
				return !strings.Contains(got, "dev cali1") && strings.Contains(got, "unreachable")
			})
			l.r.DeleteRoute(nothing.Dst)
			l.until("gone", func() bool { return l.ip(f.flag, "route", "show", f.cidr) == "" })
		})
	}
}
