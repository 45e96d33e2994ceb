// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"math/rand/v2"
	"time"
)

// backoff says when something that failed is tried again: soon at first, later ever more rarely,
// never later than maxBackoff.
type backoff struct {
	attempts int
	at       time.Time
}

const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// due reports whether it may be tried now.
func (b *backoff) due(now time.Time) bool { return !now.Before(b.at) }

// failed counts an attempt and returns how long to wait.
func (b *backoff) failed(now time.Time) time.Duration {
	delay := min(minBackoff<<min(b.attempts, 10), maxBackoff)
	delay += time.Duration(rand.Float64() * 0.2 * float64(delay))
	b.attempts++
	b.at = now.Add(delay)
	return delay
}

// succeeded forgets earlier failures.
func (b *backoff) succeeded() { *b = backoff{} }

// waiting returns when the next attempt is due; false if nothing has failed.
func (b *backoff) waiting() (time.Time, bool) { return b.at, b.attempts > 0 }
