// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/statefile"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// node makes the maps of a node with a little of everything in them, and looks at them as the
// command line does.
func node(t *testing.T) *View {
	t.Helper()
	root, run := testenv.BPFFS(t), t.TempDir()
	set, err := maps.Open(root, maps.Options{Sizes: maps.Sizes{Conntrack: 64, ConntrackHalfOpen: 64, NATFrontend: 64, NATBackend: 64,
		NATAffinity: 64, Routes: 64, Interfaces: 16}})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	fill(t, set)
	if err := statefile.Write(run, statefile.State{Node: "n1", Build: "v1", PID: 7, Services: []statefile.Service{
		{Family: "v4", ID: 1, Service: "default/web", Port: "http", Type: "ClusterIP"}}}); err != nil {
		t.Fatal(err)
	}
	v, err := Open(root, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func fill(t *testing.T, set *maps.Set) {
	t.Helper()
	addr := netip.MustParseAddr
	cali := layout.IfaceValue{Flags: uint32(layout.IFFReady | layout.IFFManaged), IfaceSlot: 2, EPSlot: 5,
		Class: uint8(layout.ClassWEP), Policy: [4]uint32{1, 1, 1, 0}}
	copy(cali.Name[:], "cali1")
	eth := layout.IfaceValue{IfaceSlot: 1, Class: uint8(layout.ClassHEP), Policy: [4]uint32{1, 1, 1, 1}}
	copy(eth.Name[:], "eth0")
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	do(set.Interfaces.Put(3, cali))
	do(set.Interfaces.Put(2, eth))
	do(set.Frontends.Put(maps.FrontendKey{Addr: addr("10.96.0.1"), Port: 80, Proto: 6},
		layout.FEValue{SvcID: 1, AffinityTimeout: 30, ClusterCount: 2, LocalCount: 1}))
	do(set.Frontends.Put(maps.FrontendKey{Addr: maps.AnyNode(layout.FamilyV4), Port: 30080, Proto: 17},
		layout.FEValue{SvcID: 9, Flags: uint32(layout.FEExternal | layout.FENodeport), ClusterCount: 1}))
	do(set.Frontends.Put(maps.FrontendKey{Addr: addr("fd00::1"), Port: 53, Proto: 17}, layout.FEValue{SvcID: 2}))
	do(set.Backends.Put(maps.BackendKey{SvcID: 1, Ordinal: 0}, maps.Backend{Addr: addr("10.65.0.1"), Port: 8080, Weight: 1, ID: 1}))
	do(set.Backends.Put(maps.BackendKey{SvcID: 1, Ordinal: 1}, maps.Backend{Addr: addr("10.65.0.2"), Port: 8080, Weight: 1, ID: 2}))
	do(set.Backends.Put(maps.BackendKey{SvcID: 1, Ordinal: uint32(layout.BELocal)},
		maps.Backend{Addr: addr("10.65.0.1"), Port: 8080, Weight: 1, ID: 1}))
	do(set.Routes.Put(netip.MustParsePrefix("10.65.0.1/32"), maps.Route{Flags: layout.RTLocal | layout.RTWorkload, Ifindex: 3, EPSlot: 5}))
	do(set.Routes.Put(netip.MustParsePrefix("10.66.0.0/16"),
		maps.Route{Flags: layout.RTWorkload | layout.RTTunneled, NodeID: 1, NextHop: addr("192.0.2.2")}))
	do(set.Routes.Put(netip.MustParsePrefix("fd00:66::/64"), maps.Route{Flags: layout.RTWorkload, Ifindex: 77, NextHop: addr("2001:db8::2")}))
	rows := make([]layout.CounterRow, set.Counters.Raw().MaxEntries())
	rows[0].Count[layout.CountTotal], rows[0].Count[layout.DropTTL] = 10, 3
	do(putRow(set, maps.CounterKey{Slot: 2, Hook: layout.HookIngress, Family: layout.FamilyV4}, rows[0]))
	do(set.Globals.Change(func(g *layout.Globals) { g.RouteEpoch, g.VNI, g.TunnelMTU = 4, 4096, 1450 }))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// putRow writes a row of counters, all of it on the first CPU.
func putRow(set *maps.Set, k maps.CounterKey, row layout.CounterRow) error {
	var perCPU []layout.CounterRow
	index := (k.Slot*2+uint32(k.Hook))*2 + uint32(k.Family)
	if err := set.Counters.Raw().Lookup(index, &perCPU); err != nil {
		return err
	}
	perCPU[0] = row
	return set.Counters.Raw().Put(index, perCPU)
}

func TestListingsAsPeopleSeeThem(t *testing.T) {
	v := node(t)
	tests := []struct {
		name string
		list func() (Lister, error)
		want string
	}{
		{"services, with names where they are known", func() (Lister, error) { return v.Services() }, `
SERVICE           FRONTEND      PROTO  FLAGS              AFFINITY  CLUSTER  LOCAL  BACKENDS
#2                [fd00::1]:53  UDP    -                  -         0        0      -
#9                *(v4):30080   UDP    external,nodeport  -         1        0      missing[0]
default/web:http  10.96.0.1:80  TCP    -                  30s       2        1      10.65.0.1:8080,10.65.0.2:8080
`},
		{"routes", func() (Lister, error) { return v.Routes() }, `
PREFIX        FLAGS              DEVICE  NEXT-HOP     NODE  ENDPOINT
10.65.0.1/32  local,workload     cali1   -            -     5
10.66.0.0/16  workload,tunneled  -       192.0.2.2    1     -
fd00:66::/64  workload           if77    2001:db8::2  -     -
`},
		{"interfaces", func() (Lister, error) { return v.Interfaces() }, `
IFINDEX  NAME   CLASS  READY  SLOT  ENDPOINT  POLICY                  PACKETS  DROPS
2        eth0   hep    false  1     -         allow                   0        0
3        cali1  wep    true   2     5         allow/allow/allow/deny  10       3
`},
		{"drops", func() (Lister, error) { return v.Counters(CounterFilter{Drops: true}) }, `
INTERFACE  CLASS  HOOK     FAMILY  COUNTER   COUNT  MEANING
cali1      wep    ingress  v4      drop:ttl  3      ` + layout.DropTTL.Text() + `
`},
		{"counters of an interface that has none", func() (Lister, error) { return v.Counters(CounterFilter{Interface: "eth0"}) }, `
all counters are zero
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := tt.list()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Render(&out, FormatTable, l); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out.String()); d != "" {
				t.Error(d)
			}
			out.Reset()
			if err := Render(&out, FormatJSON, l); err != nil || !json.Valid(out.Bytes()) {
				t.Errorf("JSON: %v\n%s", err, out.String())
			}
			if err := Render(&out, "yaml", l); err == nil {
				t.Error("an unknown format was accepted")
			}
		})
	}
}

func TestCountersOfAnInterfaceThatIsNotThereAreAnError(t *testing.T) {
	v := node(t)
	if got, err := v.Counters(CounterFilter{Interface: "nosuch"}); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestStatusAsksTheAgentAndDoesWithoutIt(t *testing.T) {
	v := node(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"ready":false,"conditions":[{"name":"maps","ok":false,"message":"full"},{"name":"tunnel","ok":true}]}`))
	}))
	defer server.Close()
	s, err := v.Status(context.Background(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Agent.Reachable || s.Agent.Ready || !cmp.Equal(s.Agent.Reasons, []string{"maps: full"}) {
		t.Errorf("agent %+v", s.Agent)
	}
	if s.Frontends != 3 || s.Backends != 3 || s.Routes != 3 || s.Globals.RouteEpoch != 4 || len(s.Drops) != 1 || s.Drops[0].Count != 3 {
		t.Errorf("status %+v", s)
	}
	server.Close()
	if s, err = v.Status(context.Background(), strings.TrimPrefix(server.URL, "http://")); err != nil || s.Agent.Reachable {
		t.Fatalf("without an agent: %+v, %v", s, err)
	}
	var out bytes.Buffer
	if err := Render(&out, FormatTable, s); err != nil || !strings.Contains(out.String(), "not reachable") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestANodeWithoutMapsIsSaidToHaveNone(t *testing.T) {
	if _, err := Open(testenv.BPFFS(t), t.TempDir()); !errors.Is(err, maps.ErrNoMaps) {
		t.Fatal(err)
	}
}
