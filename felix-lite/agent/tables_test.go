// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// fakeTable is a map of the kernel with room for a few entries, which writes what is done to a log
// that several tables share.
type fakeTable[K comparable, V any] struct {
	name    string
	room    int
	entries map[K]V
	log     *[]string
}

func (f *fakeTable[K, V]) List(_ context.Context, visit func(K, V)) error {
	for k, v := range f.entries {
		visit(k, v)
	}
	return nil
}

func (f *fakeTable[K, V]) Update(_ context.Context, batch []reconcile.Entry[K, V]) []error {
	errs := make([]error, len(batch))
	for i, e := range batch {
		if _, ok := f.entries[e.Key]; !ok && len(f.entries) >= f.room {
			errs[i] = fmt.Errorf("%s: %w", f.name, unix.E2BIG)
			continue
		}
		f.entries[e.Key] = e.Value
		*f.log = append(*f.log, fmt.Sprintf("%s+", f.name))
	}
	return errs
}

func (f *fakeTable[K, V]) Delete(_ context.Context, keys []K) []error {
	for _, k := range keys {
		delete(f.entries, k)
		*f.log = append(*f.log, fmt.Sprintf("%s-", f.name))
	}
	return nil
}

type fakeMaps struct {
	frontends *fakeTable[maps.FrontendKey, layout.FEValue]
	backends  *fakeTable[maps.BackendKey, maps.Backend]
	log       []string
}

func newFakeMaps(backendRoom int) (*fakeMaps, *tables) {
	f := &fakeMaps{}
	f.frontends = &fakeTable[maps.FrontendKey, layout.FEValue]{"fe", 100, map[maps.FrontendKey]layout.FEValue{}, &f.log}
	f.backends = &fakeTable[maps.BackendKey, maps.Backend]{"be", backendRoom, map[maps.BackendKey]maps.Backend{}, &f.log}
	routes := &fakeTable[netip.Prefix, maps.Route]{"rt", 100, map[netip.Prefix]maps.Route{}, &f.log}
	return f, newTables(tableOps{f.frontends, f.backends, routes})
}

func (f *fakeMaps) take() string {
	out := strings.Join(f.log, " ")
	f.log = nil
	return out
}

func vip(n byte) services.FrontendKey {
	return services.FrontendKey{Addr: netip.AddrFrom4([4]byte{10, 96, 0, n}), Port: 80, Proto: model.TCP}
}

func place(svc, ordinal uint32) services.BackendKey {
	return services.BackendKey{Family: model.IPv4, ServiceID: svc, Ordinal: ordinal}
}

func pod(n byte) services.BackendValue {
	return services.BackendValue{Addr: netip.AddrFrom4([4]byte{10, 65, 0, n}), Port: 8080, Weight: 1, ID: uint32(n)}
}

func TestBackendsAreWrittenBeforeFrontendsAndDeletedAfterThem(t *testing.T) {
	f, tb := newFakeMaps(100)
	ctx := context.Background()
	tb.allowPrune()
	tb.services(services.Delta{
		Backends:  []services.Backend{{Key: place(1, 0), Value: pod(1)}, {Key: place(1, 1), Value: pod(2)}},
		Frontends: []services.Frontend{{Key: vip(1), Value: services.FrontendValue{ServiceID: 1, ClusterCount: 2}}},
	})
	tb.apply(ctx)
	if got := f.take(); got != "be+ be+ fe+" {
		t.Fatalf("new service: %s", got)
	}
	tb.services(services.Delta{
		Backends:       []services.Backend{{Key: place(1, 0), Value: pod(2)}},
		Frontends:      []services.Frontend{{Key: vip(1), Value: services.FrontendValue{ServiceID: 1, ClusterCount: 1}}},
		DeleteBackends: []services.BackendKey{place(1, 1)},
	})
	tb.apply(ctx)
	if got := f.take(); got != "be+ fe+ be-" {
		t.Fatalf("removed backend: %s", got)
	}
	tb.services(services.Delta{DeleteFrontends: []services.FrontendKey{vip(1)}, DeleteBackends: []services.BackendKey{place(1, 0)}})
	tb.apply(ctx)
	if got := f.take(); got != "fe- be-" {
		t.Fatalf("removed service: %s", got)
	}
}

func TestNothingIsDeletedBeforePruningIsAllowed(t *testing.T) {
	f, tb := newFakeMaps(100)
	ctx := context.Background()
	f.frontends.entries[frontendKey(vip(9))] = layout.FEValue{SvcID: 9}
	f.backends.entries[backendKey(place(9, 0))] = backend(pod(9))
	tb.apply(ctx)
	tb.services(services.Delta{Frontends: []services.Frontend{{Key: vip(1), Value: services.FrontendValue{ServiceID: 1}}}})
	tb.apply(ctx)
	if got := f.take(); got != "fe+" {
		t.Fatalf("before pruning: %s", got)
	}
	tb.allowPrune()
	tb.apply(ctx)
	if got := f.take(); got != "fe- be-" {
		t.Fatalf("after pruning: %s", got)
	}
}

