// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"maps"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestAnEntryDiesWhenItsTimeoutHasPassedAcrossTheWrapOfTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		now               uint64
		lastSeen, timeout uint32
		dead              bool
	}{
		"just seen":                     {5000, 5000, 100, false},
		"at its timeout":                {5000, 4900, 100, false},
		"one jiffy later":               {5001, 4900, 100, true},
		"seen before the wrap, alive":   {1<<32 + 50, math.MaxUint32 - 20, 100, false},
		"seen before the wrap, dead":    {1<<32 + 500, math.MaxUint32 - 20, 100, true},
		"seen after we read the clock":  {5000, 5003, 100, false},
		"ahead of us across the wrap":   {1<<32 - 2, 1, 100, false},
		"idle for more than half a lap": {1<<32 + 3<<30, 0, 100, true},
		"timeout never":                 {1 << 40, 77, math.MaxUint32, false},
	} {
		if got := (ticks{c.now, testHZ}).dead(c.lastSeen, c.timeout); got != c.dead {
			t.Errorf("%s: dead is %v", name, got)
		}
	}
}

func TestOnlyDeadEntriesAreSwept(t *testing.T) { bothFamilies(t, testSwept, testSwept) }

func testSwept[A layout.Address](t *testing.T, k *kernel[A]) {
	k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](2, 80), state: layout.CTEstablished, timeout: time.Hour})
	k.put(flow[A]{client: addr[A](1, 1001), server: addr[A](2, 80), state: layout.CTNew, timeout: 20 * time.Second, half: true})
	k.put(flow[A]{client: addr[A](1, 1002), server: addr[A](2, 53), proto: 17, state: layout.CTEstablished, timeout: time.Minute})
	s := k.sweeper(Options{})
	st := k.sweep(s)
	if st.Scanned != 3 || st.Deleted() != 0 {
		t.Fatalf("scanned %d, deleted %d; want 3 and 0", st.Scanned, st.Deleted())
	}
	live := maps.Collect(st.Live())
	fam := familyName[A]()
	if live[LiveKey{fam, "tcp"}] != 2 || live[LiveKey{fam, "udp"}] != 1 {
		t.Fatalf("live %v", live)
	}
	if _, ok := live[LiveKey{fam, "sctp"}]; !ok {
		t.Fatalf("a known protocol without flows is left out: %v", live)
	}
	k.sleep(30 * time.Second)
	st = k.sweep(s)
	if got := maps.Collect(st.DeletedByState()); !maps.Equal(got, map[string]int{"new": 1}) {
		t.Fatalf("deleted %v, want the half-open one", got)
	}
	k.sleep(31 * time.Second)
	if st = k.sweep(s); st.Deleted() != 1 {
		t.Fatalf("deleted %d, want the UDP flow", st.Deleted())
	}
	k.sleep(time.Hour)
	if st = k.sweep(s); st.Deleted() != 1 {
		t.Fatalf("deleted %d, want the last one", st.Deleted())
	}
	k.wantEntries(0)
}

func TestAPairLivesAsLongAsEitherAndDiesAsOne(t *testing.T) { bothFamilies(t, testPair, testPair) }

func testPair[A layout.Address](t *testing.T, k *kernel[A]) {
	keys := k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Minute})
	conflict := k.put(flow[A]{client: addr[A](3, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Minute, flags: layout.CTFConflict})
	s := k.sweeper(Options{})
	if errs := CheckInvariants(k.wantEntries(4), 0); errs != nil {
		t.Fatal(errs)
	}
	for _, one := range []int{0, 1, 0} {
		k.sleep(50 * time.Second)
		k.see(keys[one])
		k.see(conflict[one])
		k.sleep(50 * time.Second)
		st := k.sweep(s)
		if st.Deleted() != 0 || st.KeptByTwin != 2 || st.Orphans != 0 {
			t.Fatalf("deleted %d, kept by twin %d, orphans %d; want 0, 2, 0", st.Deleted(), st.KeptByTwin, st.Orphans)
		}
	}
	if errs := CheckInvariants(k.wantEntries(4), 0); errs != nil {
		t.Fatal(errs)
	}
	k.sleep(11 * time.Second)
	entries := k.wantEntries(4)
	if errs := CheckInvariants(entries, time.Second/2); len(errs) != 4 {
		t.Fatalf("both dead, not swept: %v; want all four complained of", errs)
	}
	st := k.sweep(s)
	if st.Deleted() != 4 || st.Orphans != 0 || st.Touched != 0 {
		t.Fatalf("deleted %d, orphans %d, touched %d; want 4, 0, 0", st.Deleted(), st.Orphans, st.Touched)
	}
	k.wantEntries(0)
}

