// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// fixture is node n0's calculator with the tables that its deltas fill.
type fixture struct {
	t      *testing.T
	calc   *Calculator
	routes map[netip.Prefix]RouteValue
	kernel map[netip.Prefix]KernelRoute
	neigh  map[NeighbourKey]model.MAC
	delta  Delta
}

func newFixture(t *testing.T, edit ...func(*Options)) *fixture {
	o := Options{NodeName: "n0", Overlay: OverlayVXLAN, Underlay: UnderlayAuto, IPv4: true, IPv6: true}
	for _, e := range edit {
		e(&o)
	}
	return &fixture{
		t: t, calc: New(o), routes: map[netip.Prefix]RouteValue{}, kernel: map[netip.Prefix]KernelRoute{}, neigh: map[NeighbourKey]model.MAC{},
	}
}

func direct(o *Options) { o.Overlay = OverlayDirect }

func (f *fixture) take(d Delta) {
	f.t.Helper()
	f.delta = d
	for _, r := range d.Routes {
		f.routes[r.Prefix] = r.Value
	}
	for _, p := range d.DeleteRoutes {
		delete(f.routes, p)
	}
	for _, r := range d.KernelRoutes {
		f.kernel[r.Dst] = r
	}
	for _, p := range d.DeleteKernel {
		delete(f.kernel, p)
	}
	for _, n := range d.Neighbours {
		f.neigh[n.NeighbourKey] = n.MAC
	}
	for _, k := range d.DeleteNeighbours {
		delete(f.neigh, k)
	}
	f.sameAsDesired()
}

// sameAsDesired compares what the deltas have led to with the complete sets.
func (f *fixture) sameAsDesired() {
	f.t.Helper()
	routes := map[netip.Prefix]RouteValue{}
	for _, fam := range model.Families {
		for p, v := range f.calc.Routes(fam) {
			routes[p] = v
		}
	}
	kernel := map[netip.Prefix]KernelRoute{}
	for p, v := range f.calc.KernelRoutes() {
		kernel[p] = v
	}
	neigh := map[NeighbourKey]model.MAC{}
	for k, m := range f.calc.Neighbours() {
		neigh[k] = m
	}
	if !reflect.DeepEqual(routes, f.routes) || !reflect.DeepEqual(kernel, f.kernel) || !reflect.DeepEqual(neigh, f.neigh) {
		f.t.Fatalf("deltas led to\n%v\n%v\n%v\ndesired are\n%v\n%v\n%v", f.routes, f.kernel, f.neigh, routes, kernel, neigh)
	}
}

func (f *fixture) set(nodes ...*model.Node) {
	f.t.Helper()
	var changes []model.Change
	for _, n := range nodes {
		changes = append(changes, model.Updated(n))
	}
	f.take(f.calc.Apply(changes))
}

func (f *fixture) remove(names ...string) {
	f.t.Helper()
	var changes []model.Change
	for _, n := range names {
		changes = append(changes, model.Deleted(model.KindNode, model.ObjectName{Name: n}))
	}
	f.take(f.calc.Apply(changes))
}

func (f *fixture) endpoint(id string, created int64, iface string, addrs ...string) {
	f.t.Helper()
	e := &model.WorkloadEndpoint{
		ID: id, HostInterface: iface, PodMAC: model.MAC{2, 0, 0, 0, 0, id[len(id)-1]}, Created: time.Unix(created, 0),
		Pod: model.ObjectName{Namespace: "default", Name: "pod-" + id},
	}
	for _, a := range addrs {
		e.Addresses = append(e.Addresses, ip(a))
	}
	f.take(f.calc.SetEndpoint(LocalEndpoint{e, 7, 3}))
}

