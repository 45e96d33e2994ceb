// SPDX-License-Identifier: Apache-2.0

// Package backoff says when something that failed is tried again.
//
// In: that an attempt failed or succeeded, and the time. Out: when the next one is due. Loops that own what
// they retry call it (felix-lite/agent, felix-lite/socketlb); it has no timer and never sleeps.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff waits shortly at first, later ever longer, never longer than Max. The zero value has seen no failure.
type Backoff struct {
	attempts int
	at       time.Time
}

// The shortest and the longest wait, without the jitter of a fifth.
const (
	Min = 200 * time.Millisecond
	Max = 30 * time.Second
)

// Due reports whether it may be tried now.
func (b *Backoff) Due(now time.Time) bool { return !now.Before(b.at) }

// Failed counts an attempt and returns how long to wait.
func (b *Backoff) Failed(now time.Time) time.Duration {
	delay := min(Min<<min(b.attempts, 10), Max)
	delay += time.Duration(rand.Float64() * 0.2 * float64(delay))
	b.attempts++
	b.at = now.Add(delay)
	return delay
}

// Succeeded forgets earlier failures.
func (b *Backoff) Succeeded() { *b = Backoff{} }

// Waiting returns when the next attempt is due; false if nothing has failed.
func (b *Backoff) Waiting() (time.Time, bool) { return b.at, b.attempts > 0 }
