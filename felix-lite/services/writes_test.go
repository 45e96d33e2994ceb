// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// sticky is a service with everything that multiplies writes: affinity, a local list, and f
// frontends.
func sticky(s *model.Service) {
	s.SessionAffinity, s.ExternalTrafficPolicy = model.AffinityClientIP, model.PolicyLocal
	s.ExternalIPs = addrs("198.51.100.7")
	s.Ports[0].NodePort = 30080
}

// udp makes the service's port one of UDP, whose sockets keep their backends.
func udp(s *model.Service) { s.Ports[0].Protocol = model.UDP }

func endpoints(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("10.65.0.%d@n0", i+1))
	}
	return out
}

func TestOneEndpointMoreOrLessCostsThreeBackendWritesAndTheFrontends(t *testing.T) {
	for name, c := range map[string]struct {
		edit          func(*model.Service)
		before, after []string
		backends      int
		deletes       int
		frontends     int
	}{
		"one more":                              {nil, endpoints(5), endpoints(6), 2, 0, 1},
		"one more, with affinity and two lists": {sticky, endpoints(5), endpoints(6), 3, 0, 4},
		"the last one less":                     {nil, endpoints(6), endpoints(5), 0, 2, 1},
		"one less from the middle":              {nil, endpoints(6), append(endpoints(2), endpoints(6)[3:]...), 1, 2, 1},
		"one less from the middle, with affinity and two lists": {
			sticky, endpoints(6), append(endpoints(2), endpoints(6)[3:]...), 2, 3, 4,
		},
		"one replaced by another": {nil, endpoints(3), append(endpoints(2), "10.65.0.9@n1"), 2, 1, 0},
		"one that starts to terminate": {
			sticky, endpoints(3), append(endpoints(2), "10.65.0.3@n0 terminating"), 0, 3, 4,
		},
		"one more, of UDP":      {udp, endpoints(5), endpoints(6), 2, 0, 1},
		"one less, of UDP":      {udp, endpoints(6), endpoints(5), 0, 2, 1},
		"nothing":               {sticky, endpoints(3), endpoints(3), 0, 0, 0},
		"another order":         {sticky, endpoints(2), []string{"10.65.0.2@n0", "10.65.0.1@n0"}, 0, 0, 0},
		"one that is not ready": {sticky, endpoints(2), append(endpoints(2), "10.65.0.3@n0 unready"), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			edit := c.edit
			if edit == nil {
				edit = func(*model.Service) {}
			}
			service := web(edit)
			of := func(addrs []string) *model.EndpointSlice {
				s := slice("a", addrs...)
				s.Ports[0].Protocol = service.Ports[0].Protocol
				return s
			}
			f.set(service, of(c.before))
			f.set(of(c.after))
			d := f.delta
			if len(d.Backends) != c.backends || len(d.DeleteBackends) != c.deletes || len(d.Frontends) != c.frontends || len(d.DeleteFrontends) != 0 {
				t.Errorf("%d backends, %d deleted, %d frontends; want %d, %d, %d:\n%+v",
					len(d.Backends), len(d.DeleteBackends), len(d.Frontends), c.backends, c.deletes, c.frontends, d)
			}
		})
	}
}

func TestABackendKeepsItsIDAndPlaceWhileOthersComeAndGo(t *testing.T) {
	f := newFixture(t)
	f.set(web(), slice("a", endpoints(4)...))
	before := maps.Clone(f.maps.backends)
	f.set(slice("a", endpoints(7)...))
	f.set(slice("a", endpoints(4)...))
	if !maps.Equal(before, f.maps.backends) {
		t.Errorf("backends %v, before %v", f.maps.backends, before)
	}
}

func TestABackendThatReturnsIsANewOneForAffinity(t *testing.T) {
	f := newFixture(t)
	f.set(web(sticky), slice("a", endpoints(2)...))
	id := f.maps.backends[BackendKey{0, f.id("10.96.0.1:80/TCP"), 1}].ID
	f.set(slice("a", endpoints(1)...))
	f.set(slice("a", endpoints(2)...))
	if again := f.maps.backends[BackendKey{0, f.id("10.96.0.1:80/TCP"), 1}].ID; again == id {
		t.Errorf("id %d was given out again at once", id)
	}
}

func TestByIDEntriesSayWhichListsTheBackendIsIn(t *testing.T) {
	f := newFixture(t)
	f.set(web(sticky), slice("a", "10.65.0.1@n0", "10.65.0.2@n1"))
	flags := map[string]uint32{}
	for k, v := range f.maps.backends {
		if k.Ordinal&ByIDList != 0 {
			flags[v.Addr.String()] = v.Flags
		}
	}
	if want := map[string]uint32{"10.65.0.1": InCluster | InLocal, "10.65.0.2": InCluster}; !maps.Equal(flags, want) {
		t.Errorf("flags %v, want %v", flags, want)
	}
}

