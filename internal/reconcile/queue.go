// SPDX-License-Identifier: Apache-2.0

package reconcile

// queue is a first-in, first-out list of keys. A key leaves it by voiding its place (the sequence number in the record
// changes), which costs nothing; void places are skipped when they come up.
type queue[K comparable, V any] struct {
	places []place[K, V]
	live   int // places that are not void
}

type place[K comparable, V any] struct {
	r   *record[K, V]
	seq uint64
}

func (q *queue[K, V]) push(r *record[K, V], seq uint64) {
	q.places = append(q.places, place[K, V]{r, seq})
	q.live++
}

// compact drops void places when they are most of the queue: keys that change again and again while nothing is
// applied must not make it grow.
func (q *queue[K, V]) compact(seqOf func(*record[K, V]) *uint64) {
	if len(q.places) < 64 || len(q.places) < 4*q.live {
		return
	}
	kept := make([]place[K, V], 0, q.live)
	for _, p := range q.places {
		if *seqOf(p.r) == p.seq {
			kept = append(kept, p)
		}
	}
	q.places = kept
}

// Where a record keeps its sequence number in each queue.
func seqUpdates[K comparable, V any](r *record[K, V]) *uint64 { return &r.inUpdates }
func seqDeletes[K comparable, V any](r *record[K, V]) *uint64 { return &r.inDeletes }
func seqNoRoom[K comparable, V any](r *record[K, V]) *uint64  { return &r.inNoRoom }

// pop takes up to limit keys out of the queue whose sequence numbers seqOf finds.
func (q *queue[K, V]) pop(limit int, seqOf func(*record[K, V]) *uint64) []*record[K, V] {
	var out []*record[K, V]
	i := 0
	for ; i < len(q.places) && len(out) < limit; i++ {
		p := q.places[i]
		if seq := seqOf(p.r); *seq == p.seq {
			*seq = 0
			q.live--
			out = append(out, p.r)
		}
		q.places[i] = place[K, V]{}
	}
	q.places = q.places[i:]
	if q.live == 0 {
		q.places = nil // also frees void places behind
	}
	return out
}

// retryHeap is a container/heap of keys that wait, the earliest first.
type retryHeap[K comparable, V any] []*record[K, V]

func (h retryHeap[K, V]) Len() int           { return len(h) }
func (h retryHeap[K, V]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h retryHeap[K, V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push is called by container/heap.
func (h *retryHeap[K, V]) Push(x any) {
	r := x.(*record[K, V])
	r.heapIndex = len(*h)
	*h = append(*h, r)
}

// Pop is called by container/heap.
func (h *retryHeap[K, V]) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.heapIndex = -1
	return r
}
