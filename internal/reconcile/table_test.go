// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeKernel is a table that refuses what a kernel's hash map would, and counts what it is asked.
type fakeKernel struct {
	entries map[string]int
	max     int              // entries it has room for
	broken  map[string]error // keys that it refuses to touch
	listErr error
	log     []string // operations, in order
	batches []int    // their sizes
}

func newFakeKernel(max int) *fakeKernel {
	return &fakeKernel{entries: map[string]int{}, max: max, broken: map[string]error{}}
}

func (f *fakeKernel) List(_ context.Context, visit func(string, int)) error {
	if f.listErr != nil {
		return f.listErr
	}
	for k, v := range f.entries {
		visit(k, v)
	}
	return nil
}

func (f *fakeKernel) Update(_ context.Context, batch []Entry[string, int]) []error {
	f.batches = append(f.batches, len(batch))
	var errs []error
	for i, e := range batch {
		err := f.broken[e.Key]
		if _, there := f.entries[e.Key]; err == nil && !there && len(f.entries) >= f.max {
			err = fmt.Errorf("update %s: %w", e.Key, unix.E2BIG)
		}
		if err != nil {
			if errs == nil {
				errs = make([]error, len(batch))
			}
			errs[i] = err
			continue
		}
		f.entries[e.Key] = e.Value
		f.log = append(f.log, fmt.Sprintf("%s=%d", e.Key, e.Value))
	}
	return errs
}

func (f *fakeKernel) Delete(_ context.Context, keys []string) []error {
	f.batches = append(f.batches, len(keys))
	var errs []error
	for i, k := range keys {
		if err := f.broken[k]; err != nil {
			if errs == nil {
				errs = make([]error, len(keys))
			}
			errs[i] = err
			continue
		}
		delete(f.entries, k)
		f.log = append(f.log, "-"+k)
	}
	return errs
}

// clock is a clock that tests set.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func newTestTable(k *fakeKernel) (*Table[string, int], *clock) {
	c := &clock{time.Unix(1000, 0)}
	return New[string, int](k, Options[int]{
		Equal: func(a, b int) bool { return a == b }, Now: c.now, Random: func() float64 { return 0 },
		MinRetry: 100 * time.Millisecond, MaxRetry: 5 * time.Second,
	}), c
}

func wantLog(t *testing.T, k *fakeKernel, want ...string) {
	t.Helper()
	if !slices.Equal(k.log, want) {
		t.Fatalf("operations %q, want %q", k.log, want)
	}
	k.log = nil
}

func wantPhase[V any](t *testing.T, table *Table[string, V], key string, want Phase) Status {
	t.Helper()
	s, ok := table.Status(key)
	if !ok || s.Phase != want {
		t.Fatalf("status of %s: %+v (known: %v), want %s", key, s, ok, want)
	}
	return s
}

func TestOnlyDifferencesAreWrittenInTheOrderTheyWereSet(t *testing.T) {
	k := newFakeKernel(100)
	k.entries = map[string]int{"same": 1, "other": 1}
	table, _ := newTestTable(k)
	for i, key := range []string{"z", "same", "other", "a"} {
		table.Set(key, max(i, 1))
	}
	if res := table.Apply(t.Context()); res.Updated != 3 || res.Err != nil {
		t.Fatalf("got %+v, want 3 updates", res)
	}
	wantLog(t, k, "z=1", "other=2", "a=3")
	table.Set("z", 1)
	table.Set("a", 3)
	table.Apply(t.Context())
	wantLog(t, k)
	for _, key := range []string{"z", "same", "other", "a"} {
		wantPhase(t, table, key, Done)
	}
	if _, ok := table.NextRetry(); ok {
		t.Fatal("something is due although all is done")
	}
}

func TestNothingIsDeletedBeforeAllowPrune(t *testing.T) {
	k := newFakeKernel(100)
	k.entries = map[string]int{"old": 1, "adopted": 2}
	table, _ := newTestTable(k)
	table.Set("adopted", 2)
	table.Set("short-lived", 3)
	table.Apply(t.Context())
	table.Delete("short-lived")
	table.Apply(t.Context())
	wantLog(t, k, "short-lived=3")
	if _, ok := table.NextRetry(); ok {
		t.Fatal("a delete that is not allowed yet must not wake the loop")
	}
	table.AllowPrune()
	if _, ok := table.NextRetry(); !ok {
		t.Fatal("deletes are due after AllowPrune")
	}
	if res := table.Apply(t.Context()); res.Deleted != 2 {
		t.Fatalf("got %+v, want 2 deletes", res)
	}
	if want := map[string]int{"adopted": 2}; !maps.Equal(k.entries, want) {
		t.Fatalf("left %v, want %v", k.entries, want)
	}
	if c := table.Counts(); c != (Counts{Desired: 1, Actual: 1}) {
		t.Fatalf("counts %+v", c)
	}
}