// describe writes all tables, one line for each entry.
func (f *fixture) describe() []string {
	var out []string
	for p, v := range f.routes {
		s := text(p)
		for _, fl := range []struct {
			flag Flags
			name string
		}{{Local, "local"}, {Workload, "workload"}, {HostAddr, "host"}, {Pool, "pool"}, {NATOut, "nat-out"}, {Tunneled, "tunnel"}, {NextHopV6, "v6"}} {
			if v.Flags&fl.flag != 0 {
				s += " " + fl.name
			}
		}
		if v.NodeID != 0 {
			s += fmt.Sprintf(" node %d", v.NodeID)
		}
		if v.NextHop.IsValid() {
			s += " via " + v.NextHop.String()
		}
		if v.Ifindex != 0 {
			s += fmt.Sprintf(" if %d slot %d", v.Ifindex, v.EndpointSlot)
		}
		out = append(out, s)
	}
	for p, r := range f.kernel {
		s := "kernel " + text(p)
		if r.Gateway.IsValid() {
			s += " via " + r.Gateway.String()
		}
		if r.Interface != "" {
			s += " dev " + r.Interface
		}
		if r.Onlink {
			s += " onlink"
		}
		if r.Unreachable {
			s += " unreachable"
		}
		out = append(out, s)
	}
	for k, m := range f.neigh {
		if k.Interface != TunnelInterface {
			out = append(out, fmt.Sprintf("neighbour %s %s dev %s", k.Addr, m, k.Interface))
		}
	}
	sort.Strings(out)
	return out
}

