// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRandomHistoriesEndWithTheKernelAsDesired drives a table through random histories of changes, refusals, full tables
// and meddling, and compares it with the naive model: the kernel must have what is desired, as far as there is room.
func TestRandomHistoriesEndWithTheKernelAsDesired(t *testing.T) {
	for seed := range uint64(2000) {
		if err := randomHistory(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func randomHistory(seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 1))
	key := func() string { return fmt.Sprint(rnd.IntN(12)) }
	k := newFakeKernel(4 + rnd.IntN(12))
	for range rnd.IntN(6) {
		k.entries[key()] = rnd.IntN(3)
	}
	foreign := maps.Clone(k.entries) // what was there before us
	table, c := newTestTable(k)
	table.opts.Random = rnd.Float64
	table.opts.BatchSize = 1 + rnd.IntN(5)
	ctx := context.Background()
	desired := map[string]int{}
	pruning := false

	for range 60 {
		switch rnd.IntN(12) {
		case 0, 1, 2:
			key, v := key(), rnd.IntN(3)
			table.Set(key, v)
			desired[key] = v
		case 3, 4:
			key := key()
			table.Delete(key)
			delete(desired, key)
		case 5:
			next := map[string]int{}
			for range rnd.IntN(8) {
				next[key()] = rnd.IntN(3)
			}
			table.Replace(maps.All(next))
			desired = next
		case 6:
			if len(k.broken) == 0 {
				k.broken[key()] = errors.New("refused")
			} else {
				clear(k.broken)
			}
		case 7:
			// Somebody meddles; we are told, or not, or falsely.
			key, v := key(), rnd.IntN(3)
			if _, there := k.entries[key]; there && rnd.IntN(2) == 0 {
				delete(k.entries, key)
				if rnd.IntN(2) == 0 {
					table.ObserveGone(key)
				}
			} else if there || len(k.entries) < k.max {
				k.entries[key] = v
				if rnd.IntN(2) == 0 {
					table.Observe(key, v)
				}
			}
		case 8:
			if _, err := table.Resync(ctx); err != nil {
				return err
			}
		case 9:
			c.advance(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		case 10:
			if !pruning && rnd.IntN(4) == 0 {
				table.AllowPrune()
				pruning = true
			}
		default:
			before := len(k.log)
			table.Apply(ctx)
			if !pruning {
				for _, op := range k.log[before:] {
					if op[0] == '-' {
						return fmt.Errorf("%s before AllowPrune", op)
					}
				}
			}
		}
		if err := checkCounts(table); err != nil {
			return err
		}
	}

	// Everything calms down.
	clear(k.broken)
	if _, err := table.Resync(ctx); err != nil {
		return err
	}
	table.AllowPrune()
	for range 20 {
		at, ok := table.NextRetry()
		if !ok {
			break
		}
		if at.After(c.t) {
			c.t = at
		}
		table.Apply(ctx)
	}
	if err := checkCounts(table); err != nil {
		return err
	}
	if len(desired) <= k.max {
		if !maps.Equal(k.entries, desired) {
			return fmt.Errorf("kernel has %v, desired %v, at first %v", k.entries, desired, foreign)
		}
		if at, ok := table.NextRetry(); ok {
			return fmt.Errorf("something is due at %v although all is done", at)
		}
		return nil
	}
	// More is desired than there is room for: the kernel is full of desired entries, the others say why.
	if len(k.entries) != k.max {
		return fmt.Errorf("kernel has %d entries, room for %d, desired %d", len(k.entries), k.max, len(desired))
	}
	for key, v := range desired {
		s, _ := table.Status(key)
		have, there := k.entries[key]
		if there && (have != v || s.Phase != Done) || !there && (s.Phase != Failed || !errors.Is(s.Err, unix.E2BIG)) {
			return fmt.Errorf("key %s: has %d (%v), desired %d, status %+v", key, have, there, v, s)
		}
	}
	return nil
}

// checkCounts compares the counts and the open keys that are kept with counted ones.
func checkCounts(table *Table[string, int]) error {
	var want Counts
	open := map[string]int{}
	for key := range table.Open() {
		open[key]++
	}
	for _, r := range table.records {
		if n := open[r.key]; n > 1 || (n == 1) != (r.status.Phase != Done) {
			return fmt.Errorf("key %s is %s and %d times among the open ones", r.key, r.status.Phase, n)
		}
		if r.wanted {
			want.Desired++
		}
		if r.present {
			want.Actual++
		}
		switch r.status.Phase {
		case Pending:
			want.Pending++
		case Failed:
			want.Failed++
		}
		if r.status.Phase != Done && r.inUpdates == 0 && r.inDeletes == 0 && r.heapIndex < 0 {
			return fmt.Errorf("key %s is %s but in no queue", r.key, r.status.Phase)
		}
		if r.wanted && (!r.present || r.have != r.want) && r.status.Phase == Done {
			return fmt.Errorf("key %s is done but differs", r.key)
		}
	}
	if got := table.Counts(); got != want {
		return fmt.Errorf("counts %+v, want %+v", got, want)
	}
	return nil
}
