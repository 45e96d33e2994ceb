// SPDX-License-Identifier: Apache-2.0

// Package reconcile is the one idea by which everything in the kernel is kept as it should be: BPF maps, routes,
// neighbours, attachments. A Table holds what is desired and what the kernel actually has, and makes the second
// equal to the first by the fewest operations.
//
// In: desired entries (Set, Delete, Replace) and what is learnt about the kernel (Resync reads all of it, Observe one
// entry). Out: batches of Operations, and a Status for each key. The caller is the one loop that owns the dataplane's
// state: it decides when to Apply and in which order tables follow each other (updates of all tables first, in the
// order a reader needs; then deletes in the opposite order), and it sleeps until NextRetry.
//
// A Table never starts a goroutine, never sleeps, and never deletes anything before AllowPrune: until all sources have
// reported everything once, an entry that nobody asked for may belong to an object not yet seen. The cost of Apply is
// proportional to what changed; only Resync and Replace walk the whole table.
package reconcile

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPending, wrapped in an error returned by Operations, says that an entry cannot be applied yet and that this is
// normal: its interface is not there, say. Its status is Pending with that reason, and it is tried again as an error
// would be.
var ErrPending = errors.New("pending")

// Entry is a key with the value it is to have.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// Operations is how a Table reaches the kernel.
type Operations[K comparable, V any] interface {
	// List calls visit for every entry that is there and is ours. It must not report what belongs to others: what it
	// reports and nobody desires is deleted.
	List(ctx context.Context, visit func(K, V)) error
	// Update creates or changes the entries of batch; creating one that is there is no error. It returns nil when all
	// are done, else a slice of len(batch) with an error for each that is not. One that fails must not keep the
	// others from being tried.
	Update(ctx context.Context, batch []Entry[K, V]) []error
	// Delete removes keys, with results as of Update. Removing one that is absent is no error.
	Delete(ctx context.Context, keys []K) []error
}

// Options of a Table. Equal is required.
type Options[V any] struct {
	// Equal tells whether the kernel's value is as good as the desired one. It need not be symmetric: a desired value
	// may leave something to the kernel.
	Equal func(have, want V) bool
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// MinRetry is the delay after a key's first failure; each further one doubles it. Also the shortest time between
	// two repairs of a key that somebody keeps changing. 100 ms if zero.
	MinRetry time.Duration
	// MaxRetry bounds the delay: never give up, never wait an hour. 30 s if zero.
	MaxRetry time.Duration
	// Random returns a number in [0, 1) for the jitter; math/rand/v2 if nil.
	Random func() float64
	// BatchSize is the most entries passed to one Operations call; 1024 if zero.
	BatchSize int
	// IsFull tells an error that means "no room": such keys are tried again as soon as a delete has made room, not
	// only after their back-off. E2BIG and ENOSPC if nil.
	IsFull func(error) bool
}

// Phase is where a key stands on its way into the kernel.
type Phase uint8

const (
	// Pending: not applied yet, or waiting for something that is expected to come.
	Pending Phase = iota
	// Done: the kernel has it as desired.
	Done
	// Failed: the last attempt was refused; it will be repeated.
	Failed
)

// String returns the phase as it is shown to people.
func (p Phase) String() string {
	switch p {
	case Pending:
		return "pending"
	case Done:
		return "done"
	case Failed:
		return "error"
	}
	return "unknown"
}

// Status of one key.
type Status struct {
	Phase    Phase
	Since    time.Time // when the phase was entered
	Err      error     // of the last attempt; nil when done, or when none was made
	Attempts int       // failed ones in a row
	Delete   bool      // the key is to be removed, not written
}

// Result of one Apply.
type Result struct {
	Updated int   // entries written
	Deleted int   // entries removed
	Failed  int   // refused; each key's Status says why
	Pending int   // not possible yet
	Err     error // of the first refused key, or of reading the actual state; nil if Failed is 0 and all could be read
	Unread  bool  // the actual state is not known yet, or not any more: it is to be read (again) first
}

// Add adds up the results of several tables.
func (r Result) Add(o Result) Result {
	r.Updated += o.Updated
	r.Deleted += o.Deleted
	r.Failed += o.Failed
	r.Pending += o.Pending
	r.Unread = r.Unread || o.Unread
	if r.Err == nil {
		r.Err = o.Err
	}
	return r
}

// Drift is what Resync found different from what the table had last written or read. The first Resync, which has
// nothing to compare with, reports none.
type Drift struct {
	Missing int // written by us, gone
	Changed int // written by us, now different
	Extra   int // ours by its marks, but not known
}

// Total is the number of entries found different.
func (d Drift) Total() int { return d.Missing + d.Changed + d.Extra }

// Counts of a table, for metrics.
type Counts struct {
	Desired int
	Actual  int
	Pending int // to be written or deleted, without a refusal
	Failed  int // refused at the last attempt
}

func isFull(err error) bool {
	return errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC)
}
