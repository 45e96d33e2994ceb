// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// Table reconciles one kind of kernel object. It is not safe for concurrent use: one loop owns it.
type Table[K comparable, V any] struct {
	ops  Operations[K, V]
	opts Options[V]

	records map[K]*record[K, V]
	updates queue[K, V] // keys to be written, in the order they were asked for
	deletes queue[K, V] // keys to be removed
	noRoom  queue[K, V] // keys refused because the kernel's table is full; also in retries
	retries retryHeap[K, V]

	read      bool // actual state was read at least once
	pruneOK   bool
	readRetry time.Time // do not try to read again before this
	readTries int
	seq       uint64
	counts    Counts
}

// record is all that is known of one key. It exists while the key is desired or present.
type record[K comparable, V any] struct {
	key          K
	want, have   V
	wanted       bool
	present      bool
	inUpdates    uint64 // sequence number of its valid place in the queue; 0: not queued
	inDeletes    uint64
	inNoRoom     uint64
	heapIndex    int // place in retries; -1: none
	due          time.Time
	status       Status
	seen         bool // by the List that is going on
	countPending bool
	countFailed  bool
}

// New makes an empty table over ops.
func New[K comparable, V any](ops Operations[K, V], opts Options[V]) *Table[K, V] {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	if opts.MinRetry <= 0 {
		opts.MinRetry = 100 * time.Millisecond
	}
	if opts.MaxRetry <= 0 {
		opts.MaxRetry = 30 * time.Second
	}
	if opts.BatchSize <= 0 {
		opts.BatchSize = 1024
	}
	if opts.IsFull == nil {
		opts.IsFull = isFull
	}
	return &Table[K, V]{ops: ops, opts: opts, records: make(map[K]*record[K, V])}
}

// Set desires that key has value. Setting what is desired already costs a comparison.
func (t *Table[K, V]) Set(key K, value V) {
	r := t.records[key]
	if r == nil {
		r = t.add(key)
	} else if r.wanted && t.opts.Equal(r.want, value) {
		return
	}
	if !r.wanted {
		r.wanted = true
		t.counts.Desired++
	}
	r.want = value
	t.requeue(r)
}

// Delete desires that key is absent. The kernel's entry goes with the next Apply after AllowPrune.
func (t *Table[K, V]) Delete(key K) {
	r := t.records[key]
	if r == nil || !r.wanted {
		return
	}
	var zero V
	r.want, r.wanted = zero, false
	t.counts.Desired--
	t.requeue(r)
}

// Replace makes desired the whole desired state: what it does not have is deleted. Cost is that of the table.
func (t *Table[K, V]) Replace(desired iter.Seq2[K, V]) {
	for _, r := range t.records {
		r.seen = false
	}
	for k, v := range desired {
		t.Set(k, v)
		t.records[k].seen = true
	}
	for k, r := range t.records {
		if r.wanted && !r.seen {
			t.Delete(k)
		}
	}
}

// AllowPrune says that every source has reported all it has: from now on, what is not desired is deleted.
func (t *Table[K, V]) AllowPrune() { t.pruneOK = true }

// Desired returns the value that key is to have.
func (t *Table[K, V]) Desired(key K) (V, bool) {
	if r := t.records[key]; r != nil && r.wanted {
		return r.want, true
	}
	var zero V
	return zero, false
}

// Actual returns the value that the kernel has for key, as last read, observed or written.
func (t *Table[K, V]) Actual(key K) (V, bool) {
	if r := t.records[key]; r != nil && r.present {
		return r.have, true
	}
	var zero V
	return zero, false
}

// Status of a key that is desired, or still present though not desired.
func (t *Table[K, V]) Status(key K) (Status, bool) {
	if r := t.records[key]; r != nil {
		return r.status, true
	}
	return Status{}, false
}

// All ranges over every key with its status, in no order. The table must not be changed meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, Status] {
	return func(yield func(K, Status) bool) {
		for k, r := range t.records {
			if !yield(k, r.status) {
				return
			}
		}
	}
}

// Open ranges over the keys that are not as desired, in no order, at a cost of those. The table must not be changed
// meanwhile.
func (t *Table[K, V]) Open() iter.Seq2[K, Status] {
	return func(yield func(K, Status) bool) {
		for _, q := range []struct {
			places []place[K, V]
			seq    func(*record[K, V]) *uint64
		}{{t.updates.places, seqUpdates[K, V]}, {t.deletes.places, seqDeletes[K, V]}} {
			for _, p := range q.places {
				if p.r != nil && *q.seq(p.r) == p.seq && !yield(p.r.key, p.r.status) {
					return
				}
			}
		}
		for _, r := range t.retries {
			if !yield(r.key, r.status) {
				return
			}
		}
	}
}

// Counts of the table now.
func (t *Table[K, V]) Counts() Counts { return t.counts }

// Observe records what the kernel has for key, learnt from an event: a value that differs from the desired one is
// repaired by the next Apply, though a key is repaired at most once in MinRetry. Report only what is ours.
func (t *Table[K, V]) Observe(key K, have V) {
	r := t.records[key]
	if r == nil {
		r = t.add(key)
	}
	same := r.present && t.opts.Equal(have, r.have)
	t.setHave(r, have)
	if !same {
		t.requeueObserved(r)
	}
}

// ObserveGone records that the kernel does not have key any more.
func (t *Table[K, V]) ObserveGone(key K) {
	r := t.records[key]
	if r == nil || !r.present {
		return
	}
	t.clearHave(r)
	t.requeueObserved(r)
}

// Retry makes a key that failed or is pending due at once: what it waited for has come.
func (t *Table[K, V]) Retry(key K) {
	if r := t.records[key]; r != nil && r.heapIndex >= 0 {
		t.requeue(r)
	}
}

