// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// small keeps a test's maps small: the defaults take 200 MB of kernel memory.
var small = Sizes{
	Conntrack: 1024, ConntrackHalfOpen: 1024, NATFrontend: 1024, NATBackend: 1024, NATAffinity: 1024,
	Routes: 1024, Interfaces: 64,
}

func quiet() logrus.FieldLogger {
	l := logrus.New()
	l.SetLevel(logrus.PanicLevel)
	return l
}

func open(t *testing.T, root string, o Options) *Set {
	t.Helper()
	o.Log = quiet()
	s, err := Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestEveryMapIsPinnedAndAdoptedWithItsContent(t *testing.T) {
	root := testenv.BPFFS(t)
	s := open(t, root, Options{Sizes: small})
	if len(s.Names()) < 20 {
		t.Fatalf("only %d maps: %v", len(s.Names()), s.Names())
	}
	for _, name := range s.Names() {
		if _, err := os.Stat(filepath.Join(root, "tc/globals", name)); err != nil {
			t.Error(err)
		}
	}
	key := FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 443, Proto: 6}
	if err := s.Frontends.Put(key, layout.FEValue{SvcID: 7}); err != nil {
		t.Fatal(err)
	}
	s.Close()

	again := open(t, root, Options{Sizes: small})
	if v, found, err := again.Frontends.Lookup(key); err != nil || !found || v.SvcID != 7 {
		t.Errorf("after reopening: %+v, found %v, %v", v, found, err)
	}
	reader, err := OpenReadOnly(root)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if v, found, err := reader.Frontends.Lookup(key); err != nil || !found || v.SvcID != 7 {
		t.Errorf("read-only: %+v, found %v, %v", v, found, err)
	}
	if err := reader.Frontends.Put(key, layout.FEValue{}); err == nil {
		t.Error("a read-only set could write")
	}
}

func TestTablesCarryBothFamiliesWithAndWithoutBatches(t *testing.T) {
	for _, noBatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("no batch %v", noBatch), func(t *testing.T) {
			s := open(t, testenv.BPFFS(t), Options{Sizes: small, NoBatch: noBatch})
			ctx := context.Background()

			var batch []reconcile.Entry[BackendKey, Backend]
			for i := range 600 {
				family, addr := layout.FamilyV4, "10.65.0.9"
				if i%3 == 0 {
					family, addr = layout.FamilyV6, "fd00:65::9"
				}
				batch = append(batch, reconcile.Entry[BackendKey, Backend]{
					Key:   BackendKey{Family: family, SvcID: 5, Ordinal: uint32(i)},
					Value: Backend{Addr: netip.MustParseAddr(addr), Port: uint16(8000 + i), ID: uint32(i), Weight: 1},
				})
			}
			noErrors(t, s.Backends.Update(ctx, batch))
			got := map[BackendKey]Backend{}
			if err := s.Backends.List(ctx, func(k BackendKey, b Backend) { got[k] = b }); err != nil {
				t.Fatal(err)
			}
			if len(got) != len(batch) {
				t.Fatalf("listed %d of %d", len(got), len(batch))
			}
			for _, e := range batch {
				if got[e.Key] != e.Value {
					t.Fatalf("%+v: %+v, want %+v", e.Key, got[e.Key], e.Value)
				}
			}
			if s.Writes() != 600 {
				t.Errorf("%d writes counted, want 600", s.Writes())
			}

			// Deleting twice the same and one that never was: no error, and only real deletions count.
			keys := []BackendKey{batch[0].Key, batch[1].Key, {SvcID: 99}, batch[2].Key, batch[1].Key}
			noErrors(t, s.Backends.Delete(ctx, keys))
			if s.Writes() != 603 {
				t.Errorf("%d writes counted, want 603", s.Writes())
			}

			prefixes := map[string]Route{
				"10.65.0.0/24":    {Flags: layout.RTWorkload | layout.RTTunneled, NextHop: netip.MustParseAddr("192.0.2.7"), NodeID: 3},
				"fd00:65::/64":    {Flags: layout.RTWorkload, NextHop: netip.MustParseAddr("2001:db8::7")},
				"10.65.0.9/32":    {Flags: layout.RTWorkload, NextHop: netip.MustParseAddr("2001:db8::8")},
				"fd00:65::9/128":  {Flags: layout.RTLocal | layout.RTWorkload, Ifindex: 9, EPSlot: 4},
				"192.168.0.0/16":  {Flags: layout.RTBlackhole},
				"0.0.0.0/0":       {Flags: layout.RTPool},
				"::/0":            {Flags: layout.RTPool},
				"2001:db8:1::/48": {Flags: layout.RTNATOut},
			}
			for p, r := range prefixes {
				if err := s.Routes.Put(netip.MustParsePrefix(p), r); err != nil {
					t.Fatal(err)
				}
			}
			seen := 0
			if err := s.Routes.All(func(p netip.Prefix, r Route) bool {
				seen++
				if want := prefixes[p.String()]; r != want {
					t.Errorf("%v: %+v, want %+v", p, r, want)
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if seen != len(prefixes) {
				t.Errorf("%d routes listed, want %d", seen, len(prefixes))
			}
		})
	}
}

func TestOneRefusedEntryDoesNotKeepTheOthersOut(t *testing.T) {
	sizes := small
	sizes.NATFrontend = 4
	s := open(t, testenv.BPFFS(t), Options{Sizes: sizes})
	var keys []FrontendKey
	var batch []reconcile.Entry[FrontendKey, layout.FEValue]
	for i := range 8 {
		key := FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: uint16(i + 1), Proto: 6}
		keys = append(keys, key)
		batch = append(batch, reconcile.Entry[FrontendKey, layout.FEValue]{Key: key, Value: layout.FEValue{SvcID: 1}})
	}
	batch[1].Key.Addr = netip.Addr{}
	errs := s.Frontends.Update(context.Background(), batch)
	if errs == nil || errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Fatalf("errors %v: want one for the entry without an address, none for its neighbours", errs)
	}
	refused := 0
	for _, err := range errs {
		if err != nil {
			refused++
		}
	}
	if refused < 3 { // one bad, and seven for four places (preallocation may lend a few more)
		t.Errorf("%d refused of 8 with room for 4: %v", refused, errs)
	}
	noErrors(t, s.Frontends.Delete(context.Background(), keys))
}

