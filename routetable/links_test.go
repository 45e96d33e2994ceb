// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func TestAnInterfaceThatIsNotThereMakesItsObjectsPendingNotFailed(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.setRoute(direct(f.pod, "cali1"))
			k := l.setNeighbour("cali1", f.podAddr, mac1)
			res := l.r.Apply(t.Context())
			if res.Pending != 2 || res.Failed != 0 || res.Err != nil {
				t.Fatalf("got %+v, want 2 pending", res)
			}
			s, _ := l.r.RouteStatus(netip.MustParsePrefix(f.pod))
			if s.Phase != reconcile.Pending || !errors.Is(s.Err, reconcile.ErrPending) {
				t.Fatalf("status %+v", s)
			}

			done := func() bool { return l.routeDone(f.pod) && l.neighbourDone(k) }
			first := l.veth("cali1")
			l.until("written when the interface has come", done)

			// Created anew under the same name: another index.
			testenv.Run(t, "ip", "link", "del", "cali1")
			l.until("pending while it is gone", func() bool { return !l.routeDone(f.pod) && !l.neighbourDone(k) })
			second := l.veth("cali1")
			if first == second {
				t.Fatalf("index %d again", second)
			}
			l.until("written on the new one", done)
			l.want(l.ip(f.flag, "route", "show", f.pod), "dev cali1 proto 241")

			// Recreated before anything is noticed.
			testenv.Run(t, "ip", "link", "del", "cali1")
			l.veth("cali1")
			l.until("written on the third", func() bool {
				return done() && strings.Contains(l.ip(f.flag, "route", "show", f.pod), "dev cali1") &&
					strings.Contains(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "cali1"), "PERMANENT")
			})

			// The kernel drops IPv4 routes of an interface that goes down, and does not say so.
			testenv.Run(t, "ip", "link", "set", "cali1", "down")
			l.until("pending while it is down", func() bool { return !l.routeDone(f.pod) && !l.neighbourDone(k) })
			testenv.Run(t, "ip", "link", "set", "cali1", "up")
			l.until("written when it is up", done)
			testenv.Run(t, "sh", "-c", "ip link set cali1 down; ip link set cali1 up")
			l.until("written after a moment's down", func() bool {
				return done() && l.ip(f.flag, "route", "show", f.pod) != "" &&
					strings.Contains(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "cali1"), "PERMANENT")
			})

			// Renamed away and back.
			testenv.Run(t, "sh", "-c", "ip link set cali1 down; ip link set cali1 name x1; ip link set x1 up")
			l.until("pending while it has another name", func() bool { return !l.routeDone(f.pod) && !l.neighbourDone(k) })
			testenv.Run(t, "sh", "-c", "ip link set x1 down; ip link set x1 name cali1; ip link set cali1 up")
			l.until("written after it has its name again", done)
		})
	}
}

func TestAnInterfaceThatLeavesABridgeIsStillThere(t *testing.T) {
	l := newLab(t)
	l.veth("cali1")
	testenv.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	l.setRoute(direct("10.65.1.2/32", "cali1"))
	l.until("written", func() bool { return l.routeDone("10.65.1.2/32") })
	testenv.Run(t, "ip", "link", "set", "cali1", "master", "br0")
	testenv.Run(t, "ip", "link", "set", "cali1", "nomaster")
	testenv.Run(t, "ip", "link", "add", "marker", "type", "bridge")
	l.until("marker seen", func() bool { return l.r.links.index("marker") != 0 })
	if l.r.links.index("cali1") == 0 {
		t.Fatal("cali1 is taken for gone")
	}
}

func TestAGatewayThatTheKernelFindsIsWaitedFor(t *testing.T) {
	for _, f := range []struct{ name, flag, dst, gw, addr string }{
		{"IPv4", "-4", "10.65.2.0/24", "192.0.2.2", "192.0.2.1/24"},
		{"IPv6", "-6", "fd00:65:2::/64", "2001:db8::2", "2001:db8::1/64"},
	} {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("eth1")
			l.setRoute(via(f.dst, f.gw, "", false))
			if res := l.r.Apply(t.Context()); res.Pending != 1 {
				t.Fatalf("got %+v, want it pending", res)
			}
			nodad := []string{"ip", f.flag, "addr", "add", f.addr, "dev", "eth1"}
			if f.flag == "-6" {
				nodad = append(nodad, "nodad")
			}
			testenv.Run(t, nodad...)
			l.until("written when the address is there", func() bool { return l.routeDone(f.dst) })
			l.want(l.ip(f.flag, "route", "show", f.dst), "via "+f.gw+" dev eth1 proto 241")
			if drift, err := l.r.Resync(t.Context()); err != nil || drift.Total() != 0 {
				t.Fatalf("drift %+v, %v", drift, err)
			}
			testenv.Run(t, "ip", "link", "set", "eth1", "down")
			l.until("pending while the uplink is down", func() bool { return !l.routeDone(f.dst) })
		})
	}
}

