// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// summary is the median of many samples with its quartiles.
type summary struct {
	median, q1, q3 float64
	n              int
}

// summarize returns median and quartiles, interpolated between neighbours.
func summarize(samples []float64) summary {
	if len(samples) == 0 {
		return summary{}
	}
	s := slices.Clone(samples)
	slices.Sort(s)
	return summary{median: quantile(s, 0.5), q1: quantile(s, 0.25), q3: quantile(s, 0.75), n: len(s)}
}

func quantile(sorted []float64, p float64) float64 {
	pos := p * float64(len(sorted)-1)
	low := int(pos)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (pos-float64(low))*(sorted[low+1]-sorted[low])
}

// uncertainty is the half-width of the median's 95 % interval, from the quartiles: for a normal
// distribution the standard error of a median is 1.253 sigma / sqrt(n), and sigma = IQR / 1.349.
// Quartiles, because single rounds disturbed by the machine's other work must not count.
func (s summary) uncertainty() float64 {
	if s.n < 2 {
		return math.Inf(1)
	}
	return 1.96 * 1.253 * (s.q3 - s.q1) / 1.349 / math.Sqrt(float64(s.n))
}

// sample is what a client did in one slice.
type sample struct {
	Ops    uint64        `json:"ops"`
	Failed uint64        `json:"failed"`
	Took   time.Duration `json:"took"`
	// P50 and P99 are how long an operation took.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}

// plus adds another slice of the same round. Latencies are averaged.
func (s sample) plus(o sample) sample {
	n := float64(o.Ops) / max(1, float64(s.Ops+o.Ops))
	mix := func(a, b time.Duration) time.Duration {
		return time.Duration(math.Round((1-n)*float64(a) + n*float64(b)))
	}
	return sample{s.Ops + o.Ops, s.Failed + o.Failed, s.Took + o.Took, mix(s.P50, o.P50), mix(s.P99, o.P99)}
}

func (s sample) rate() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Ops) / s.Took.Seconds()
}

// latencies are the durations of a slice's operations. The memory is used again for the next one, and
// allocated beforehand: nothing of it is measured.
type latencies struct{ all []time.Duration }

// mostLatencies is more than any client does in a slice; of more, the first count.
const mostLatencies = 1 << 16

func (l *latencies) reset() {
	if l.all == nil {
		l.all = make([]time.Duration, 0, mostLatencies)
	}
	l.all = l.all[:0]
}

func (l *latencies) add(d time.Duration) {
	if len(l.all) < cap(l.all) {
		l.all = append(l.all, d)
	}
}

func (l *latencies) quantiles() (p50, p99 time.Duration) {
	if len(l.all) == 0 {
		return 0, 0
	}
	slices.Sort(l.all)
	at := func(p float64) time.Duration { return l.all[int(p*float64(len(l.all)-1)+0.5)] }
	return at(0.5), at(0.99)
}
