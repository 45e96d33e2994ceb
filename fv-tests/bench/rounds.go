// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// roundTime is the span inside which the modes' rates are compared: short against the machine's
// moods, long enough for two slices of each mode.
const roundTime = 250 * time.Millisecond

// warmup runs before each slice and does not count: the mode before left the caches to itself.
const warmup = time.Millisecond

// wanted is the uncertainty of a median ratio at which rounds end early.
const wanted = 0.005

// noiseLimit is how far direct2 may be off; a measurement beyond it is void.
const noiseLimit = 0.02

// contender is a mode ready to run a workload.
type contender struct {
	name string
	run  func(ctx context.Context, warmup, d time.Duration) (sample, error)
}

// outcome is what rounds found about one contender. Ratios are to the first contender, the reference.
type outcome struct {
	ratio    summary // of the rates
	rate     summary // operations a second, for information
	p50, p99 summary // how long an operation takes, in microseconds, for information
	p50ratio summary
	p99ratio summary
	failed   uint64
	ops      uint64
}

// plan is how rounds are made.
type plan struct {
	warmup, slice        time.Duration
	minRounds, maxRounds int
}

// measureRounds lets contenders run in short slices, shuffled anew in each round, until every ratio is
// known well enough or maxRounds are done. The first contender is the reference.
func measureRounds(ctx context.Context, cs []contender, p plan) ([]outcome, error) {
	share := max(1, int(roundTime/(time.Duration(len(cs))*(p.slice+p.warmup))))
	var order []int
	for i := range cs {
		for range share {
			order = append(order, i)
		}
	}
	all := make([]series, len(cs))
	lost := 0
	for round := range p.maxRounds {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		sums := make([]sample, len(cs))
		for _, i := range order {
			s, err := cs[i].run(ctx, p.warmup, p.slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cs[i].name, err)
			}
			sums[i] = sums[i].plus(s)
		}
		if sums[0].rate() == 0 || sums[0].P50 == 0 {
			// The machine gave the reference's slice to others: the round has nothing to compare with.
			if lost++; lost > p.maxRounds/4 {
				return nil, fmt.Errorf("%s: no operation succeeded in %d rounds", cs[0].name, lost)
			}
			continue
		}
		for i := range cs {
			all[i].add(sums[i], sums[0])
		}
		if round+1 >= p.minRounds && (round+1)%8 == 0 && settled(all) {
			break
		}
	}
	out := make([]outcome, len(cs))
	for i := range out {
		out[i] = all[i].outcome()
	}
	return out, nil
}

// series are one contender's rounds.
type series struct {
	rates, ratios                []float64
	p50, p99, p50ratio, p99ratio []float64
	ops, failed                  uint64
}

func (s *series) add(own, reference sample) {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	s.rates = append(s.rates, own.rate())
	s.ratios = append(s.ratios, own.rate()/reference.rate())
	s.p50, s.p99 = append(s.p50, us(own.P50)), append(s.p99, us(own.P99))
	s.p50ratio = append(s.p50ratio, us(own.P50)/us(reference.P50))
	s.p99ratio = append(s.p99ratio, us(own.P99)/us(reference.P99))
	s.ops, s.failed = s.ops+own.Ops, s.failed+own.Failed
}

func (s *series) outcome() outcome {
	return outcome{
		ratio: summarize(s.ratios), rate: summarize(s.rates), p50: summarize(s.p50), p99: summarize(s.p99),
		p50ratio: summarize(s.p50ratio), p99ratio: summarize(s.p99ratio), ops: s.ops, failed: s.failed,
	}
}

func settled(all []series) bool {
	return !slices.ContainsFunc(all, func(s series) bool { return summarize(s.ratios).uncertainty() > wanted })
}