func TestAFullTableTakesWhatItCanAndTheRestWhenRoomIsMade(t *testing.T) {
	k := newFakeKernel(3)
	k.entries = map[string]int{"old": 0}
	table, c := newTestTable(k)
	table.AllowPrune()
	table.Set("old", 0)
	for _, key := range []string{"a", "b", "c", "d"} {
		table.Set(key, 1)
	}
	res := table.Apply(t.Context())
	if res.Updated != 2 || res.Failed != 2 || !errors.Is(res.Err, unix.E2BIG) {
		t.Fatalf("got %+v, want 2 written and 2 refused", res)
	}
	if s := wantPhase(t, table, "d", Failed); !errors.Is(s.Err, unix.E2BIG) || s.Attempts != 1 {
		t.Fatalf("status of d: %+v", s)
	}
	// An existing key can be changed in a full table.
	table.Set("a", 2)
	if res := table.Apply(t.Context()); res.Updated != 1 || res.Failed != 0 {
		t.Fatalf("changing a: %+v", res)
	}
	// Room for one: it is taken in the same Apply, without waiting for the back-off.
	table.Delete("old")
	if res := table.Apply(t.Context()); res.Deleted != 1 || res.Updated != 1 || res.Failed != 0 {
		t.Fatalf("after making room: %+v", res)
	}
	wantPhase(t, table, "c", Done)
	wantPhase(t, table, "d", Failed)
	// The map is made larger: nobody says so, the back-off finds it.
	k.max = 10
	at, ok := table.NextRetry()
	if !ok || at.Before(c.t) {
		t.Fatalf("next retry %v, %v", at, ok)
	}
	c.t = at
	if res := table.Apply(t.Context()); res.Updated != 1 || res.Err != nil {
		t.Fatalf("after growing: %+v", res)
	}
	if c := table.Counts(); c.Failed != 0 || c.Pending != 0 {
		t.Fatalf("counts %+v", c)
	}
}

func TestARefusedKeyBacksOffUpToTheMaximumAndNeverGivesUp(t *testing.T) {
	k := newFakeKernel(10)
	k.broken["bad"] = errors.New("no")
	table, c := newTestTable(k)
	table.Set("bad", 1)
	table.Set("good", 1)
	var gaps []time.Duration
	for range 9 {
		table.Apply(t.Context())
		at, ok := table.NextRetry()
		if !ok {
			t.Fatal("given up")
		}
		gaps = append(gaps, at.Sub(c.t))
		c.t = at.Add(-time.Nanosecond)
		if res := table.Apply(t.Context()); res.Failed != 0 {
			t.Fatalf("tried before its time: %+v", res)
		}
		c.t = at
	}
	ms := time.Millisecond
	if want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, 5000 * ms}; !slices.Equal(gaps, want) {
		t.Fatalf("gaps %v, want %v", gaps, want)
	}
	wantLog(t, k, "good=1")
	if s := wantPhase(t, table, "bad", Failed); s.Attempts != 9 || s.Since != time.Unix(1000, 0) {
		t.Fatalf("status %+v, want 9 attempts since the first", s)
	}
	// A new value is tried at once.
	delete(k.broken, "bad")
	table.Set("bad", 2)
	if res := table.Apply(t.Context()); res.Updated != 1 {
		t.Fatalf("got %+v", res)
	}
}

func TestJitterSpreadsRetries(t *testing.T) {
	table, _ := newTestTable(newFakeKernel(1))
	table.opts.Random = func() float64 { return 0.999 }
	if d := table.delay(1); d < 75*time.Millisecond || d > 76*time.Millisecond {
		t.Fatalf("delay %v, want a quarter less than 100ms", d)
	}
	if d := table.delay(1000); d < 3*time.Second || d > 5*time.Second {
		t.Fatalf("delay %v after many attempts", d)
	}
}

func TestWhatWaitsForSomethingIsPendingAndRetriedWhenItComes(t *testing.T) {
	k := newFakeKernel(10)
	k.broken["route"] = fmt.Errorf("no such device: %w", ErrPending)
	table, _ := newTestTable(k)
	table.Set("route", 1)
	if res := table.Apply(t.Context()); res.Pending != 1 || res.Failed != 0 || res.Err != nil {
		t.Fatalf("got %+v, want it pending", res)
	}
	if s := wantPhase(t, table, "route", Pending); s.Err == nil {
		t.Fatal("no reason given")
	}
	delete(k.broken, "route")
	table.Retry("route")
	if res := table.Apply(t.Context()); res.Updated != 1 {
		t.Fatalf("got %+v", res)
	}
	table.Retry("route")
	table.Retry("unknown")
	if res := table.Apply(t.Context()); res.Updated != 0 {
		t.Fatalf("a key that is done was written again: %+v", res)
	}
}