func TestResizeKeepsEveryEntryAndFinishBringsLateOnes(t *testing.T) {
	root := testenv.BPFFS(t)
	s := open(t, root, Options{Sizes: small})
	put := func(m *Map[layout.CTKeyV4, layout.CTValueV4], port uint16, seen uint32) {
		t.Helper()
		if err := m.Put(layout.CTKeyV4{PortABE: port, Proto: 6}, layout.CTValueV4{LastSeen: seen}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint16(1000) {
		put(s.ConntrackV4.Confirmed, i, 100)
	}
	if err := s.Routes.Put(netip.MustParsePrefix("10.0.0.0/8"), Route{NodeID: 1}); err != nil {
		t.Fatal(err)
	}
	before := &Map[layout.CTKeyV4, layout.CTValueV4]{name: "old"}
	before.m.Store(s.ConntrackV4.Confirmed.Raw())

	larger := small
	larger.Conntrack, larger.Routes, larger.Interfaces = 4096, 2048, 128
	changed, err := s.Resize(larger)
	if err != nil {
		t.Fatal(err)
	}
	if want := "cali_counters2 cali_iface2 cali_v4_ct3 cali_v4_routes cali_v6_ct3 cali_v6_routes"; strings.Join(changed, " ") != want {
		t.Errorf("changed %v, want %s", changed, want)
	}
	if got := s.ConntrackV4.Confirmed.MaxEntries(); got != 4096 {
		t.Errorf("conntrack has %d entries", got)
	}
	if _, found, err := s.Routes.Lookup(netip.MustParsePrefix("10.0.0.0/8")); !found || err != nil {
		t.Errorf("route after resize: found %v, %v", found, err)
	}

	// Programs still use the old map: a new flow, one that went on, and one that is newer here.
	put(before, 5000, 200)
	put(before, 1, 300)
	put(s.ConntrackV4.Confirmed, 2, 900)
	if err := s.FinishResize(); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := s.ConntrackV4.Confirmed.All(func(layout.CTKeyV4, layout.CTValueV4) bool { n++; return true }); err != nil {
		t.Fatal(err)
	}
	if n != 1001 {
		t.Errorf("%d entries, want 1001", n)
	}
	for port, want := range map[uint16]uint32{0: 100, 1: 300, 2: 900, 5000: 200} {
		v, _, err := s.ConntrackV4.Confirmed.Lookup(layout.CTKeyV4{PortABE: port, Proto: 6})
		if err != nil || v.LastSeen != want {
			t.Errorf("port %d: last seen %d, want %d (%v)", port, v.LastSeen, want, err)
		}
	}

	// Too small for what is in it: refused, and nothing is lost.
	tiny := larger
	tiny.Conntrack = 16
	if _, err := s.Resize(tiny); err == nil {
		t.Error("a table was made smaller than its content")
	}
	if got := s.ConntrackV4.Confirmed.MaxEntries(); got != 4096 {
		t.Errorf("after the refused resize conntrack has %d entries", got)
	}
	s.Close()
	again := open(t, root, Options{Sizes: tiny})
	if got := again.ConntrackV4.Confirmed.MaxEntries(); got != 4096 {
		t.Errorf("reopened with a size that is too small: %d entries, want the old map", got)
	}
	if _, err := os.Stat(filepath.Join(root, "tc/globals/cali_v4_ct3_new")); err == nil {
		t.Error("a half-filled map was left behind")
	}
}

func TestForeignPinsAreRefusedAndLeftAlone(t *testing.T) {
	root := testenv.BPFFS(t)
	dir := mapsDir(root)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := foreign.Pin(filepath.Join(dir, "cali_v4_ct3")); err != nil {
		t.Fatal(err)
	}
	_, err = Open(root, Options{Sizes: small, Log: quiet()})
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "cali_v4_ct3") {
		t.Errorf("error %v: want ErrForeign that names the pin", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("pins afterwards: %v, %v", entries, err)
	}
}

func TestAnotherLayoutOfOursIsMovedAside(t *testing.T) {
	root := testenv.BPFFS(t)
	open(t, root, Options{Sizes: small}).Close()
	pin := filepath.Join(mapsDir(root), "cali_v4_ct3")
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	old, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.Pin(pin); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, Options{Sizes: small})
	if err := s.ConntrackV4.Confirmed.Put(layout.CTKeyV4{Proto: 6}, layout.CTValueV4{}); err != nil {
		t.Error(err)
	}
	aside, err := ebpf.LoadPinnedMap(pin+oldSuffix, nil)
	if err != nil {
		t.Fatal(err)
	}
	aside.Close()
}

func TestErrorsNameWhatIsMissing(t *testing.T) {
	if _, err := Open(t.TempDir(), Options{Sizes: small}); !errors.Is(err, ErrNotBPFFS) {
		t.Errorf("open on a plain directory: %v", err)
	}
	if _, err := OpenReadOnly(testenv.BPFFS(t)); !errors.Is(err, ErrNoMaps) {
		t.Errorf("open without maps: %v", err)
	}
}

func TestGlobalsAreWrittenOnlyWhenTheyChange(t *testing.T) {
	s := open(t, testenv.BPFFS(t), Options{Sizes: small})
	for range 2 {
		if err := s.Globals.Change(func(g *layout.Globals) { g.VNI, g.JumpBase = 4096, 512 }); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Globals.BumpRouteEpoch(); err != nil {
		t.Fatal(err)
	}
	g, err := s.Globals.Read()
	if err != nil || g.VNI != 4096 || g.JumpBase != 512 || g.RouteEpoch != 1 {
		t.Errorf("globals %+v, %v", g, err)
	}
	if s.Globals.Writes() != 2 {
		t.Errorf("%d writes, want 2", s.Globals.Writes())
	}
}

func TestCountersSumOverCPUsAndAreZeroed(t *testing.T) {
	s := open(t, testenv.BPFFS(t), Options{Sizes: small})
	if s.Counters.Slots() != 64 {
		t.Fatalf("%d slots, want 64", s.Counters.Slots())
	}
	cpus := ebpf.MustPossibleCPU()
	rows := make([]layout.CounterRow, cpus)
	for i := range rows {
		rows[i].Count[layout.DropPolicy] = uint64(i + 1)
	}
	rows[0].Count[layout.CountTotal], rows[0].Count[layout.CountStraightDNAT] = 5, 2
	key := CounterKey{Slot: 3, Hook: layout.HookEgress, Family: layout.FamilyV6}
	if err := s.Counters.Raw().Update(key.row(), rows, ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	row, err := s.Counters.Read(key)
	if want := uint64(cpus * (cpus + 1) / 2); err != nil || row.Count[layout.DropPolicy] != want {
		t.Errorf("%d counted, want %d (%v)", row.Count[layout.DropPolicy], want, err)
	}
	for c, want := range map[layout.Counter]uint64{layout.CountTotal: 7, layout.CountFastPath: 2, layout.CountRedirectPeer: 2,
		layout.CountDNAT: 2, layout.CountUnnat: 0, layout.CountStraightDNAT: 0} {
		if row.Count[c] != want {
			t.Errorf("%s: %d, want %d", c, row.Count[c], want)
		}
	}
	if err := s.Counters.Zero(3); err != nil {
		t.Fatal(err)
	}
	if row, err := s.Counters.Read(key); err != nil || row.Count[layout.DropPolicy] != 0 {
		t.Errorf("%d after zeroing (%v)", row.Count[layout.DropPolicy], err)
	}
}
