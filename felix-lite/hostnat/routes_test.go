// SPDX-License-Identifier: Apache-2.0

package hostnat

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/routetable"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func key(addr string, port uint16) services.FrontendKey {
	return services.FrontendKey{Addr: ip(addr), Port: port, Proto: model.TCP}
}

func frontends(keys ...services.FrontendKey) (d services.Delta) {
	for _, k := range keys {
		d.Frontends = append(d.Frontends, services.Frontend{Key: k})
	}
	return d
}

// kernel is what a test's deltas have led to.
type kernel struct {
	t       *testing.T
	r       *Routes
	entries map[string]bool
	writes  int
}

func newKernel(t *testing.T) *kernel {
	return &kernel{t: t, r: NewRoutes(), entries: map[string]bool{}}
}

func (k *kernel) take(d Delta) {
	k.t.Helper()
	k.writes = len(d.Routes) + len(d.Neighbours) + len(d.DeleteRoutes) + len(d.DeleteNeighbours)
	remove := func(prefix string) {
		maps.DeleteFunc(k.entries, func(e string, _ bool) bool { return strings.HasPrefix(e, prefix+" ") })
	}
	for _, n := range d.Neighbours {
		remove("neighbour " + n.Addr.String())
		k.entries[fmt.Sprintf("neighbour %s %s", n.NeighbourKey, n.MAC)] = true
	}
	for _, r := range d.Routes {
		remove(r.Dst.String())
		k.entries[r.String()] = true
	}
	for _, dst := range d.DeleteRoutes {
		remove(dst.String())
	}
	for _, n := range d.DeleteNeighbours {
		remove("neighbour " + n.Addr.String())
	}
}

