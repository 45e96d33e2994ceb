// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// fixture is a calculator of node n0 in zone z0 with the maps it fills.
type fixture struct {
	t     *testing.T
	calc  *Calculator
	maps  *simMaps
	delta Delta // the last one
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, maps: newSimMaps()}
	f.calc = New(Options{NodeName: "n0", Zone: "z0", ExternalIPs: true, Addresses: addrs("192.0.2.10", "2001:db8::10")})
	f.calc.Synced()
	return f
}

func (f *fixture) take(d Delta) {
	f.t.Helper()
	f.delta = d
	for _, o := range d.ops() {
		o.do(f.maps)
	}
	if err := f.maps.same(f.calc); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) set(objects ...model.Object) {
	f.t.Helper()
	var changes []model.Change
	for _, o := range objects {
		changes = append(changes, model.Updated(o))
	}
	f.take(f.calc.Apply(changes))
}

func (f *fixture) remove(o model.Object) {
	f.t.Helper()
	f.take(f.calc.Apply([]model.Change{model.Deleted(o.Kind(), o.ObjectName())}))
}

// frontends describes the frontend maps, one line for each entry: key, flags, counts.
func (f *fixture) frontends() []string {
	var out []string
	for k, v := range f.maps.frontends {
		s := k.String()
		for _, fl := range []struct {
			flag Flags
			name string
		}{{External, "external"}, {IsNodePort, "nodeport"}, {ETPLocal, "etp-local"}, {ITPLocal, "itp-local"}, {DropNoLocal, "drop"}} {
			if v.Flags&fl.flag != 0 {
				s += " " + fl.name
			}
		}
		s += fmt.Sprintf(" %d+%d", v.ClusterCount, v.LocalCount)
		if v.AffinityTimeout != 0 {
			s += fmt.Sprintf(" sticky %d s", v.AffinityTimeout)
		}
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}

func (f *fixture) wantFrontends(want ...string) {
	f.t.Helper()
	sort.Strings(want)
	if got := f.frontends(); !slices.Equal(got, want) {
		f.t.Errorf("frontends:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// list returns the backends of a frontend's cluster or local list, in order.
func (f *fixture) list(frontend string, local bool) []string {
	f.t.Helper()
	for k, v := range f.maps.frontends {
		if k.String() != frontend {
			continue
		}
		n, bit := v.ClusterCount, ClusterList
		if local {
			n, bit = v.LocalCount, LocalList
		}
		out := []string{}
		for i := range n {
			be := f.maps.backends[BackendKey{k.Family(), v.ServiceID, bit | i}]
			out = append(out, be.addrPort().String())
		}
		return out
	}
	f.t.Fatalf("no frontend %s among %v", frontend, f.frontends())
	return nil
}

func (f *fixture) wantList(frontend string, local bool, want ...string) {
	f.t.Helper()
	got := f.list(frontend, local)
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("%s: backends %v (local %v), want %v", frontend, got, local, want)
	}
}

func (f *fixture) id(frontend string) uint32 {
	f.t.Helper()
	for k, v := range f.maps.frontends {
		if k.String() == frontend {
			return v.ServiceID
		}
	}
	f.t.Fatalf("no frontend %s among %v", frontend, f.frontends())
	return 0
}

func web(edit ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Name: model.ObjectName{Namespace: "default", Name: "web"}, Type: model.ClusterIP, Created: time.Unix(100, 0),
		ClusterIPs: addrs("10.96.0.1"), Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

func named(name string) func(*model.Service) {
	return func(s *model.Service) { s.Name.Name = name }
}

// slice makes a slice of service web from endpoints like "10.65.0.1@n1 terminating".
func slice(name string, endpoints ...string) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "default", Name: name}, Service: model.ObjectName{Namespace: "default", Name: "web"},
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		at, node, _ := strings.Cut(words[0], "@")
		e := model.Endpoint{Addr: netip.MustParseAddr(at), Node: node, Ready: true, Serving: true}
		for _, w := range words[1:] {
			switch kind, value, _ := strings.Cut(w, "="); kind {
			case "unready":
				e.Ready, e.Serving = false, false
			case "terminating":
				e.Ready, e.Terminating = false, true
			case "zone":
				e.ZoneHints = append(e.ZoneHints, value)
			case "node":
				e.NodeHints = append(e.NodeHints, value)
			}
		}
		s.Family = model.FamilyOf(e.Addr)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func TestWhichServicesAreProgrammed(t *testing.T) {
	label := func(k, v string) func(*model.Service) {
		return func(s *model.Service) { s.Labels = map[string]string{k: v} }
	}
	for name, c := range map[string]struct {
		svc  *model.Service
		want bool
	}{
		"a ClusterIP service is":                                    {web(), true},
		"a headless service is not":                                 {web(func(s *model.Service) { s.ClusterIPs, s.Headless = nil, true }), false},
		"a service that has no address yet is not":                  {web(func(s *model.Service) { s.ClusterIPs = nil }), false},
		"an ExternalName is not":                                    {web(func(s *model.Service) { s.Type = model.ExternalName }), false},
		"a service of another proxy is not":                         {web(label(model.LabelServiceProxyName, "mesh")), false},
		"a service with an empty proxy name is not":                 {web(label(model.LabelServiceProxyName, "")), false},
		"a service labelled headless is not":                        {web(label(model.LabelHeadless, "")), false},
		"a service with other labels is":                            {web(label("app", "web")), true},
		"a port without number is left out":                         {web(func(s *model.Service) { s.Ports[0].Port = 0 }), false},
		"an SCTP service is":                                        {web(func(s *model.Service) { s.Ports[0].Protocol = model.SCTP }), true},
		"a service without endpoints is, so that it can be refused": {web(), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(c.svc)
			if got := len(f.maps.frontends) > 0; got != c.want {
				t.Errorf("programmed: %v, want %v", got, c.want)
			}
		})
	}
}

func TestRemovingTheProxyLabelProgramsTheServiceAgain(t *testing.T) {
	f := newFixture(t)
	f.set(web(func(s *model.Service) { s.Labels = map[string]string{model.LabelServiceProxyName: "x"} }), slice("a", "10.65.0.1@n0"))
	f.wantFrontends()
	f.set(web())
	f.wantFrontends("10.96.0.1:80/TCP 1+0")
	f.set(web(func(s *model.Service) { s.Labels = map[string]string{model.LabelServiceProxyName: "x"} }))
	f.wantFrontends()
	if len(f.maps.backends) != 0 {
		t.Errorf("backends left: %v", f.maps.backends)
	}
}

func TestASliceLabelledHeadlessIsNotUsed(t *testing.T) {
	f := newFixture(t)
	s := slice("a", "10.65.0.1@n0")
	s.Headless = true
	f.set(web(), s)
	f.wantFrontends("10.96.0.1:80/TCP 0+0")
}

func TestFrontendsOfEachKind(t *testing.T) {
	nodePort := func(s *model.Service) { s.Type, s.Ports[0].NodePort = model.NodePort, 30080 }
	lb := func(mode model.IPMode) func(*model.Service) {
		return func(s *model.Service) {
			s.Type = model.LoadBalancer
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, model.LoadBalancerIP{Addr: netip.MustParseAddr("203.0.113.9"), Mode: mode})
		}
	}
	external := func(s *model.Service) { s.ExternalIPs = addrs("198.51.100.7") }
	dual := func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.1", "fd96::1") }
	for name, c := range map[string]struct {
		svc  *model.Service
		want []string
	}{
		"ClusterIP has one": {web(), []string{"10.96.0.1:80/TCP 1+0"}},
		"NodePort has one for each own address and one for all other nodes": {web(nodePort), []string{
			"10.96.0.1:80/TCP 1+0", "192.0.2.10:30080/TCP external nodeport 1+0", "*:30080/TCP (IPv4) external nodeport 1+0",
		}},
		"an external IP has one":                                                   {web(external), []string{"10.96.0.1:80/TCP 1+0", "198.51.100.7:80/TCP external 1+0"}},
		"a load balancer's address is short-circuited":                             {web(lb("")), []string{"10.96.0.1:80/TCP 1+0", "203.0.113.9:80/TCP external 1+0"}},
		"a load balancer's address with ipMode VIP is":                             {web(lb(model.IPModeVIP)), []string{"10.96.0.1:80/TCP 1+0", "203.0.113.9:80/TCP external 1+0"}},
		"a load balancer's address with ipMode Proxy is left to the load balancer": {web(lb(model.IPModeProxy)), []string{"10.96.0.1:80/TCP 1+0"}},
		"an address that is external and the load balancer's counts once": {
			web(lb(""), func(s *model.Service) { s.ExternalIPs = addrs("203.0.113.9") }),
			[]string{"10.96.0.1:80/TCP 1+0", "203.0.113.9:80/TCP external 1+0"},
		},
		"dual stack: each family by itself, with its own endpoints": {web(dual, nodePort), []string{
			"10.96.0.1:80/TCP 1+0", "192.0.2.10:30080/TCP external nodeport 1+0", "*:30080/TCP (IPv4) external nodeport 1+0",
			"[fd96::1]:80/TCP 0+0", "[2001:db8::10]:30080/TCP external nodeport 0+0", "*:30080/TCP (IPv6) external nodeport 0+0",
		}},
		"external traffic policy Local marks external frontends only": {
			web(external, func(s *model.Service) { s.ExternalTrafficPolicy = model.PolicyLocal }),
			[]string{"10.96.0.1:80/TCP 1+1", "198.51.100.7:80/TCP external etp-local 1+1"},
		},
		"internal traffic policy Local marks the cluster IP only": {
			web(external, func(s *model.Service) { s.InternalTrafficPolicy = model.PolicyLocal }),
			[]string{"10.96.0.1:80/TCP itp-local 1+1", "198.51.100.7:80/TCP external 1+1"},
		},
		"client affinity has the default timeout of three hours": {
			web(func(s *model.Service) { s.SessionAffinity = model.AffinityClientIP }), []string{"10.96.0.1:80/TCP 1+0 sticky 10800 s"},
		},
		"client affinity has the timeout that is set": {
			web(func(s *model.Service) { s.SessionAffinity, s.AffinityTimeout = model.AffinityClientIP, time.Minute }),
			[]string{"10.96.0.1:80/TCP 1+0 sticky 60 s"},
		},
		"the same number with two protocols is two service ports": {
			web(func(s *model.Service) {
				s.Ports = append(s.Ports, model.ServicePort{Name: "quic", Protocol: model.UDP, Port: 80})
			}), []string{"10.96.0.1:80/TCP 1+0", "10.96.0.1:80/UDP 0+0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(slice("a", "10.65.0.1@n0"), c.svc)
			f.wantFrontends(c.want...)
			f.remove(c.svc)
			f.wantFrontends()
			if len(f.maps.backends) != 0 {
				t.Errorf("backends left: %v", f.maps.backends)
			}
		})
	}
}

func TestWhichEndpointsAreInWhichList(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints []string
		cluster   []string
		local     []string
		drop      bool
	}{
		"ready ones are in both, local ones in the local list": {
			[]string{"10.65.0.1@n0", "10.65.0.2@n1"}, []string{"10.65.0.1", "10.65.0.2"}, []string{"10.65.0.1"}, false,
		},
		"an endpoint of no known node is not local": {[]string{"10.65.0.1"}, []string{"10.65.0.1"}, nil, true},
		"terminating ones are not used while one is ready": {
			[]string{"10.65.0.1@n0 terminating", "10.65.0.2@n1"}, []string{"10.65.0.2"}, []string{"10.65.0.1"}, false,
		},
		"the local list falls back to terminating ones by itself": {
			[]string{"10.65.0.1@n0 terminating", "10.65.0.2@n1", "10.65.0.3@n0 terminating"}, []string{"10.65.0.2"},
			[]string{"10.65.0.1", "10.65.0.3"}, false,
		},
		"when none is ready the terminating ones serve": {
			[]string{"10.65.0.1@n0 terminating", "10.65.0.2@n1 terminating", "10.65.0.3@n1 unready"},
			[]string{"10.65.0.1", "10.65.0.2"}, []string{"10.65.0.1"}, false,
		},
		"one that neither is ready nor serves is never used":            {[]string{"10.65.0.1@n0 unready"}, nil, nil, false},
		"none here but some elsewhere: traffic from outside is dropped": {[]string{"10.65.0.2@n1"}, []string{"10.65.0.2"}, nil, true},
		"none anywhere: refused, not dropped":                           {nil, nil, nil, false},
		"zone hints choose the zone's": {
			[]string{"10.65.0.1@n0 zone=z0", "10.65.0.2@n1 zone=z1"}, []string{"10.65.0.1"}, []string{"10.65.0.1"}, false,
		},
		"hints are ignored unless every ready endpoint has one": {
			[]string{"10.65.0.1@n0 zone=z0", "10.65.0.2@n1"}, []string{"10.65.0.1", "10.65.0.2"}, []string{"10.65.0.1"}, false,
		},
		"endpoints that are not ready need no hint": {
			[]string{"10.65.0.1@n0 zone=z0", "10.65.0.2@n1 unready", "10.65.0.3@n1 zone=z1"}, []string{"10.65.0.1"}, []string{"10.65.0.1"}, false,
		},
		"no endpoint for this zone: all zones": {
			[]string{"10.65.0.1@n1 zone=z1", "10.65.0.2@n1 zone=z1"}, []string{"10.65.0.1", "10.65.0.2"}, nil, true,
		},
		"node hints go before zone hints": {
			[]string{"10.65.0.1@n0 zone=z0 node=n0", "10.65.0.2@n1 zone=z0 node=n1"}, []string{"10.65.0.1"}, []string{"10.65.0.1"}, false,
		},
		"no endpoint for this node: the zone's": {
			[]string{"10.65.0.1@n1 zone=z0 node=n1", "10.65.0.2@n2 zone=z1 node=n2"}, []string{"10.65.0.1"}, nil, true,
		},
		"terminating ones serve whatever their hints": {
			[]string{"10.65.0.1@n1 terminating zone=z1", "10.65.0.2@n2 terminating zone=z0"}, []string{"10.65.0.1", "10.65.0.2"}, nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(web(func(s *model.Service) {
				s.ExternalTrafficPolicy, s.ExternalIPs = model.PolicyLocal, addrs("198.51.100.7")
			}), slice("a", c.endpoints...))
			withPort := func(in []string) (out []string) {
				for _, a := range in {
					out = append(out, a+":8080")
				}
				return out
			}
			f.wantList("198.51.100.7:80/TCP", false, withPort(c.cluster)...)
			f.wantList("198.51.100.7:80/TCP", true, withPort(c.local)...)
			for k, v := range f.maps.frontends {
				if want := c.drop && v.Flags&External != 0; (v.Flags&DropNoLocal != 0) != want {
					t.Errorf("%v: drop when there is no local endpoint: %v, want %v", k, !want, want)
				}
			}
		})
	}
}