func TestAForeignNeighbourIsStolenOnOurInterfacesOnly(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("cali1")
			l.veth("eth1")
			for _, dev := range []string{"cali1", "eth1"} {
				testenv.Run(t, "ip", f.flag, "neigh", "add", f.podAddr, "dev", dev, "lladdr", mac2.String(), "nud", "permanent")
			}
			ours := l.setNeighbour("cali1", f.podAddr, mac1)
			foreign := l.setNeighbour("eth1", f.podAddr, mac1)
			l.until("ours written", func() bool { return l.neighbourDone(ours) })
			s, _ := l.r.NeighbourStatus(foreign)
			if !errors.Is(s.Err, ErrConflict) {
				t.Fatalf("on eth1: %+v, want a conflict", s)
			}
			l.want(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "eth1"), mac2.String())
			testenv.Run(t, "ip", f.flag, "neigh", "del", f.podAddr, "dev", "eth1")
			l.until("written when the place is free", func() bool { return l.neighbourDone(foreign) })
			l.want(l.ip(f.flag, "neigh", "show", f.podAddr, "dev", "eth1"), mac1.String())

			// What the kernel has learnt by itself is no conflict.
			l.r.AllowPrune()
			l.r.DeleteNeighbour(foreign)
			l.until("deleted", func() bool { _, ok := l.r.NeighbourStatus(foreign); return !ok })
			testenv.Run(t, "ip", f.flag, "neigh", "add", f.podAddr, "dev", "eth1", "lladdr", mac2.String(), "nud", "reachable")
			l.setNeighbour("eth1", f.podAddr, mac1)
			l.until("written over a learnt one", func() bool { return l.neighbourDone(foreign) })
		})
	}
}

func TestARouteTableActsInTheNamespaceItIsGiven(t *testing.T) {
	t.Parallel()
	here := testenv.NetNS(t)
	there := testenv.NewNetNS(t)
	testenv.Veth(t, "cali0", "cali1", there)
	l := newLabIn(t, here, Options{Namespace: there})
	l.setRoute(direct("10.65.1.2/32", "cali1"))
	l.until("written", func() bool { return l.routeDone("10.65.1.2/32") })
	if got := l.ip("route", "show", "proto", "241"); got != "" {
		t.Fatalf("written here: %s", got)
	}
	pod := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("10.65.1.2/32")), Scope: netlink.SCOPE_NOWHERE}
	if err := testenv.Enter(there, func() error { return netlink.RouteDel(pod) }); err != nil {
		t.Fatal(err)
	}
	l.until("repaired there", func() bool {
		n := 0
		if err := testenv.Enter(there, func() error {
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, pod, netlink.RT_FILTER_DST)
			n = len(routes)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}

func TestARouteThatCanNeverBeRightIsRefused(t *testing.T) {
	t.Parallel()
	testenv.NetNS(t)
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := netip.MustParsePrefix
	for name, route := range map[string]Route{
		"without a destination":       {Interface: "cali1"},
		"bits beyond the prefix":      {Dst: p("10.0.0.1/8"), Interface: "cali1"},
		"gateway of another family":   {Dst: p("10.0.0.0/8"), Interface: "cali1", Gateway: netip.MustParseAddr("fe80::1")},
		"neither interface nor way":   {Dst: p("10.0.0.0/8")},
		"onlink without an interface": {Dst: p("10.0.0.0/8"), Gateway: netip.MustParseAddr("10.1.1.1"), Onlink: true},
	} {
		if err := r.SetRoute(route); err == nil {
			t.Errorf("%s: %s is accepted", name, route)
		}
	}
	if err := r.SetNeighbour(Neighbour{NeighbourKey{"", netip.MustParseAddr("10.0.0.1")}, mac1}); err == nil {
		t.Error("a neighbour without interface is accepted")
	}
}