func TestAFrontendWaitsForBackendsThatAreRefused(t *testing.T) {
	f, tb := newFakeMaps(1)
	ctx := context.Background()
	tb.allowPrune()
	tb.services(services.Delta{
		Backends: []services.Backend{{Key: place(1, 0), Value: pod(1)}, {Key: place(2, 0), Value: pod(2)}},
		Frontends: []services.Frontend{{Key: vip(1), Value: services.FrontendValue{ServiceID: 1, ClusterCount: 1}},
			{Key: vip(2), Value: services.FrontendValue{ServiceID: 2, ClusterCount: 1}}},
	})
	r := tb.apply(ctx)
	if !errors.Is(r.backends.Err, unix.E2BIG) || r.backends.Failed != 1 || r.frontends.Failed != 0 || r.frontends.Pending != 1 {
		t.Fatalf("result %+v", r)
	}
	if _, ok := f.frontends.entries[frontendKey(vip(2))]; ok {
		t.Fatal("a frontend promises a backend that is not there")
	}
	if _, ok := f.frontends.entries[frontendKey(vip(1))]; !ok {
		t.Fatal("a service with its backends was held back too")
	}
	f.backends.room = 2
	deadline := time.Now().Add(30 * time.Second)
	for len(f.frontends.entries) < 2 {
		if time.Now().After(deadline) {
			t.Fatalf("still %d frontends", len(f.frontends.entries))
		}
		tb.apply(ctx)
	}
}

func TestValuesSurviveTheWayIntoMapsAndBack(t *testing.T) {
	fe := services.Frontend{Key: vip(3), Value: services.FrontendValue{ServiceID: 7, Flags: services.External | services.IsNodePort,
		AffinityTimeout: 60, ClusterCount: 3, LocalCount: 1}}
	if got := frontendFrom(frontendKey(fe.Key), frontend(fe.Value)); got != fe {
		t.Errorf("frontend %+v", got)
	}
	be := services.Backend{Key: services.BackendKey{Family: model.IPv6, ServiceID: 7, Ordinal: services.LocalList | 2},
		Value: services.BackendValue{Addr: netip.MustParseAddr("fd00::1"), Port: 1, Weight: 2, ID: 3, Flags: 4}}
	if got := backendFrom(backendKey(be.Key), backend(be.Value)); got != be {
		t.Errorf("backend %+v", got)
	}
}

func TestMTUsFollowUplinkOverlayAndConfiguration(t *testing.T) {
	tests := []struct {
		name      string
		uplink    int
		underlay6 bool
		overlay   string
		podMTU    int
		want      mtus
	}{
		{"an unknown uplink counts as 1500", 0, false, "VXLAN", 0, mtus{1450, 1450, 1500}},
		{"IPv4 underlay costs 50 bytes", 9000, false, "VXLAN", 0, mtus{8950, 8950, 9000}},
		{"IPv6 underlay costs 70 bytes", 1500, true, "VXLAN", 0, mtus{1430, 1430, 1500}},
		{"direct pods have the uplink's size, the tunnel its own", 1500, false, "Direct", 0, mtus{1450, 1500, 1500}},
		{"a smaller pod MTU is taken", 1500, false, "VXLAN", 1400, mtus{1450, 1400, 1500}},
		{"a larger pod MTU than fits is not", 1500, false, "VXLAN", 1500, mtus{1450, 1450, 1500}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mtusOf(tt.uplink, tt.underlay6, testConfig(t, "overlay: "+tt.overlay, fmt.Sprintf("podMTU: %d", tt.podMTU))); got != tt.want {
				t.Fatalf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestGlobalsKeepWhatIsNotTheirs(t *testing.T) {
	g := layout.Globals{JumpBase: 512, RouteEpoch: 9, AdoptionEnd: 77, HostIP4: 1}
	globals{tunnelIfindex: 4, tunnelMTU: 1450, podMTU: 1400, host6: netip.MustParseAddr("fd00::5"), underlay6: true,
		cfg: testConfig(t)}.write(&g)
	if g.JumpBase != 512 || g.RouteEpoch != 9 || g.AdoptionEnd != 77 {
		t.Errorf("bank, epoch or adoption end changed: %+v", g)
	}
	if g.HostIP4 != 1 {
		t.Error("an address that is not known now was forgotten")
	}
	want := layout.GFUnderlayV6 | layout.GFV4 | layout.GFV6
	if g.TunnelIfindex != 4 || g.PodMTU != 1400 || layout.GlobalFlag(g.Flags) != want || layout.PortOf(g.VXLANPortBE) != 4789 || g.VNI != 4096 {
		t.Errorf("globals %+v", g)
	}
	if g.PSNATStart != 20000 || g.PSNATCount != 10000 {
		t.Errorf("source ports %d, %d", g.PSNATStart, g.PSNATCount)
	}
}

func TestTicksShiftIsAboutASecond(t *testing.T) {
	for hz, want := range map[uint32]uint32{100: 6, 250: 7, 300: 8, 1000: 9} {
		if got := ticksShift(hz); got != want {
			t.Errorf("%d Hz: %d, want %d", hz, got, want)
		}
	}
}

func TestReasonsNameOnlyWhatIsWrong(t *testing.T) {
	got := reasons([]Condition{{Name: "a", OK: true}, {Name: "b", Message: "x"}, {Name: "c", Message: "y"}})
	if got != "b: x; c: y" {
		t.Fatal(got)
	}
}

func TestTableNamesOfMetricsAreComplete(t *testing.T) {
	_, tb := newFakeMaps(1)
	for name := range tb.counts() {
		if !slices.Contains(tableNames, name) {
			t.Errorf("table %s has no label value", name)
		}
	}
}
