// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
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
