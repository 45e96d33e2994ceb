// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// observation is what one attempt learned.
type observation struct {
	server string
	client string // client address as the server saw it
	source string // where the answer came from
	bytes  int64
}

const (
	slow = time.Second
	// maxSamples bounds the memory of a long load; beyond it samples are kept with equal chance.
	maxSamples  = 20000
	maxExamples = 8
)

// tally adds attempts up. It may be used from many goroutines.
type tally struct {
	mu      sync.Mutex
	r       Result
	samples []time.Duration
	seen    int
}

func (t *tally) add(o observation, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Attempts++
	if took > slow {
		t.r.Slow++
	}
	count(&t.r.Backends, o.server)
	count(&t.r.Clients, o.client)
	count(&t.r.ReplySources, o.source)
	if err != nil {
		count(&t.r.Errors, Kind(err))
		if len(t.r.Examples) < maxExamples {
			t.r.Examples = append(t.r.Examples,
				fmt.Sprintf("%s after %s: %v", time.Now().Format("15:04:05.000"), took.Round(time.Millisecond), err))
		}
		return
	}
	t.r.OK++
	t.r.Bytes += o.bytes
	t.seen++
	if len(t.samples) < maxSamples {
		t.samples = append(t.samples, took)
	} else if i := rand.IntN(t.seen); i < maxSamples {
		t.samples[i] = took
	}
	t.r.Latency.Max = max(t.r.Latency.Max, took)
}

func count(m *map[string]int, key string) {
	if key == "" {
		return
	}
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[key]++
}

func (t *tally) result() Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.r
	r.Errors, r.Backends = cloned(r.Errors), cloned(r.Backends)
	r.Clients, r.ReplySources = cloned(r.Clients), cloned(r.ReplySources)
	r.Examples = slices.Clone(r.Examples)
	if n := len(t.samples); n > 0 {
		sorted := slices.Sorted(slices.Values(t.samples))
		r.Latency.Min, r.Latency.P50, r.Latency.P99 = sorted[0], sorted[n/2], sorted[n*99/100]
	}
	return r
}

// cloned copies a counter map: the result leaves the lock.
func cloned(m map[string]int) map[string]int {
	if m == nil {
		return nil
	}
	c := make(map[string]int, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