func TestAPairThatIsHalfPromotedIsStillAPair(t *testing.T) {
	bothFamilies(t, testHalfPair, testHalfPair)
}

func testHalfPair[A layout.Address](t *testing.T, k *kernel[A]) {
	fl := flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Minute, half: true}
	keys := k.put(fl)
	var v layout.CTValue[A]
	if err := k.f.half.Lookup(&keys[1], &v); err != nil {
		t.Fatal(err)
	}
	if err := k.f.confirmed.Put(&keys[1], &v); err != nil {
		t.Fatal(err)
	}
	k.del(keys[1]) // of the confirmed one
	if err := k.f.confirmed.Put(&keys[1], &v); err != nil {
		t.Fatal(err)
	}
	if err := k.f.half.Delete(&keys[1]); err != nil {
		t.Fatal(err)
	}
	k.sleep(30 * time.Second)
	s := k.sweeper(Options{})
	if st := k.sweep(s); st.Deleted() != 0 {
		t.Fatalf("deleted %d of a pair in two tables", st.Deleted())
	}
	k.sleep(31 * time.Second)
	if st := k.sweep(s); st.Deleted() != 2 || st.Orphans != 0 {
		t.Fatalf("deleted %d, orphans %d; want both", st.Deleted(), st.Orphans)
	}
}

func TestFlowsOfThisHostThatAreTranslatedAreCounted(t *testing.T) {
	bothFamilies(t, testHostFlows, testHostFlows)
}

func testHostFlows[A layout.Address](t *testing.T, k *kernel[A]) {
	k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Minute, flags: layout.CTFHostOrigin})
	k.put(flow[A]{client: addr[A](1, 1001), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Hour})
	k.put(flow[A]{client: addr[A](1, 1002), server: addr[A](2, 80), state: layout.CTEstablished, timeout: time.Hour,
		flags: layout.CTFHostOrigin})
	s := k.sweeper(Options{})
	if st := k.sweep(s); st.HostFlows != 1 {
		t.Fatalf("counted %d, want the one that is both translated and this host's", st.HostFlows)
	}
	k.sleep(2 * time.Minute)
	if st := k.sweep(s); st.HostFlows != 0 {
		t.Fatalf("counted %d after its end", st.HostFlows)
	}
}

func TestAnOrphanDiesAfterTheGrace(t *testing.T) { bothFamilies(t, testOrphan, testOrphan) }

func testOrphan[A layout.Address](t *testing.T, k *kernel[A]) {
	keys := k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
		state: layout.CTEstablished, timeout: time.Hour})
	// In the twin's place is somebody else's flow.
	k.del(keys[1])
	k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](2, 8080), state: layout.CTEstablished, timeout: time.Hour})
	if errs := CheckInvariants(k.wantEntries(2), 0); len(errs) != 1 {
		t.Fatalf("got %v, want the orphan complained of", errs)
	}
	s := k.sweeper(Options{OrphanGrace: 5 * time.Second, OrphanSweeps: 2})
	if st := k.sweep(s); st.Deleted() != 0 {
		t.Fatal("deleted while it may still be in the making")
	}
	k.sleep(6 * time.Second)
	if st := k.sweep(s); st.Deleted() != 0 {
		t.Fatal("deleted in a sweep that does not look for orphans")
	}
	if st := k.sweep(s); st.Deleted() != 1 || st.Orphans != 1 {
		t.Fatalf("deleted %d, orphans %d; want the orphan alone", st.Deleted(), st.Orphans)
	}
	k.wantEntries(1)
}

func TestAnEntrySeenAgainIsNotDeleted(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 16, 16)
	keys := k.put(flow[layout.AddrV4]{client: addr[layout.AddrV4](1, 1), server: addr[layout.AddrV4](2, 2), timeout: time.Second})
	if r, err := removeUnchanged(k.f.confirmed, &keys[0], uint32(k.now)-1); r != touched || err != nil {
		t.Fatalf("got %v, %v; want it left alone", r, err)
	}
	k.wantEntries(1)
	if r, err := removeUnchanged(k.f.confirmed, &keys[0], uint32(k.now)); r != removed || err != nil {
		t.Fatalf("got %v, %v; want it removed", r, err)
	}
	if r, err := removeUnchanged(k.f.confirmed, &keys[0], uint32(k.now)); r != gone || err != nil {
		t.Fatalf("got %v, %v; want it gone", r, err)
	}
}

