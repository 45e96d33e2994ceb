// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

// sourced is a route as the fallback of host traffic needs it.
type sourced struct {
	name, gateway, dst, source, other string
	add                               []string
	flag                              string
}

var sourcedCases = []sourced{
	{"IPv4", "169.254.1.1", "10.96.0.1/32", "192.0.2.1", "192.0.2.9", []string{"addr", "add"}, "-4"},
	{"IPv6", "fe80::1", "fd96::1/128", "2001:db8::1", "2001:db8::9", []string{"-6", "addr", "add"}, "-6"},
}

func (c sourced) route(source string, mtu uint32) Route {
	return Route{Dst: netip.MustParsePrefix(c.dst), Interface: "in", Gateway: netip.MustParseAddr(c.gateway), Onlink: true,
		Source: netip.MustParseAddr(source), MTU: mtu}
}

func (l *lab) address(c sourced, verb, addr string) {
	l.t.Helper()
	args := []string{"ip", "addr", verb, addr + "/32", "dev", "lo"}
	if c.flag == "-6" {
		args[3] = addr + "/128"
	}
	if verb == "add" && c.flag == "-6" {
		args = append(args, "nodad")
	}
	testenv.Run(l.t, args...)
}

func TestARouteHasSourceAndMTUAndIsRepairedWhenTheyAreChanged(t *testing.T) {
	for _, c := range sourcedCases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.veth("in")
			show := func() string { return l.ip(c.flag, "route", "show", "proto", "241") }
			l.setRoute(c.route(c.source, 1450))
			if res := l.r.Apply(t.Context()); res.Pending != 1 || res.Failed != 0 {
				t.Fatalf("without the address: %+v, want it pending", res)
			}
			l.address(c, "add", c.source)
			l.until("the route to come with its source", func() bool { return strings.Contains(show(), "src "+c.source) })
			l.want(show(), "via "+c.gateway, "dev in", "mtu 1450")
			d, err := l.r.Resync(t.Context())
			if err != nil || d.Total() != 0 {
				t.Fatalf("read back: %+v, %v; want no difference", d, err)
			}
			// A changed node address, then a changed MTU.
			l.address(c, "add", c.other)
			l.setRoute(c.route(c.other, 1400))
			l.until("the route to follow", func() bool { return l.routeDone(c.dst) })
			l.want(show(), "src "+c.other, "mtu 1400")
			testenv.Run(t, "ip", c.flag, "route", "replace", strings.Split(c.dst, "/")[0], "via", c.gateway, "dev", "in", "onlink",
				"proto", "241", "mtu", "1300")
			l.until("what somebody changed to be repaired", func() bool {
				return strings.Contains(show(), "src "+c.other) && strings.Contains(show(), "mtu 1400")
			})
			// The kernel says nothing about what it does to a route whose source goes.
			l.address(c, "del", c.other)
			l.until("the address to be missed", func() bool { return !l.routeDone(c.dst) })
			l.address(c, "add", c.other)
			l.until("the route to come back", func() bool { return strings.Contains(show(), "src "+c.other) && l.routeDone(c.dst) })
			l.r.AllowPrune()
			l.r.DeleteRoute(netip.MustParsePrefix(c.dst))
			l.until("the route to go", func() bool { return show() == "" })
		})
	}
}

func TestARouteWithASourceOfAnotherFamilyIsRefused(t *testing.T) {
	r := Route{Dst: netip.MustParsePrefix("10.0.0.1/32"), Interface: "in", Source: netip.MustParseAddr("fd00::1")}
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "source") {
		t.Errorf("got %v", err)
	}
}