func TestResyncRepairsDriftAndReportsIt(t *testing.T) {
	k := newFakeKernel(10)
	k.entries = map[string]int{"a": 1, "b": 0}
	table, _ := newTestTable(k)
	table.AllowPrune()
	for _, key := range []string{"a", "b", "c"} {
		table.Set(key, 1)
	}
	if drift, err := table.Resync(t.Context()); err != nil || drift != (Drift{}) {
		t.Fatalf("the first read: %+v, %v; want no drift", drift, err)
	}
	table.Apply(t.Context())
	k.log = nil
	delete(k.entries, "a")
	k.entries["b"] = 7
	k.entries["x"] = 1
	drift, err := table.Resync(t.Context())
	if want := (Drift{Missing: 1, Changed: 1, Extra: 1}); err != nil || drift != want || drift.Total() != 3 {
		t.Fatalf("got %+v, %v; want %+v", drift, err, want)
	}
	table.Apply(t.Context())
	if want := map[string]int{"a": 1, "b": 1, "c": 1}; !maps.Equal(k.entries, want) {
		t.Fatalf("kernel has %v, want %v", k.entries, want)
	}
	if drift, _ := table.Resync(t.Context()); drift.Total() != 0 {
		t.Fatalf("after the repair: %+v", drift)
	}
	if len(k.log) != 3 {
		t.Fatalf("operations %q, want 3", k.log)
	}
}

func TestAnUnreadableKernelIsNotWrittenTo(t *testing.T) {
	k := newFakeKernel(10)
	k.listErr = errors.New("no permission")
	table, c := newTestTable(k)
	table.AllowPrune()
	table.Set("a", 1)
	if res := table.Apply(t.Context()); !errors.Is(res.Err, k.listErr) || res.Updated != 0 {
		t.Fatalf("got %+v", res)
	}
	at, ok := table.NextRetry()
	if !ok || at.Sub(c.t) != 100*time.Millisecond {
		t.Fatalf("next retry in %v, %v", at.Sub(c.t), ok)
	}
	k.listErr = nil
	c.t = at
	if res := table.Apply(t.Context()); res.Updated != 1 || res.Err != nil {
		t.Fatalf("got %+v", res)
	}
	// A later Resync that fails leaves everything as it was.
	k.listErr = errors.New("interrupted")
	if _, err := table.Resync(t.Context()); err == nil {
		t.Fatal("no error")
	}
	wantPhase(t, table, "a", Done)
}

func TestObservedChangesAreRepairedButNotFasterThanMinRetry(t *testing.T) {
	k := newFakeKernel(10)
	table, c := newTestTable(k)
	table.AllowPrune()
	table.Set("a", 1)
	table.Apply(t.Context())
	c.advance(time.Second)
	k.log = nil

	table.Observe("a", 1) // the echo of our own write
	table.ObserveGone("unknown")
	if _, ok := table.NextRetry(); ok {
		t.Fatal("something is due")
	}
	table.ObserveGone("a")
	wantPhase(t, table, "a", Pending)
	table.Apply(t.Context())
	wantLog(t, k, "a=1")

	// The other one insists: its next change waits.
	table.Observe("a", 9)
	table.Apply(t.Context())
	wantLog(t, k)
	at, ok := table.NextRetry()
	if !ok || at.Sub(c.t) != 100*time.Millisecond {
		t.Fatalf("repair in %v, %v; want 100ms", at.Sub(c.t), ok)
	}
	c.t = at
	table.Apply(t.Context())
	wantLog(t, k, "a=1")

	// What turns up and is not desired is removed.
	table.Observe("new", 5)
	table.Apply(t.Context())
	wantLog(t, k, "-new")
}

func TestReplaceKeepsWhatStays(t *testing.T) {
	k := newFakeKernel(10)
	table, _ := newTestTable(k)
	table.AllowPrune()
	table.Replace(maps.All(map[string]int{"a": 1, "b": 1}))
	table.Apply(t.Context())
	k.log = nil
	table.Replace(maps.All(map[string]int{"b": 1, "c": 1}))
	table.Apply(t.Context())
	wantLog(t, k, "c=1", "-a")
	if v, ok := table.Desired("b"); !ok || v != 1 {
		t.Fatalf("desired b: %d, %v", v, ok)
	}
	if _, ok := table.Actual("a"); ok {
		t.Fatal("a is still present")
	}
}

func TestBatchesAreBounded(t *testing.T) {
	k := newFakeKernel(10000)
	table, _ := newTestTable(k)
	for i := range 2500 {
		table.Set(fmt.Sprint(i), i)
	}
	table.Apply(t.Context())
	if want := []int{1024, 1024, 452}; !slices.Equal(k.batches, want) {
		t.Fatalf("batches %v, want %v", k.batches, want)
	}
}

func TestACancelledApplyLeavesTheRestForTheNext(t *testing.T) {
	k := newFakeKernel(10)
	table, _ := newTestTable(k)
	table.Set("a", 1)
	if _, err := table.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := table.Apply(ctx); res.Updated != 0 {
		t.Fatalf("got %+v", res)
	}
	if _, ok := table.NextRetry(); !ok {
		t.Fatal("the rest is forgotten")
	}
	if res := table.Apply(t.Context()); res.Updated != 1 {
		t.Fatalf("got %+v", res)
	}
}

func TestChangesWithoutApplyDoNotPileUp(t *testing.T) {
	table, _ := newTestTable(newFakeKernel(10))
	for i := range 100_000 {
		table.Set("a", i)
		table.Delete("b")
		table.Set("b", i)
	}
	if n := len(table.updates.places); n > 256 {
		t.Fatalf("%d places for 2 keys", n)
	}
}
