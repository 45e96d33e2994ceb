// SPDX-License-Identifier: Apache-2.0

package derive

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// fixture applies changes to a deriver and keeps the derived slices.
type fixture struct {
	t       *testing.T
	deriver *Deriver
	slices  map[model.ObjectName]*model.EndpointSlice
	last    []model.Change
}

func newFixture(t *testing.T) *fixture {
	return &fixture{t: t, deriver: New(), slices: map[model.ObjectName]*model.EndpointSlice{}}
}

func (f *fixture) apply(changes ...model.Change) {
	f.last = f.deriver.Apply(changes)
	for _, ch := range f.last {
		if ch.Object == nil {
			delete(f.slices, ch.Name)
		} else {
			f.slices[ch.Name] = ch.Object.(*model.EndpointSlice)
		}
	}
}

func (f *fixture) set(objects ...model.Object) {
	var changes []model.Change
	for _, o := range objects {
		changes = append(changes, model.Updated(o))
	}
	f.apply(changes...)
}

func (f *fixture) remove(o model.Object) { f.apply(model.Deleted(o.Kind(), o.ObjectName())) }

// describe writes the slices, one line for each.
func (f *fixture) describe() []string {
	var out []string
	for _, s := range f.slices {
		line := s.Name.Name + ":"
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s=%d", p.Name, p.Port)
		}
		for _, e := range s.Endpoints {
			line += " " + e.Addr.String()
			for _, c := range []struct {
				on   bool
				name string
			}{{!e.Ready, "unready"}, {!e.Ready && e.Serving, "serving"}, {e.Terminating, "terminating"}} {
				if c.on {
					line += "," + c.name
				}
			}
		}
		out = append(out, line)
	}
	sort.Strings(out)
	return out
}