// fill writes n dead flows: pairs and plain ones by turns.
func fill[A layout.Address](k *kernel[A], n int) {
	for i := 0; i < n; {
		client := netip.AddrPortFrom(addr[A](byte(i>>14)+1, 0).Addr(), uint16(i))
		fl := flow[A]{client: client, server: addr[A](250, 80), state: layout.CTEstablished, timeout: time.Second}
		if i%4 == 0 && i+2 <= n {
			fl.backend = addr[A](byte(i%200), 8080)
			i++
		}
		k.put(fl)
		i++
	}
}

func TestASweepStopsWhenItsBudgetIsUsedAndGoesOnWhereItWas(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 8192, 16)
	fill(k, 5000)
	k.sleep(time.Minute)
	steps := 0
	// Each look at the loop's clock costs 3 ms, so that a step sees its budget of 5 ms used after two pieces.
	wall := k.wall
	s := k.sweeper(Options{Budget: 5 * time.Millisecond, Interval: time.Minute, Now: func() time.Time {
		wall = wall.Add(3 * time.Millisecond)
		return wall
	}})
	for {
		steps++
		finished, err := s.Step()
		if err != nil {
			t.Fatal(err)
		}
		if finished {
			break
		}
		if next := s.Next().Sub(wall); next < 15*time.Millisecond || next > 25*time.Millisecond {
			t.Fatalf("next step in %v, want the pause of 20ms", next)
		}
	}
	st := s.Last()
	if steps < 5 || st.Steps != steps {
		t.Fatalf("%d steps, %d counted; want several", steps, st.Steps)
	}
	if st.Deleted() != 5000 {
		t.Fatalf("deleted %d of 5000 over several steps", st.Deleted())
	}
	if d := s.Next().Sub(st.Started); d != time.Minute {
		t.Fatalf("next sweep %v after this one's start, want the interval", d)
	}
	k.wantEntries(0)
}

func TestATableThatIsNearlyFullIsSweptMoreOften(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 100, 16)
	fill(k, 81)
	s := k.sweeper(Options{Interval: 16 * time.Second})
	st := k.sweep(s)
	if !s.Pressure() || s.Next().Sub(st.Started) != 2*time.Second {
		t.Fatalf("pressure %v, next after %v; want an eighth of the interval", s.Pressure(), s.Next().Sub(st.Started))
	}
	k.sleep(2 * time.Second)
	st = k.sweep(s)
	if s.Pressure() || s.Next().Sub(st.Started) != 16*time.Second {
		t.Fatalf("emptied: pressure %v, next after %v", s.Pressure(), s.Next().Sub(st.Started))
	}
}

func TestAWalkWithoutBatchesSeesTheSame(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 8192, 16)
	fill(k, 3000)
	w := newWalker[layout.AddrV4](k.f.confirmed)
	w.single = true
	seen := map[layout.CTKeyV4]bool{}
	for !w.done {
		keys, _, err := w.read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			if seen[keys[i]] {
				t.Fatalf("%s twice", keyString(&keys[i]))
			}
			seen[keys[i]] = true
			if err := k.f.confirmed.Delete(&keys[i]); err != nil { // deleting what was returned must not disturb
				t.Fatal(err)
			}
		}
	}
	if len(seen) != 3000 {
		t.Fatalf("saw %d of 3000", len(seen))
	}
	w = newWalker[layout.AddrV4](k.f.confirmed)
	w.single = true
	if keys, _, err := w.read(); err != nil || len(keys) != 0 || !w.done {
		t.Fatalf("of an empty map: %d entries, done %v, %v", len(keys), w.done, err)
	}
}

func TestATableThatCanNotBeReadIsGivenUpNotTheOthers(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 64, 16)
	k.put(flow[layout.AddrV4]{client: addr[layout.AddrV4](1, 1), server: addr[layout.AddrV4](2, 2), timeout: time.Second})
	k.sleep(time.Minute)
	closed := newMap[layout.AddrV4](t, ebpf.LRUHash, 16)
	closed.Close()
	k.tables.V4Half = closed
	s := k.sweeper(Options{})
	finished, err := s.Step()
	if !finished || err == nil || s.Last().Errors != 1 {
		t.Fatalf("finished %v, error %v, counted %d; want one error", finished, err, s.Last().Errors)
	}
	k.tables.V4Half = nil
	k.sweep(s)
	k.wantEntries(0)
}