func TestBackendsAreFoundByIDWhateverTheProtocolAndWithoutAffinity(t *testing.T) {
	for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		f := newFixture(t)
		endpoints := slice("a", "10.65.0.1@n0", "10.65.0.2@n1")
		endpoints.Ports[0].Protocol = proto
		f.set(web(func(s *model.Service) { s.Ports[0].Protocol = proto }), endpoints)
		found := map[string]uint32{}
		for k, v := range f.maps.backends {
			if k.Ordinal == ByIDList|v.ID {
				found[v.Addr.String()] = v.Flags
			}
		}
		if want := map[string]uint32{"10.65.0.1": InCluster, "10.65.0.2": InCluster}; !maps.Equal(found, want) {
			t.Errorf("%s: by id: %v, want %v", proto, found, want)
		}
	}
}

func TestServicePortIDsDoNotDependOnUnrelatedEdits(t *testing.T) {
	f := newFixture(t)
	f.set(web(), web(named("b"), vip("10.96.0.2")), web(named("c"), vip("10.96.0.3")))
	id := f.id("10.96.0.2:80/TCP")
	f.remove(web())
	f.set(web(named("d"), vip("10.96.0.4")))
	f.set(web(named("b"), vip("10.96.0.2"), func(s *model.Service) { s.Ports[0].Port = 81 }))
	if got := f.id("10.96.0.2:81/TCP"); got != id {
		t.Errorf("id %d became %d", id, got)
	}
	if f.id("10.96.0.4:80/TCP") == id {
		t.Error("an id in use was given to another service")
	}
}

func TestAnIDIsNotReusedInTheBatchThatFreesIt(t *testing.T) {
	f := newFixture(t)
	f.set(web(), slice("a", endpoints(2)...))
	id := f.id("10.96.0.1:80/TCP")
	f.calc.tables[model.IPv4].services.last = id - 1 // the next free id would be this one
	f.take(f.calc.Apply([]model.Change{
		model.Deleted(model.KindService, web().Name), model.Updated(web(named("b"), vip("10.96.0.2"))),
	}))
	if f.id("10.96.0.2:80/TCP") == id {
		t.Error("the id has two meanings while the maps change")
	}
}

func TestBackendIDsStayDistinctWhenTheyWrap(t *testing.T) {
	f := newFixture(t)
	f.set(web(sticky), slice("a", endpoints(3)...))
	f.calc.tables[model.IPv4].backends.last = maxBackendID
	f.set(slice("a", endpoints(6)...))
	seen := map[uint32]bool{}
	for k, v := range f.maps.backends {
		if k.Ordinal&ByIDList == 0 {
			continue
		}
		if seen[v.ID] || v.ID == 0 || v.ID > maxBackendID {
			t.Errorf("id %d is given out twice, or out of range", v.ID)
		}
		seen[v.ID] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d ids for 6 backends", len(seen))
	}
}