func (f *fixture) want(lines ...string) {
	f.t.Helper()
	sort.Strings(lines)
	if got := f.describe(); !slices.Equal(got, lines) {
		f.t.Errorf("slices:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

func svc(edit ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Name: model.ObjectName{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Selector: map[string]string{"app": "web"},
		Ports:    []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, TargetPort: model.PortRef{Number: 8080}}},
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

func pod(name, addr string, edit ...func(*model.Pod)) *model.Pod {
	p := &model.Pod{
		Name: model.ObjectName{Namespace: "default", Name: name}, Labels: map[string]string{"app": "web", "x": "y"}, Node: "n1",
		Phase: model.PodRunning, Ready: true, IPs: []netip.Addr{netip.MustParseAddr(addr)},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func portNamed(name string, number uint16) func(*model.Pod) {
	return func(p *model.Pod) {
		p.Ports = append(p.Ports, model.ContainerPort{Name: name, Port: number, Protocol: model.TCP})
	}
}

func target(name string) func(*model.Service) {
	return func(s *model.Service) { s.Ports[0].TargetPort = model.PortRef{Name: name} }
}

func TestDerivedSlices(t *testing.T) {
	for name, c := range map[string]struct {
		objects []model.Object
		want    []string
	}{
		"selected pods are endpoints": {
			[]model.Object{svc(), pod("a", "10.65.0.1"), pod("b", "10.65.0.2")}, []string{"web-derived-ipv4: http=8080 10.65.0.1 10.65.0.2"},
		},
		"pods of another namespace, with other labels or without address are not": {
			[]model.Object{
				svc(), pod("a", "10.65.0.1", func(p *model.Pod) { p.Name.Namespace = "other" }),
				pod("b", "10.65.0.2", func(p *model.Pod) { p.Labels = map[string]string{"app": "db"} }), pod("c", "10.65.0.3", func(p *model.Pod) { p.IPs = nil }),
			}, nil,
		},
		"pods that have ended are not": {
			[]model.Object{
				svc(), pod("a", "10.65.0.1", func(p *model.Pod) { p.Phase = model.PodSucceeded }),
				pod("b", "10.65.0.2", func(p *model.Pod) { p.Phase = model.PodFailed }),
			}, nil,
		},
		"a pod that is not ready is listed as such": {
			[]model.Object{svc(), pod("a", "10.65.0.1", func(p *model.Pod) { p.Ready = false })}, []string{"web-derived-ipv4: http=8080 10.65.0.1,unready"},
		},
		"a ready pod that terminates still serves": {
			[]model.Object{svc(), pod("a", "10.65.0.1", func(p *model.Pod) { p.Deleting = true })},
			[]string{"web-derived-ipv4: http=8080 10.65.0.1,unready,serving,terminating"},
		},
		"publishNotReadyAddresses makes every pod ready": {
			[]model.Object{
				svc(func(s *model.Service) { s.PublishNotReadyAddresses = true }), pod("a", "10.65.0.1", func(p *model.Pod) { p.Ready = false }),
				pod("b", "10.65.0.2", func(p *model.Pod) { p.Deleting = true }),
			}, []string{"web-derived-ipv4: http=8080 10.65.0.1 10.65.0.2,terminating"},
		},
		"without target port the port itself": {
			[]model.Object{svc(func(s *model.Service) { s.Ports[0].TargetPort = model.PortRef{} }), pod("a", "10.65.0.1")},
			[]string{"web-derived-ipv4: http=80 10.65.0.1"},
		},
		"a named target port is the pod's": {
			[]model.Object{svc(target("www")), pod("a", "10.65.0.1", portNamed("www", 8081))}, []string{"web-derived-ipv4: http=8081 10.65.0.1"},
		},
		"a name of another protocol does not count": {
			[]model.Object{svc(target("www")), pod("a", "10.65.0.1", func(p *model.Pod) {
				p.Ports = []model.ContainerPort{{Name: "www", Port: 1, Protocol: model.UDP}, {Name: "www", Port: 2, Protocol: model.TCP}}
			})}, []string{"web-derived-ipv4: http=2 10.65.0.1"},
		},
		"a name with several numbers makes several slices, without it a pod is in none": {
			[]model.Object{
				svc(target("www")), pod("a", "10.65.0.1", portNamed("www", 9000)), pod("b", "10.65.0.2", portNamed("www", 8000)),
				pod("c", "10.65.0.3", portNamed("www", 9000)), pod("d", "10.65.0.4"),
			}, []string{"web-derived-ipv4: http=8000 10.65.0.2", "web-derived-ipv4-2: http=9000 10.65.0.1 10.65.0.3"},
		},
		"dual stack has a slice for each family": {
			[]model.Object{
				svc(func(s *model.Service) { s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd96::1")) }),
				pod("a", "10.65.0.1", func(p *model.Pod) { p.IPs = append(p.IPs, netip.MustParseAddr("fd65::1")) }), pod("b", "10.65.0.2"),
			}, []string{"web-derived-ipv4: http=8080 10.65.0.1 10.65.0.2", "web-derived-ipv6: http=8080 fd65::1"},
		},
		"a service without selector gets none":  {[]model.Object{svc(func(s *model.Service) { s.Selector = nil }), pod("a", "10.65.0.1")}, nil},
		"a headless service gets none":          {[]model.Object{svc(func(s *model.Service) { s.Headless, s.ClusterIPs = true, nil }), pod("a", "10.65.0.1")}, nil},
		"an ExternalName gets none":             {[]model.Object{svc(func(s *model.Service) { s.Type = model.ExternalName }), pod("a", "10.65.0.1")}, nil},
		"a service with a given slice has none": {[]model.Object{svc(), pod("a", "10.65.0.1"), given("mine", "web")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.set(c.objects...)
			f.want(c.want...)
			// The order in which the objects come makes no difference.
			f = newFixture(t)
			slices.Reverse(c.objects)
			for _, o := range c.objects {
				f.set(o)
			}
			f.want(c.want...)
			for _, o := range c.objects {
				f.remove(o)
			}
			f.want()
			if len(f.deriver.services) != 0 {
				t.Errorf("services are remembered: %v", f.deriver.services)
			}
		})
	}
}

func given(name, svc string) *model.EndpointSlice {
	return &model.EndpointSlice{Name: model.ObjectName{Namespace: "default", Name: name}, Service: model.ObjectName{Namespace: "default", Name: svc}}
}

func TestDerivedSlicesComeBackWhenTheGivenOneGoes(t *testing.T) {
	f := newFixture(t)
	f.set(svc(), pod("a", "10.65.0.1"))
	f.set(given("mine", "web"))
	f.want()
	f.set(given("mine", "other"))
	f.want("web-derived-ipv4: http=8080 10.65.0.1")
}

func TestAPodThatLosesItsLabelLeaves(t *testing.T) {
	f := newFixture(t)
	f.set(svc(), pod("a", "10.65.0.1"), pod("b", "10.65.0.2"))
	f.set(pod("a", "10.65.0.1", func(p *model.Pod) { p.Labels = nil }))
	f.want("web-derived-ipv4: http=8080 10.65.0.2")
}

func TestNothingIsSentWhenNothingChanges(t *testing.T) {
	f := newFixture(t)
	f.set(svc(), pod("a", "10.65.0.1"))
	f.set(svc(), pod("a", "10.65.0.1"), pod("other", "10.65.0.9", func(p *model.Pod) { p.Labels = nil }))
	if len(f.last) != 0 {
		t.Errorf("%v", f.last)
	}
}

func TestEndpointsCarryNodeZonePodAndWeight(t *testing.T) {
	f := newFixture(t)
	f.set(svc(), pod("a", "10.65.0.1", func(p *model.Pod) { p.Annotations = map[string]string{model.AnnotationWeight: "7"} }),
		pod("b", "10.65.0.2", func(p *model.Pod) { p.Annotations = map[string]string{model.AnnotationWeight: "lots"} }),
		&model.Node{Name: "n1", Zone: "z1"})
	want := []model.Endpoint{
		{Addr: netip.MustParseAddr("10.65.0.1"), Ready: true, Serving: true, Node: "n1", Zone: "z1", Pod: model.ObjectName{Namespace: "default", Name: "a"}, Weight: 7},
		{Addr: netip.MustParseAddr("10.65.0.2"), Ready: true, Serving: true, Node: "n1", Zone: "z1", Pod: model.ObjectName{Namespace: "default", Name: "b"}},
	}
	s := f.slices[SliceName(svc().Name, model.IPv4, 1)]
	if diff := cmp.Diff(want, s.Endpoints, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if problems := s.Validate(); problems != nil {
		t.Errorf("the derived slice is not valid: %v", problems)
	}
	f.set(&model.Node{Name: "n1", Zone: "z2"})
	if z := f.slices[s.Name].Endpoints[0].Zone; z != "z2" {
		t.Errorf("zone %q after the node has moved", z)
	}
}

func TestRandomHistoriesEndAsIfDerivedFromScratch(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := newFixture(t)
		world := map[string]model.Object{}
		for range 60 {
			var o model.Object
			switch rng.IntN(4) {
			case 0:
				o = svc(func(s *model.Service) {
					s.Name.Name = fmt.Sprintf("s%d", rng.IntN(3))
					s.Selector = map[string]string{"app": fmt.Sprintf("a%d", rng.IntN(2))}
					s.Ports[0].TargetPort = model.PortRef{Name: []string{"", "www"}[rng.IntN(2)]}
				})
			case 1, 2:
				o = pod(fmt.Sprintf("p%d", rng.IntN(6)), fmt.Sprintf("10.65.0.%d", rng.IntN(9)), portNamed("www", uint16(8000+rng.IntN(2))), func(p *model.Pod) {
					p.Labels = map[string]string{"app": fmt.Sprintf("a%d", rng.IntN(2))}
					p.Ready = rng.IntN(2) == 0
				})
			case 3:
				o = given(fmt.Sprintf("g%d", rng.IntN(2)), fmt.Sprintf("s%d", rng.IntN(3)))
			}
			key := string(o.Kind()) + o.ObjectName().String()
			if rng.IntN(4) == 0 {
				delete(world, key)
				f.remove(o)
			} else {
				world[key] = o
				f.set(o)
			}
		}
		fresh := newFixture(t)
		for _, o := range world {
			fresh.set(o)
		}
		if got, want := f.describe(), fresh.describe(); !slices.Equal(got, want) {
			t.Fatalf("history %d:\n  %s\nfrom scratch:\n  %s", seed, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}
