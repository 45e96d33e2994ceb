// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// observation is what one attempt learned.
type observation struct {
	server string
	client string // client address as the server saw it
	source string // where the answer came from
	peer   string // what getpeername says of the socket
	// where the connection was bound for when netfilter redirected it to the server
	original string
	bytes    int64
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
	count(&t.r.Peers, o.peer)
	count(&t.r.Originals, o.original)
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
	r.Errors, r.Backends = maps.Clone(r.Errors), maps.Clone(r.Backends)
	r.Clients, r.ReplySources = maps.Clone(r.Clients), maps.Clone(r.ReplySources)
	r.Peers, r.Originals = maps.Clone(r.Peers), maps.Clone(r.Originals)
	r.Examples = slices.Clone(r.Examples)
	if n := len(t.samples); n > 0 {
		sorted := slices.Sorted(slices.Values(t.samples))
		r.Latency.Min, r.Latency.P50, r.Latency.P99 = sorted[0], sorted[n/2], sorted[n*99/100]
	}
	return r
}

// String says it all in one line, for a person.
func (r Result) String() string {
	s := fmt.Sprintf("%d/%d ok, p50 %s p99 %s max %s", r.OK, r.Attempts,
		round(r.Latency.P50), round(r.Latency.P99), round(r.Latency.Max))
	for _, part := range []struct {
		name   string
		counts map[string]int
	}{{"errors", r.Errors}, {"backends", r.Backends}, {"client seen as", r.Clients}, {"answers from", r.ReplySources},
		{"getpeername", r.Peers}, {"redirected from", r.Originals}} {
		if len(part.counts) > 0 {
			s += fmt.Sprintf(", %s %s", part.name, Spread(part.counts))
		}
	}
	if r.Slow > 0 {
		s += fmt.Sprintf(", %d slower than %s", r.Slow, slow)
	}
	return s
}

// Spread prints counts by name, sorted.
func Spread(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s:%d", name, counts[name]))
	}
	return strings.Join(parts, " ")
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