func (k *kernel) want(writes int, lines ...string) {
	k.t.Helper()
	got := slices.Sorted(maps.Keys(k.entries))
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		k.t.Errorf("have:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
	if k.writes != writes {
		k.t.Errorf("%d writes, want %d", k.writes, writes)
	}
}

var mac = [6]byte{2, 0, 0, 0, 0, 1}

var both = Node{IPv4: ip("192.0.2.1"), IPv6: ip("2001:db8::1"), Own: []netip.Addr{ip("192.0.2.1"), ip("2001:db8::1")}, MTU: 1450}

const (
	base4 = "169.254.1.1/32 dev bpfin.cali"
	near4 = "neighbour 169.254.1.1 dev bpfin.cali 02:00:00:00:00:01"
	near6 = "neighbour fe80::1 dev bpfin.cali 02:00:00:00:00:01"
	vip4  = "10.96.0.1/32 via 169.254.1.1 dev bpfin.cali onlink src 192.0.2.1 mtu 1450"
	vip6  = "fd96::1/128 via fe80::1 dev bpfin.cali onlink src 2001:db8::1 mtu 1450"
)

func TestEachServedAddressHasOneRouteWhileThePairIsInUse(t *testing.T) {
	k := newKernel(t)
	k.take(k.r.SetNode(both))
	k.take(k.r.Services(frontends(key("10.96.0.1", 80), key("10.96.0.1", 443), key("fd96::1", 80), key("192.0.2.1", 30080),
		key("255.255.255.255", 30080), key("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 30080))))
	k.want(0)
	k.take(k.r.Enable(true, mac))
	k.want(5, base4, near4, near6, vip4, vip6)
	// A second port, and the same again, write nothing; the last port's end deletes one route.
	k.take(k.r.Services(frontends(key("10.96.0.1", 8080), key("10.96.0.1", 80))))
	k.want(0, base4, near4, near6, vip4, vip6)
	k.take(k.r.Services(services.Delta{DeleteFrontends: []services.FrontendKey{key("10.96.0.1", 80), key("10.96.0.1", 443)}}))
	k.want(0, base4, near4, near6, vip4, vip6)
	k.take(k.r.Services(services.Delta{DeleteFrontends: []services.FrontendKey{key("10.96.0.1", 8080), key("10.96.0.9", 1)}}))
	k.want(1, base4, near4, near6, vip6)
	k.take(k.r.Enable(true, mac))
	k.want(0, base4, near4, near6, vip6)
	k.take(k.r.Enable(true, [6]byte{2, 0, 0, 0, 0, 2}))
	k.want(2, base4, strings.Replace(near4, "00:01", "00:02", 1), strings.Replace(near6, "00:01", "00:02", 1), vip6)
	k.take(k.r.Enable(false, [6]byte{}))
	k.want(4)
}

func TestRoutesFollowTheNodesAddressesAndSizes(t *testing.T) {
	k := newKernel(t)
	k.take(k.r.Enable(true, mac))
	k.take(k.r.Services(frontends(key("10.96.0.1", 80), key("fd96::1", 80), key("198.51.100.7", 80))))
	k.want(0)
	// The node's address comes late, and of one family only.
	late := both
	late.IPv6 = netip.Addr{}
	k.take(k.r.SetNode(late))
	ext := "198.51.100.7/32 via 169.254.1.1 dev bpfin.cali onlink src 192.0.2.1 mtu 1450"
	k.want(4, base4, near4, vip4, ext)
	k.take(k.r.SetNode(both))
	k.want(2, base4, near4, near6, vip4, vip6, ext)
	// An external address that moves to this node is reached by lo from now on.
	own := both
	own.Own = append(slices.Clone(both.Own), ip("198.51.100.7"))
	k.take(k.r.SetNode(own))
	k.want(1, base4, near4, near6, vip4, vip6)
	k.take(k.r.SetNode(both))
	k.want(1, base4, near4, near6, vip4, vip6, ext)
	moved := both
	moved.IPv4, moved.MTU = ip("192.0.2.2"), 0
	k.take(k.r.SetNode(moved))
	k.want(3, base4, near4, near6, "10.96.0.1/32 via 169.254.1.1 dev bpfin.cali onlink src 192.0.2.2",
		"198.51.100.7/32 via 169.254.1.1 dev bpfin.cali onlink src 192.0.2.2", "fd96::1/128 via fe80::1 dev bpfin.cali onlink src 2001:db8::1")
}

func TestReplacingAllServicesDeletesWhatIsGone(t *testing.T) {
	k := newKernel(t)
	k.take(k.r.SetNode(both))
	k.take(k.r.Enable(true, mac))
	k.take(k.r.Services(frontends(key("10.96.0.1", 80), key("10.96.0.2", 80))))
	k.take(k.r.Replace(maps.All(map[services.FrontendKey]services.FrontendValue{key("10.96.0.1", 80): {}, key("fd96::1", 80): {}})))
	k.want(2, base4, near4, near6, vip4, vip6)
	if k.r.Len() != 3 || !k.r.Has(netip.MustParsePrefix("10.96.0.1/32")) || k.r.Has(netip.MustParsePrefix("10.96.0.2/32")) {
		t.Errorf("%d routes", k.r.Len())
	}
}

func TestEveryRouteIsOneThatTheRouteTableTakes(t *testing.T) {
	rt := NewRoutes()
	rt.SetNode(both)
	rt.Services(frontends(key("10.96.0.1", 80), key("fd96::1", 80)))
	for _, r := range rt.Enable(true, mac).Routes {
		if r.Interface != InName || r.Dst != r.Dst.Masked() || (r.Gateway.IsValid() && !r.Onlink) {
			t.Errorf("%s", r)
		}
	}
	var _ routetable.MAC = mac
}

func TestTheRoutesMTUIsSetOnlyWhereItIsSmallerThanThePairs(t *testing.T) {
	for _, c := range []struct{ pair, pod, tunnel, want int }{
		{1500, 1450, 1450, 1450}, {1500, 1500, 1450, 1450}, {1500, 1400, 1450, 1400}, {1500, 1500, 1500, 0}, {1400, 1450, 1450, 0},
	} {
		if got := RouteMTU(c.pair, c.pod, c.tunnel); got != c.want {
			t.Errorf("pair %d, pod %d, tunnel %d: got %d, want %d", c.pair, c.pod, c.tunnel, got, c.want)
		}
	}
}
