// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"time"
)

// Apply does all that is due: updates, deletes, and once more those updates for which the deletes made room.
// The first one reads the actual state, if Resync was not called before.
func (t *Table[K, V]) Apply(ctx context.Context) Result {
	res := t.ApplyUpdates(ctx)
	del := t.ApplyDeletes(ctx)
	res = res.Add(del)
	if del.Deleted > 0 && t.updates.live > 0 {
		res = res.Add(t.ApplyUpdates(ctx))
	}
	return res
}

// ApplyUpdates writes what is due to be written, in the order in which it became so.
func (t *Table[K, V]) ApplyUpdates(ctx context.Context) Result {
	if res, ok := t.ready(ctx); !ok {
		return res
	}
	var res Result
	// Keys that are queued while this runs (a refused one is not) wait for the next call.
	for left := t.updates.live; left > 0 && ctx.Err() == nil; {
		records := t.updates.pop(min(left, t.opts.BatchSize), seqUpdates[K, V])
		left -= len(records)
		batch := make([]Entry[K, V], len(records))
		for i, r := range records {
			batch[i] = Entry[K, V]{r.key, r.want}
		}
		errs := t.ops.Update(ctx, batch)
		for i, r := range records {
			if err := errorAt(errs, i); err != nil {
				t.refused(r, err, &res)
				continue
			}
			res.Updated++
			t.setHave(r, batch[i].Value)
			t.finish(r)
		}
	}
	return res
}

// ApplyDeletes removes what is due to be removed; nothing before AllowPrune.
func (t *Table[K, V]) ApplyDeletes(ctx context.Context) Result {
	if !t.pruneOK {
		return Result{}
	}
	if res, ok := t.ready(ctx); !ok {
		return res
	}
	var res Result
	for left := t.deletes.live; left > 0 && ctx.Err() == nil; {
		records := t.deletes.pop(min(left, t.opts.BatchSize), seqDeletes[K, V])
		left -= len(records)
		keys := make([]K, len(records))
		for i, r := range records {
			keys[i] = r.key
		}
		errs := t.ops.Delete(ctx, keys)
		for i, r := range records {
			if err := errorAt(errs, i); err != nil {
				t.refused(r, err, &res)
				continue
			}
			res.Deleted++
			t.clearHave(r)
			t.finish(r)
		}
	}
	// Each entry removed is room for one that was refused.
	for _, r := range t.noRoom.pop(res.Deleted, seqNoRoom[K, V]) {
		t.leaveQueues(r)
		t.enqueue(r)
	}
	return res
}

// ready makes sure that the actual state is known and queues the retries that are due.
func (t *Table[K, V]) ready(ctx context.Context) (Result, bool) {
	now := t.opts.Now()
	if !t.read {
		if now.Before(t.readRetry) {
			return Result{Unread: true}, false
		}
		if _, err := t.Resync(ctx); err != nil {
			return Result{Err: err, Unread: true}, false
		}
	}
	for len(t.retries) > 0 && !t.retries[0].due.After(now) {
		r := t.retries[0]
		t.leaveQueues(r)
		t.enqueue(r)
	}
	return Result{}, true
}

// finish settles a key after a successful operation. One that was observed meanwhile to differ again is queued.
func (t *Table[K, V]) finish(r *record[K, V]) {
	t.leaveQueues(r)
	if t.settled(r) {
		r.status.Since = t.opts.Now()
		return
	}
	t.setStatus(r, Status{Phase: Pending, Delete: !r.wanted})
	t.enqueue(r)
}

// refused records a failed attempt and when to make the next.
func (t *Table[K, V]) refused(r *record[K, V], err error, res *Result) {
	s := Status{Phase: Failed, Err: err, Attempts: r.status.Attempts + 1, Delete: !r.wanted}
	if errors.Is(err, ErrPending) {
		s.Phase = Pending
		res.Pending++
	} else {
		res.Failed++
		if res.Err == nil {
			res.Err = err
		}
	}
	t.leaveQueues(r)
	t.setStatus(r, s)
	r.due = t.opts.Now().Add(t.delay(s.Attempts))
	heap.Push(&t.retries, r)
	if s.Phase == Failed && r.wanted && t.opts.IsFull(err) {
		t.seq++
		r.inNoRoom = t.seq
		t.noRoom.compact(seqNoRoom[K, V])
		t.noRoom.push(r, t.seq)
	}
}

// delay is the back-off after so many attempts: doubled each time, bounded, and shortened by up to a quarter at random
// so that keys which failed together do not all come back together.
func (t *Table[K, V]) delay(attempts int) time.Duration {
	d := float64(t.opts.MinRetry) * math.Pow(2, float64(min(attempts, 40)-1))
	d = min(d, float64(t.opts.MaxRetry))
	return time.Duration(d * (1 - t.opts.Random()/4))
}

func errorAt(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}
