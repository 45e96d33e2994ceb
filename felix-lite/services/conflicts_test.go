// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

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

func (f *fixture) wantNewProblems(n int) {
	f.t.Helper()
	if len(f.delta.Problems) != n {
		f.t.Errorf("%d new problems, want %d: %v", len(f.delta.Problems), n, f.delta.Problems)
	}
}

func external(list ...string) func(*model.Service) {
	return func(s *model.Service) { s.ExternalIPs = addrs(list...) }
}

func vip(a string) func(*model.Service) {
	return func(s *model.Service) { s.ClusterIPs = addrs(a) }
}

func created(sec int64) func(*model.Service) {
	return func(s *model.Service) { s.Created = time.Unix(sec, 0) }
}

func TestOfTwoServicesWithOneExternalAddressTheOlderHasItUntilItGoes(t *testing.T) {
	f := newFixture(t)
	young := web(named("young"), vip("10.96.0.2"), external("198.51.100.7"), created(200))
	old := web(named("old"), vip("10.96.0.3"), external("198.51.100.7"), created(100))
	f.set(young)
	f.wantProblems()
	f.set(old)
	f.wantNewProblems(1)
	f.wantProblems(`service default/young: spec.ports["http"]: 198.51.100.7:80/TCP is not served: it belongs to service default/old`)
	if got, want := f.id("198.51.100.7:80/TCP"), f.id("10.96.0.3:80/TCP"); got != want {
		t.Errorf("the address belongs to id %d, want %d", got, want)
	}
	f.remove(old)
	f.wantProblems()
	if got, want := f.id("198.51.100.7:80/TCP"), f.id("10.96.0.2:80/TCP"); got != want {
		t.Errorf("the address belongs to id %d, want %d", got, want)
	}
	if len(f.delta.Frontends) != 1 || len(f.delta.DeleteFrontends) != 1 {
		t.Errorf("the address was deleted and written again: %+v", f.delta)
	}
}

func TestServicesOfTheSameAgeAreOrderedByName(t *testing.T) {
	f := newFixture(t)
	f.set(web(named("b"), vip("10.96.0.9")), web(named("a"), vip("10.96.0.9")))
	f.wantProblems(`service default/b: spec.ports["http"]: 10.96.0.9:80/TCP is not served: it belongs to service default/a`)
}

func TestDuplicateNodePortsAreSettledForAllAddressesAtOnce(t *testing.T) {
	f := newFixture(t)
	port := func(s *model.Service) { s.Ports[0].NodePort = 30080 }
	f.set(web(named("young"), vip("10.96.0.2"), port, created(200)), web(named("old"), vip("10.96.0.3"), port))
	for _, k := range []string{"192.0.2.10:30080/TCP", "*:30080/TCP (IPv4)"} {
		if f.id(k) != f.id("10.96.0.3:80/TCP") {
			t.Errorf("%s does not belong to the older service", k)
		}
	}
	f.wantNewProblems(2)
}

func TestAServiceWithoutAnyFrontendHasNoEntries(t *testing.T) {
	f := newFixture(t)
	f.set(web(named("first"), created(1)), web(), slice("a", "10.65.0.1@n0"))
	f.wantFrontends("10.96.0.1:80/TCP 0+0")
	if len(f.maps.backends) != 0 {
		t.Errorf("backends of a service that nobody can reach: %v", f.maps.backends)
	}
	f.remove(web(named("first")))
	f.wantFrontends("10.96.0.1:80/TCP 1+0")
}

func TestAnExternalAddressThatIsSomebodyElsesIsRefusedWhileItIs(t *testing.T) {
	node := &model.Node{Name: "n1", Addresses: []model.NodeAddress{{Type: model.NodeInternalIP, Addr: netip.MustParseAddr("192.0.2.99")}}}
	pod := &model.Pod{Name: model.ObjectName{Namespace: "a", Name: "p"}, IPs: addrs("10.65.0.9"), Phase: model.PodRunning}
	other := web(named("other"), vip("10.96.0.77"))
	other.Ports[0].Port = 443 // another port: there is no conflict over a frontend
	for name, c := range map[string]struct {
		addr  string
		owner model.Object
		text  string
	}{
		"a node's":                       {"192.0.2.99", node, "it is the address of a node"},
		"a pod's":                        {"10.65.0.9", pod, "it is the address of a pod"},
		"another service's, on any port": {"10.96.0.77", other, "it is the address of another service"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(web(external(c.addr)), c.owner)
			f.wantProblems("service default/web: spec.externalIPs[0]: " + c.addr + " is not served: " + c.text)
			f.wantNewProblems(1)
			if slices.ContainsFunc(f.frontends(), func(s string) bool { return strings.HasPrefix(s, c.addr+":80/") }) {
				t.Errorf("it is served: %v", f.frontends())
			}
			f.remove(c.owner)
			f.wantProblems()
			f.wantFrontends("10.96.0.1:80/TCP 0+0", c.addr+":80/TCP external 0+0")
			f.set(c.owner)
			f.wantNewProblems(1)
		})
	}
}