// NextRetry returns when Apply has something to do next; false if nothing is waiting. Something that is due at once
// has a time not after now.
func (t *Table[K, V]) NextRetry() (time.Time, bool) {
	if !t.read {
		return t.readRetry, true
	}
	if t.updates.live > 0 || (t.pruneOK && t.deletes.live > 0) {
		return t.opts.Now(), true
	}
	if len(t.retries) > 0 {
		return t.retries[0].due, true
	}
	return time.Time{}, false
}

// Resync reads all of the kernel's state and queues what differs from the desired one; the next Apply repairs it. It
// returns what had been changed behind the table's back. On error nothing is changed.
func (t *Table[K, V]) Resync(ctx context.Context) (Drift, error) {
	now := t.opts.Now()
	listed := make(map[K]V, t.counts.Actual)
	if err := t.ops.List(ctx, func(k K, v V) { listed[k] = v }); err != nil {
		t.readTries++
		if !t.read {
			t.readRetry = now.Add(t.delay(t.readTries))
		}
		return Drift{}, fmt.Errorf("read actual state: %w", err)
	}
	first := !t.read
	t.read, t.readTries = true, 0

	var drift Drift
	for k, v := range listed {
		r := t.records[k]
		switch {
		case r == nil:
			r = t.add(k)
			drift.Extra++
		case !r.present:
			drift.Extra++
		case t.opts.Equal(v, r.have):
			r.have = v // may say more than what we wrote
			continue
		default:
			drift.Changed++
		}
		t.setHave(r, v)
		t.requeue(r)
	}
	for k, r := range t.records {
		if _, ok := listed[k]; !ok && r.present {
			drift.Missing++
			t.clearHave(r)
			t.requeue(r)
		}
	}
	if first {
		drift = Drift{}
	}
	return drift, nil
}

// add makes the record of a key that is neither desired nor present yet.
func (t *Table[K, V]) add(key K) *record[K, V] {
	r := &record[K, V]{key: key, heapIndex: -1}
	r.status.Since = t.opts.Now()
	t.records[key] = r
	return r
}

func (t *Table[K, V]) setHave(r *record[K, V], have V) {
	if !r.present {
		r.present = true
		t.counts.Actual++
	}
	r.have = have
}

func (t *Table[K, V]) clearHave(r *record[K, V]) {
	if r.present {
		var zero V
		r.have, r.present = zero, false
		t.counts.Actual--
	}
}

// requeue puts a key whose desired or actual state has changed where it belongs now, to be tried at once. One that is
// waiting to be tried keeps its place.
func (t *Table[K, V]) requeue(r *record[K, V]) {
	keep := r.wanted && r.inUpdates != 0 || !r.wanted && r.inDeletes != 0
	if !keep || t.asDesired(r) {
		t.leaveQueues(r)
	}
	if t.settled(r) {
		return
	}
	t.setStatus(r, Status{Phase: Pending, Delete: !r.wanted})
	if !keep {
		t.enqueue(r)
	}
}

// asDesired tells whether the kernel has what is desired of a key.
func (t *Table[K, V]) asDesired(r *record[K, V]) bool {
	if r.wanted {
		return r.present && t.opts.Equal(r.have, r.want)
	}
	return !r.present
}

// requeueObserved is requeue for a change made by others: not sooner than MinRetry after our last write, so that two
// programs that both insist do not eat the CPU.
func (t *Table[K, V]) requeueObserved(r *record[K, V]) {
	wasDone, since := r.status.Phase == Done, r.status.Since
	t.requeue(r)
	if due := since.Add(t.opts.MinRetry); wasDone && (r.inUpdates != 0 || r.inDeletes != 0) && due.After(t.opts.Now()) {
		t.leaveQueues(r)
		r.due = due
		heap.Push(&t.retries, r)
	}
}

// settled finishes a key whose actual state is the desired one.
func (t *Table[K, V]) settled(r *record[K, V]) bool {
	if !t.asDesired(r) {
		return false
	}
	t.setStatus(r, Status{Phase: Done})
	if !r.wanted {
		delete(t.records, r.key)
	}
	return true
}

// enqueue puts a key at the end of the queue of what is to be done with it.
func (t *Table[K, V]) enqueue(r *record[K, V]) {
	t.seq++
	if r.wanted {
		r.inUpdates = t.seq
		t.updates.compact(seqUpdates[K, V])
		t.updates.push(r, t.seq)
	} else {
		r.inDeletes = t.seq
		t.deletes.compact(seqDeletes[K, V])
		t.deletes.push(r, t.seq)
	}
}

// leaveQueues takes a key out of every queue; its places there become void.
func (t *Table[K, V]) leaveQueues(r *record[K, V]) {
	if r.inUpdates != 0 {
		r.inUpdates = 0
		t.updates.live--
	}
	if r.inDeletes != 0 {
		r.inDeletes = 0
		t.deletes.live--
	}
	if r.inNoRoom != 0 {
		r.inNoRoom = 0
		t.noRoom.live--
	}
	if r.heapIndex >= 0 {
		heap.Remove(&t.retries, r.heapIndex)
	}
}

// setStatus keeps Since while the phase stays, and the counts right.
func (t *Table[K, V]) setStatus(r *record[K, V], s Status) {
	s.Since = r.status.Since
	if s.Phase != r.status.Phase {
		s.Since = t.opts.Now()
	}
	r.status = s
	if was := r.countPending; was != (s.Phase == Pending) {
		r.countPending = !was
		t.counts.Pending += delta(r.countPending)
	}
	if was := r.countFailed; was != (s.Phase == Failed) {
		r.countFailed = !was
		t.counts.Failed += delta(r.countFailed)
	}
}

func delta(up bool) int {
	if up {
		return 1
	}
	return -1
}