func TestTheSameAddressInTwoSlicesCountsOnceAtItsBest(t *testing.T) {
	f := newFixture(t)
	f.set(web(), slice("a", "10.65.0.5@n0 terminating"), slice("b", "10.65.0.5@n1"))
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.5:8080")
	f.set(slice("a", "10.65.0.5@n0"), slice("b", "10.65.0.5@n1 terminating"))
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.5:8080")
}

func TestASliceThatMovesToAnotherServiceLeavesNothingBehind(t *testing.T) {
	f := newFixture(t)
	other := web(named("api"), func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.2") })
	f.set(web(), other, slice("a", "10.65.0.5@n0"))
	moved := slice("a", "10.65.0.5@n0")
	moved.Service.Name = "api"
	f.set(moved)
	f.wantFrontends("10.96.0.1:80/TCP 0+0", "10.96.0.2:80/TCP 1+0")
}

func TestANamedTargetPortMayDifferBetweenEndpoints(t *testing.T) {
	f := newFixture(t)
	other := slice("b", "10.65.0.2@n0")
	other.Ports[0].Port = 9090
	f.set(web(), slice("a", "10.65.0.1@n0"), other)
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.1:8080", "10.65.0.2:9090")
}

func TestRenamingAPortLeavesExactlyTheDesiredEntries(t *testing.T) {
	f := newFixture(t)
	f.set(web(), slice("a", "10.65.0.1@n0", "10.65.0.2@n0"))
	s := slice("a", "10.65.0.1@n0", "10.65.0.2@n0")
	s.Ports[0].Name = "www"
	f.set(web(func(s *model.Service) { s.Ports[0].Name = "www" }), s)
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.1:8080", "10.65.0.2:8080")
	if len(f.maps.backends) != 4 {
		t.Errorf("backends: %v", f.maps.backends)
	}
}

func TestNodePortFrontendsFollowTheNodesAddresses(t *testing.T) {
	f := newFixture(t)
	f.set(web(func(s *model.Service) { s.Ports[0].NodePort = 30080 }), web(named("api"), func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.2") }))
	o := f.calc.opts
	o.Addresses = addrs("192.0.2.11", "127.0.0.1", "169.254.1.4", "::1", "fe80::7")
	f.take(f.calc.SetOptions(o))
	f.wantFrontends("10.96.0.1:80/TCP 0+0", "10.96.0.2:80/TCP 0+0", "192.0.2.11:30080/TCP external nodeport 0+0", "*:30080/TCP (IPv4) external nodeport 0+0")
	if n := len(f.delta.ops()); n != 2 {
		t.Errorf("%d writes for one address that has changed: %+v", n, f.delta)
	}
	o.NodePorts, o.NodePortCIDRs = NodePortCIDRs, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	f.take(f.calc.SetOptions(o))
	f.wantFrontends("10.96.0.1:80/TCP 0+0", "10.96.0.2:80/TCP 0+0", "*:30080/TCP (IPv4) external nodeport 0+0")
	o.NodePorts, o.Primary = NodePortPrimary, addrs("192.0.2.12")
	f.take(f.calc.SetOptions(o))
	f.wantFrontends("10.96.0.1:80/TCP 0+0", "10.96.0.2:80/TCP 0+0", "192.0.2.12:30080/TCP external nodeport 0+0", "*:30080/TCP (IPv4) external nodeport 0+0")
}

func TestTheOwnZoneFollowsTheNodeObjectAndSurvivesItsDeletion(t *testing.T) {
	f := newFixture(t)
	f.set(web(), slice("a", "10.65.0.1@n1 zone=z0", "10.65.0.2@n1 zone=z1"))
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.1:8080")
	own := &model.Node{Name: "n0", Zone: "z1"}
	f.set(own)
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.2:8080")
	f.remove(own)
	f.wantList("10.96.0.1:80/TCP", false, "10.65.0.2:8080")
}