func TestAFamilyDoesNotNoticeTheOther(t *testing.T) {
	f := newFixture(t)
	dual := web(func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.1", "fd96::1") })
	f.set(dual, slice("a", "10.65.0.1@n0"), slice("b", "fd65::1@n0"))
	f.set(slice("b", "fd65::1@n0", "fd65::2@n0"))
	for _, b := range f.delta.Backends {
		if b.Key.Family != model.IPv6 {
			t.Errorf("an IPv6 endpoint led to %+v", b)
		}
	}
	if len(f.delta.Frontends) != 1 {
		t.Errorf("frontends %v", f.delta.Frontends)
	}
}

func TestNothingIsEmittedBeforeTheSourcesAreInSync(t *testing.T) {
	c := New(Options{NodeName: "n0"})
	for _, o := range []model.Object{web(), slice("a", endpoints(2)...), slice("b", "10.65.1.1@n0")} {
		if d := c.Apply([]model.Change{model.Updated(o)}); !d.Empty() {
			t.Fatalf("%+v", d)
		}
	}
	if d := c.Synced(); len(d.Backends) != 6 || len(d.Frontends) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestARestartKeepsIDsAndAppliesWhatHasChangedMeanwhile(t *testing.T) {
	f := newFixture(t)
	f.set(web(sticky), slice("a", endpoints(3)...), web(named("gone"), vip("10.96.0.2"), created(1)))
	id := f.id("10.96.0.1:80/TCP")
	o := f.calc.opts
	f.calc = New(o)
	for _, fam := range model.Families {
		fes, bes := f.maps.dump(fam)
		f.calc.Seed(fam, fes, bes)
	}
	f.calc.Apply([]model.Change{model.Updated(slice("a", endpoints(4)...)), model.Updated(web(sticky)), model.Updated(web(named("new"), vip("10.96.0.3")))})
	f.take(f.calc.Synced())
	if f.id("10.96.0.1:80/TCP") != id {
		t.Error("the id has changed")
	}
	if len(f.delta.DeleteFrontends) != 1 || len(f.delta.Backends) != 3 || len(f.delta.DeleteBackends) != 0 {
		t.Errorf("%+v", f.delta)
	}
}

func TestASeedThatMakesNoSenseIsRepaired(t *testing.T) {
	good := newFixture(t)
	good.set(web(sticky), slice("a", endpoints(3)...))
	id := good.id("10.96.0.1:80/TCP")
	for name, spoil := range map[string]func(*simMaps){
		"a gap in a list":     func(m *simMaps) { delete(m.backends, BackendKey{0, id, 1}) },
		"an entry far behind": func(m *simMaps) { m.backends[BackendKey{0, id, 900}] = m.backends[BackendKey{0, id, 0}] },
		"an entry of no list": func(m *simMaps) { m.backends[BackendKey{0, id, LocalList | ByIDList | 1}] = BackendValue{} },
		"a backend twice":     func(m *simMaps) { m.backends[BackendKey{0, id, 1}] = m.backends[BackendKey{0, id, 0}] },
		"two backends with one id": func(m *simMaps) {
			v := m.backends[BackendKey{0, id, 1}]
			v.ID = m.backends[BackendKey{0, id, 0}].ID
			m.backends[BackendKey{0, id, 1}] = v
		},
		"a backend id out of range": func(m *simMaps) {
			v := m.backends[BackendKey{0, id, 1}]
			v.ID = 1 << 31
			m.backends[BackendKey{0, id, 1}] = v
		},
		"by-id entries missing": func(m *simMaps) {
			maps.DeleteFunc(m.backends, func(k BackendKey, _ BackendValue) bool { return k.Ordinal&ByIDList != 0 })
		},
		"backends of nobody": func(m *simMaps) { m.backends[BackendKey{0, 77, 0}] = BackendValue{Addr: addrs("10.65.0.1")[0], ID: 1} },
		"a frontend of nobody": func(m *simMaps) {
			m.frontends[FrontendKey{addrs("10.96.9.9")[0], 80, model.TCP}] = FrontendValue{ServiceID: id}
		},
		"frontends that disagree": func(m *simMaps) {
			m.frontends[FrontendKey{addrs("198.51.100.7")[0], 80, model.TCP}] = FrontendValue{ServiceID: 55}
		},
		"a frontend with id 0":       func(m *simMaps) { m.frontends[FrontendKey{addrs("10.96.0.1")[0], 80, model.TCP}] = FrontendValue{} },
		"everything lost but counts": func(m *simMaps) { clear(m.backends) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.maps = &simMaps{maps.Clone(good.maps.frontends), maps.Clone(good.maps.backends)}
			spoil(f.maps)
			f.calc = New(good.calc.opts)
			for _, fam := range model.Families {
				fes, bes := f.maps.dump(fam)
				f.calc.Seed(fam, fes, bes)
			}
			f.calc.Apply([]model.Change{model.Updated(web(sticky)), model.Updated(slice("a", endpoints(3)...))})
			f.take(f.calc.Synced())
			w := newWorld(good.calc.opts)
			w.apply([]model.Change{model.Updated(web(sticky)), model.Updated(slice("a", endpoints(3)...))})
			if err := f.maps.equal(w.evaluate()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDescribeListsServicePortsInOrder(t *testing.T) {
	f := newFixture(t)
	f.set(web(named("z"), vip("10.96.0.9")), web(sticky), slice("a", "10.65.0.1@n0", "10.65.0.2@n1"))
	got := f.calc.Describe()
	if len(got) != 2 || got[0].Service.Name != "web" || got[1].Service.Name != "z" {
		t.Fatalf("%+v", got)
	}
	p := got[0]
	if p.ServiceID == 0 || p.Port != "http" || p.Type != model.ClusterIP || len(p.Frontends) != 4 || len(p.Cluster) != 2 || len(p.Local) != 1 || p.Affinity != 10800 {
		t.Errorf("%+v", p)
	}
}

// The C side has the flags' values; this package must say the same.
func TestFlagsAreThoseOfTheDatapath(t *testing.T) {
	text, err := os.ReadFile("../../bpf-c/types.h")
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(CALI_\w+)\s*=\s*(?:1 << (\d+)|(0x[0-9a-f]+|\d+))\s*,`).FindAllStringSubmatch(string(text), -1) {
		if m[2] != "" {
			n, _ := strconv.Atoi(m[2])
			c[m[1]] = 1 << n
		} else if n, err := strconv.ParseUint(m[3], 0, 32); err == nil {
			c[m[1]] = uint32(n)
		}
	}
	for name, v := range map[string]uint32{
		"CALI_FE_EXTERNAL": uint32(External), "CALI_FE_ETP_LOCAL": uint32(ETPLocal), "CALI_FE_ITP_LOCAL": uint32(ITPLocal),
		"CALI_FE_DROP_NO_LOCAL": uint32(DropNoLocal), "CALI_FE_NODEPORT": uint32(IsNodePort),
		"CALI_BE_CLUSTER": ClusterList, "CALI_BE_LOCAL": LocalList, "CALI_BE_BY_ID": ByIDList,
		"CALI_BEF_CLUSTER": InCluster, "CALI_BEF_LOCAL": InLocal,
	} {
		if got, ok := c[name]; !ok || got != v {
			t.Errorf("%s is %#x in types.h (found %v), %#x here", name, got, ok, v)
		}
	}
}