func (f *fixture) want(lines ...string) {
	f.t.Helper()
	sort.Strings(lines)
	if got := f.describe(); !slices.Equal(got, lines) {
		f.t.Errorf("tables:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

func (f *fixture) wantProblems(want ...string) {
	f.t.Helper()
	var got []string
	for _, p := range f.calc.Problems() {
		got = append(got, p.Error())
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("problems:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// node makes a node from addresses (external ones are written with a +) and CIDRs.
func node(name string, words ...string) *model.Node {
	n := &model.Node{Name: name, Created: time.Unix(100, 0)}
	for _, w := range words {
		if strings.Contains(w, "/") {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(w))
			continue
		}
		kind := model.NodeInternalIP
		if strings.HasPrefix(w, "+") {
			kind = model.NodeExternalIP
		}
		n.Addresses = append(n.Addresses, model.NodeAddress{Type: kind, Addr: ip(strings.TrimPrefix(w, "+"))})
	}
	return n
}

func TestRoutesOfOneRemoteNode(t *testing.T) {
	dual := node("n1", "192.0.2.11", "2001:db8::11", "10.65.1.0/24", "fd00:65:1::/64")
	for name, c := range map[string]struct {
		edit func(*Options)
		own  *model.Node
		node *model.Node
		want []string
	}{
		"vxlan over IPv4: both families' pods by the node's IPv4 address": {func(*Options) {}, node("n0", "192.0.2.10"), dual, []string{
			"192.0.2.10 local host", "192.0.2.11 host tunnel node 1 via 192.0.2.11", "2001:db8::11 host tunnel node 1 via 192.0.2.11",
			"10.65.1.0/24 workload pool tunnel node 1 via 192.0.2.11", "fd00:65:1::/64 workload pool tunnel node 1 via 192.0.2.11",
			"kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink", "kernel fd00:65:1::/64 via fe80::2 dev vxlan.calico onlink",
		}},
		"vxlan over IPv6 where this node has no other": {func(*Options) {}, node("n0", "2001:db8::10"), dual, []string{
			"2001:db8::10 local host", "192.0.2.11 host tunnel v6 node 1 via 2001:db8::11", "2001:db8::11 host tunnel v6 node 1 via 2001:db8::11",
			"10.65.1.0/24 workload pool tunnel v6 node 1 via 2001:db8::11", "fd00:65:1::/64 workload pool tunnel v6 node 1 via 2001:db8::11",
			"kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink", "kernel fd00:65:1::/64 via fe80::2 dev vxlan.calico onlink",
		}},
		"vxlan over IPv6 where it is configured": {func(o *Options) { o.Underlay = UnderlayIPv6 }, node("n0", "192.0.2.10", "2001:db8::10"),
			node("n1", "192.0.2.11", "2001:db8::11"), []string{
				"192.0.2.10 local host", "2001:db8::10 local host",
				"192.0.2.11 host tunnel v6 node 1 via 2001:db8::11", "2001:db8::11 host tunnel v6 node 1 via 2001:db8::11",
			}},
		"direct: by the node's address of the pods' family, with the tunnel's next hop for node ports": {direct, node("n0", "192.0.2.10", "2001:db8::10"), dual, []string{
			"192.0.2.10 local host", "2001:db8::10 local host",
			"192.0.2.11 host node 1 via 192.0.2.11", "2001:db8::11 host node 1 via 192.0.2.11",
			"10.65.1.0/24 workload pool node 1 via 192.0.2.11", "fd00:65:1::/64 workload pool node 1 via 192.0.2.11",
			"kernel 10.65.1.0/24 via 192.0.2.11", "kernel fd00:65:1::/64 via 2001:db8::11",
		}},
		"a family that is switched off is not there": {func(o *Options) { o.IPv6 = false }, node("n0", "192.0.2.10", "2001:db8::10"), dual, []string{
			"192.0.2.10 local host", "192.0.2.11 host tunnel node 1 via 192.0.2.11",
			"10.65.1.0/24 workload pool tunnel node 1 via 192.0.2.11", "kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink",
		}},
		"a CIDR with host bits set is taken as its network": {func(*Options) {}, node("n0", "192.0.2.10"), node("n1", "192.0.2.11", "10.65.1.7/24"), []string{
			"192.0.2.10 local host", "192.0.2.11 host tunnel node 1 via 192.0.2.11",
			"10.65.1.0/24 workload pool tunnel node 1 via 192.0.2.11", "kernel 10.65.1.0/24 via 169.254.1.2 dev vxlan.calico onlink",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.edit)
			f.set(c.own, c.node)
			f.want(c.want...)
			f.wantProblems()
			f.remove("n1")
			var own []string
			for _, l := range c.want {
				if strings.Contains(l, "local") {
					own = append(own, l)
				}
			}
			f.want(own...)
		})
	}
}

func TestTheOrderInWhichNodesArriveDoesNotMatter(t *testing.T) {
	own, n1, n2 := node("n0", "2001:db8::10", "10.65.0.0/24"), node("n1", "192.0.2.11", "2001:db8::11", "10.65.1.0/24"), node("n2", "2001:db8::12", "10.65.2.0/24")
	all := newFixture(t)
	all.set(own, n1, n2)
	single := newFixture(t)
	single.set(n1)
	single.set(n2)
	single.set(own)
	single.want(all.describe()...)
}

func TestTheTunnelsGatewaysAreNeighboursFromTheStart(t *testing.T) {
	f := newFixture(t)
	f.set()
	if len(f.neigh) != 2 || f.neigh[NeighbourKey{TunnelInterface, TunnelGateway4}] != TunnelMAC || f.neigh[NeighbourKey{TunnelInterface, TunnelGateway6}] != TunnelMAC {
		t.Errorf("%v", f.neigh)
	}
	f = newFixture(t, direct)
	f.set()
	if len(f.neigh) != 0 {
		t.Errorf("without overlay: %v", f.neigh)
	}
}

func TestALocalEndpointHasRouteKernelRouteAndNeighbour(t *testing.T) {
	f := newFixture(t)
	f.endpoint("a", 1, "cali1", "10.65.0.2", "fd00:65::2")
	f.want("10.65.0.2 local workload pool if 7 slot 3", "fd00:65::2 local workload pool if 7 slot 3",
		"kernel 10.65.0.2 dev cali1", "kernel fd00:65::2 dev cali1",
		"neighbour 10.65.0.2 02:00:00:00:00:61 dev cali1", "neighbour fd00:65::2 02:00:00:00:00:61 dev cali1")
	if !f.delta.RoutesChanged() {
		t.Error("remembered forwarding decisions would stay")
	}
	f.endpoint("a", 1, "cali1", "10.65.0.2", "fd00:65::2")
	if !f.delta.Empty() {
		t.Errorf("the same again: %+v", f.delta)
	}
	f.endpoint("a", 1, "cali2", "10.65.0.2")
	f.want("10.65.0.2 local workload pool if 7 slot 3", "kernel 10.65.0.2 dev cali2", "neighbour 10.65.0.2 02:00:00:00:00:61 dev cali2")
	f.take(f.calc.DeleteEndpoint("a"))
	f.want()
	f.take(f.calc.DeleteEndpoint("a"))
}

func TestOfTwoEndpointsWithOneAddressTheOlderKeepsItUntilItGoes(t *testing.T) {
	f := newFixture(t)
	f.endpoint("young", 20, "cali2", "10.65.0.2")
	f.endpoint("old", 10, "cali1", "10.65.0.2")
	f.wantProblems("workloadendpoint young: addresses[0]: 10.65.0.2 is not used: it belongs to pod default/pod-old (endpoint old)")
	if len(f.delta.Problems) != 1 {
		t.Errorf("new problems: %v", f.delta.Problems)
	}
	if f.kernel[single(ip("10.65.0.2"))].Interface != "cali1" || len(f.neigh) != 3 {
		t.Errorf("%v %v", f.kernel, f.neigh)
	}
	f.take(f.calc.DeleteEndpoint("old"))
	f.wantProblems()
	if f.kernel[single(ip("10.65.0.2"))].Interface != "cali2" {
		t.Errorf("%v", f.kernel)
	}
}

func TestAPodMayNotTakeTheNodesOwnAddress(t *testing.T) {
	f := newFixture(t)
	f.set(node("n0", "192.0.2.10"))
	f.endpoint("a", 1, "cali1", "192.0.2.10")
	f.want("192.0.2.10 local host")
	f.wantProblems("workloadendpoint a: addresses[0]: 192.0.2.10 is not used: it belongs to this node")
}

func TestTheOwnNodeObjectsDeletionChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.set(node("n0", "192.0.2.10", "10.65.0.0/24"), node("n1", "192.0.2.11", "10.65.1.0/24"))
	before, own := f.describe(), f.calc.Own()
	f.remove("n0")
	f.want(before...)
	if !f.delta.Empty() || !f.calc.Own().Deleting || f.calc.Own().IPv4 != own.IPv4 {
		t.Errorf("%+v, %+v", f.delta, f.calc.Own())
	}
	f.set(node("n0"))
	f.want(before...)
	if f.calc.Own().Deleting {
		t.Error("it has come back")
	}
	f.set(node("n0", "192.0.2.20", "10.65.0.0/24"))
	if f.calc.Own().IPv4 != ip("192.0.2.20") {
		t.Errorf("a new address is not taken: %+v", f.calc.Own())
	}
}

func TestWithoutNodeObjectTheHostsAddressesServe(t *testing.T) {
	f := newFixture(t)
	f.take(f.calc.SetHostAddresses([]netip.Addr{ip("127.0.0.1"), ip("fe80::1"), ip("192.0.2.10"), ip("198.51.100.10"), ip("2001:db8::10"), ip("169.254.1.4")}))
	f.want("192.0.2.10 local host", "198.51.100.10 local host", "2001:db8::10 local host")
	own := f.calc.Own()
	if own.IPv4 != ip("192.0.2.10") || own.IPv6 != ip("2001:db8::10") || own.Underlay != own.IPv4 {
		t.Errorf("%+v", own)
	}
	f.take(f.calc.SetHostAddresses([]netip.Addr{ip("192.0.2.10")}))
	f.want("192.0.2.10 local host")
}

func TestTheChosenNodeAddress(t *testing.T) {
	for name, c := range map[string]struct {
		node   *model.Node
		v4, v6 string
	}{
		"is an internal one before an external one": {node("n0", "+203.0.113.1", "192.0.2.10"), "192.0.2.10", ""},
		"is external if there is no other":          {node("n0", "+203.0.113.1"), "203.0.113.1", ""},
		"is never link-local":                       {node("n0", "fe80::10", "fd00::10", "2001:db8::10", "169.254.7.7"), "", "fd00::10"},
		"is the first one":                          {node("n0", "192.0.2.10", "192.0.2.11"), "192.0.2.10", ""},
		"is never a loopback":                       {node("n0", "127.0.0.1", "::1"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(c.node)
			own := f.calc.Own()
			for _, a := range []struct {
				got  netip.Addr
				want string
			}{{own.IPv4, c.v4}, {own.IPv6, c.v6}} {
				if (a.want == "") == a.got.IsValid() || (a.want != "" && a.got != ip(a.want)) {
					t.Errorf("%+v, want %q %q", own, c.v4, c.v6)
				}
			}
		})
	}
}

func TestANodeThatCanNotBeReachedIsAProblem(t *testing.T) {
	f := newFixture(t)
	f.set(node("n0", "192.0.2.10"), node("n1", "2001:db8::11", "10.65.1.0/24"), node("n2", "10.65.2.0/24"))
	f.wantProblems("node n1: spec.podCIDRs[0]: 10.65.1.0/24 can not be tunnelled to: the node has no address in the underlay's family",
		"node n2: spec.podCIDRs[0]: 10.65.2.0/24 can not be tunnelled to: the node has no address in the underlay's family")
	f = newFixture(t, direct)
	f.set(node("n0", "192.0.2.10"), node("n1", "192.0.2.11", "fd00:65:1::/64"))
	f.wantProblems("node n1: spec.podCIDRs[0]: fd00:65:1::/64 can not be routed to: the node has no IPv6 address")
	f.set(node("n1", "192.0.2.11", "2001:db8::11", "fd00:65:1::/64"))
	f.wantProblems()
}

func TestOverlappingPodCIDRsBelongToTheOlderNodeUntilItGoes(t *testing.T) {
	for name, cidr := range map[string]string{"the same": "10.65.1.0/24", "a larger one": "10.65.0.0/16", "a smaller one": "10.65.1.128/25"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			old, young := node("old", "192.0.2.12", "10.65.1.0/24"), node("young", "192.0.2.11", cidr)
			young.Created = time.Unix(200, 0)
			f.set(node("n0", "192.0.2.10"), young)
			f.wantProblems()
			f.set(old)
			if len(f.calc.Problems()) != 1 || f.calc.Problems()[0].Name.Name != "young" || len(f.delta.Problems) != 1 {
				t.Errorf("%v", f.calc.Problems())
			}
			if v := f.routes[netip.MustParsePrefix("10.65.1.0/24")]; v.NextHop != ip("192.0.2.12") {
				t.Errorf("%+v", v)
			}
			if _, there := f.routes[netip.MustParsePrefix(cidr)]; there && cidr != "10.65.1.0/24" {
				t.Errorf("both are programmed: %v", f.describe())
			}
			f.remove("old")
			f.wantProblems()
			if v := f.routes[netip.MustParsePrefix(cidr)]; v.NextHop != ip("192.0.2.11") {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestTwoNodesWithOneAddress(t *testing.T) {
	f := newFixture(t)
	young := node("young", "192.0.2.11")
	young.Created = time.Unix(200, 0)
	f.set(node("n0", "192.0.2.10"), young, node("old", "192.0.2.11"))
	f.wantProblems("node young: status.addresses: 192.0.2.11 is not used: it belongs to node old")
}

func TestNodeIDsAreKeptOverUpdatesAndRestarts(t *testing.T) {
	f := newFixture(t)
	f.set(node("n0", "192.0.2.10"), node("n1", "192.0.2.11"), node("n2", "192.0.2.12", "10.65.2.0/24"))
	f.set(node("n1", "192.0.2.11", "2001:db8::11"))
	f.remove("n1")
	id := f.routes[single(ip("192.0.2.12"))].NodeID
	again := newFixture(t)
	var seed []Route
	for p, v := range f.routes {
		seed = append(seed, Route{p, v})
	}
	again.calc.Seed(seed)
	again.set(node("n3", "192.0.2.13"), node("n0", "192.0.2.10"), node("n2", "192.0.2.12", "10.65.2.0/24"))
	if got := again.routes[single(ip("192.0.2.12"))].NodeID; got != id {
		t.Errorf("id %d became %d", id, got)
	}
	if got := again.routes[single(ip("192.0.2.13"))].NodeID; got == id || got == 0 {
		t.Errorf("the new node has id %d", got)
	}
}

func TestAChangeOfOneNodeAmong5000TouchesOnlyItsRoutes(t *testing.T) {
	f := newFixture(t)
	f.calc.Apply([]model.Change{model.Updated(node("n0", "192.0.2.10"))})
	var changes []model.Change
	for i := range 5000 {
		changes = append(changes, model.Updated(node(fmt.Sprintf("m%d", i), fmt.Sprintf("172.16.%d.%d", i/250, i%250), fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))))
	}
	start := time.Now()
	f.calc.Apply(changes)
	t.Logf("5000 nodes from empty: %v", time.Since(start))
	d := f.calc.Apply([]model.Change{model.Updated(node("m77", "172.16.99.99", "10.0.77.0/24"))})
	if len(d.Routes) != 2 || len(d.DeleteRoutes) != 1 || len(d.KernelRoutes) != 0 || len(d.DeleteKernel) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestRandomHistoriesEndAsIfBuiltFromScratch(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		overlay := []func(*Options){func(*Options) {}, direct}[seed%2]
		f := newFixture(t, overlay)
		nodes := map[string]*model.Node{}
		eps := map[string]LocalEndpoint{}
		f.set(node("n0", "192.0.2.10", "2001:db8::10", "10.65.0.0/24"))
		for range 40 {
			switch name := fmt.Sprintf("n%d", 1+rng.IntN(4)); rng.IntN(4) {
			case 0, 1:
				n := node(name)
				n.Created = time.Unix(int64(rng.IntN(3)), 0)
				for _, w := range []string{"192.0.2.1%d", "2001:db8::1%d"} {
					if rng.IntN(3) > 0 {
						n.Addresses = append(n.Addresses, model.NodeAddress{Type: model.NodeInternalIP, Addr: ip(fmt.Sprintf(w, 1+rng.IntN(4)))})
					}
				}
				for _, w := range []string{"10.65.%d.0/24", "10.65.%d.128/25", "10.65.%d.0/16", "fd00:65:%d::/64"} {
					if rng.IntN(3) == 0 {
						n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(fmt.Sprintf(w, rng.IntN(4))))
					}
				}
				nodes[name] = n
				f.set(n)
			case 2:
				delete(nodes, name)
				f.remove(name)
			case 3:
				id := string(rune('a' + rng.IntN(3)))
				if rng.IntN(3) == 0 {
					delete(eps, id)
					f.take(f.calc.DeleteEndpoint(id))
					break
				}
				e := LocalEndpoint{&model.WorkloadEndpoint{
					ID: id, HostInterface: "cali" + id, PodMAC: model.MAC{2, 0, 0, 0, 0, id[0]}, Created: time.Unix(int64(rng.IntN(3)), 0),
					Addresses: []netip.Addr{ip(fmt.Sprintf("10.65.0.%d", 1+rng.IntN(3)))},
				}, uint32(rng.IntN(2)), 1}
				eps[id] = e
				f.take(f.calc.SetEndpoint(e))
			}
		}
		fresh := newFixture(t, overlay)
		var seedRoutes []Route
		for p, v := range f.routes {
			seedRoutes = append(seedRoutes, Route{p, v})
		}
		fresh.calc.Seed(seedRoutes)
		fresh.calc.ids = f.calc.ids // ids depend on history
		fresh.set(node("n0", "192.0.2.10", "2001:db8::10", "10.65.0.0/24"))
		for _, n := range nodes {
			fresh.set(n)
		}
		for _, e := range eps {
			fresh.take(fresh.calc.SetEndpoint(e))
		}
		if got, want := f.describe(), fresh.describe(); !slices.Equal(got, want) {
			t.Fatalf("history %d:\n  %s\nfrom scratch:\n  %s", seed, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		if got, want := f.calc.Problems(), fresh.calc.Problems(); !slices.Equal(got, want) {
			t.Fatalf("history %d: problems\n%v\nfrom scratch:\n%v", seed, got, want)
		}
	}
}

// The C side has the flags' values; this package must say the same.
func TestFlagsAreThoseOfTheDatapath(t *testing.T) {
	source, err := os.ReadFile("../../bpf-c/types.h")
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]Flags{}
	for _, m := range regexp.MustCompile(`(CALI_RT_\w+)\s*=\s*1 << (\d+)`).FindAllStringSubmatch(string(source), -1) {
		n, _ := strconv.Atoi(m[2])
		c[m[1]] = 1 << n
	}
	for name, v := range map[string]Flags{
		"CALI_RT_LOCAL": Local, "CALI_RT_WORKLOAD": Workload, "CALI_RT_HOST": HostAddr, "CALI_RT_POOL": Pool, "CALI_RT_TUNNELED": Tunneled,
		"CALI_RT_NEXT_HOP_V6": NextHopV6,
	} {
		if c[name] != v {
			t.Errorf("%s is %#x in types.h, %#x here", name, c[name], v)
		}
	}
}