func TestALoadBalancerAddressIsRefusedLikeAnExternalOne(t *testing.T) {
	f := newFixture(t)
	f.set(web(func(s *model.Service) {
		s.LoadBalancerIPs = []model.LoadBalancerIP{{Addr: netip.MustParseAddr("192.0.2.99")}}
	}), &model.Node{Name: "n1", Addresses: []model.NodeAddress{{Type: model.NodeExternalIP, Addr: netip.MustParseAddr("192.0.2.99")}}})
	f.wantProblems("service default/web: status.loadBalancer.ingress[0].ip: 192.0.2.99 is not served: it is the address of a node")
	f.wantFrontends("10.96.0.1:80/TCP 0+0")
}

func TestAHostNetworkOrFinishedPodDoesNotOwnItsAddress(t *testing.T) {
	f := newFixture(t)
	pod := &model.Pod{Name: model.ObjectName{Namespace: "a", Name: "p"}, IPs: addrs("198.51.100.7"), HostNetwork: true}
	f.set(web(external("198.51.100.7")), pod)
	f.wantProblems()
	done := *pod
	done.HostNetwork, done.Phase = false, model.PodSucceeded
	f.set(&done)
	f.wantProblems()
}

func TestWhatTheConfigurationRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Options)
		svc  *model.Service
		want string
	}{
		"external IPs that are disabled": {func(o *Options) { o.ExternalIPs = false }, web(external("198.51.100.7")),
			"spec.externalIPs[0]: 198.51.100.7 is not served: external IPs are disabled"},
		"external IPs outside the allowed CIDRs": {func(o *Options) { o.AllowedExternalCIDRs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/30")} },
			web(external("198.51.100.2", "198.51.100.7")), "spec.externalIPs[1]: 198.51.100.7 is not served: it is in none of the allowed external CIDRs"},
		"external IPs in a service CIDR": {func(o *Options) { o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")} },
			web(external("10.96.200.1")), "spec.externalIPs[0]: 10.96.200.1 is not served: it is in the range of cluster IPs"},
		"addresses that no packet comes in with": {func(*Options) {}, web(external("127.0.0.1")),
			"spec.externalIPs[0]: 127.0.0.1 is not served: not an address that hosts can be reached at"},
		"the wildcard": {func(*Options) {}, web(external("255.255.255.255")),
			"spec.externalIPs[0]: 255.255.255.255 is not served: not an address that hosts can be reached at"},
		"load balancer addresses whose source ranges can not be enforced": {func(*Options) {}, web(func(s *model.Service) {
			s.LoadBalancerIPs = []model.LoadBalancerIP{{Addr: netip.MustParseAddr("203.0.113.9")}}
			s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		}), "status.loadBalancer.ingress[0].ip: 203.0.113.9 is not served: spec.loadBalancerSourceRanges can not be enforced yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			o := f.calc.opts
			c.edit(&o)
			f.take(f.calc.SetOptions(o))
			f.set(c.svc)
			f.wantProblems("service default/web: " + c.want)
			f.remove(c.svc)
			f.wantProblems()
		})
	}
}

func TestSourceRangesThatAllowEverybodyAreNoRestriction(t *testing.T) {
	f := newFixture(t)
	f.set(web(func(s *model.Service) {
		s.LoadBalancerIPs = []model.LoadBalancerIP{{Addr: netip.MustParseAddr("203.0.113.9")}}
		s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	}))
	f.wantProblems()
	f.wantFrontends("10.96.0.1:80/TCP 0+0", "203.0.113.9:80/TCP external 0+0")
}

func TestDisablingExternalIPsTakesThemAway(t *testing.T) {
	f := newFixture(t)
	f.set(web(external("198.51.100.7")))
	o := f.calc.opts
	o.ExternalIPs = false
	f.take(f.calc.SetOptions(o))
	f.wantFrontends("10.96.0.1:80/TCP 0+0")
	f.wantNewProblems(1)
}

func TestAStandingProblemIsReportedOnce(t *testing.T) {
	f := newFixture(t)
	f.set(web(external("127.0.0.1")))
	f.wantNewProblems(1)
	f.set(web(external("127.0.0.1"), func(s *model.Service) { s.Annotations = map[string]string{"x": "y"} }))
	f.wantNewProblems(0)
	f.wantProblems("service default/web: spec.externalIPs[0]: 127.0.0.1 is not served: not an address that hosts can be reached at")
}
