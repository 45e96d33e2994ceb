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
	run  func(ctx context.Context, d time.Duration) (ops, failed uint64, took time.Duration, err error)
}

// outcome is what rounds found about one contender.
type outcome struct {
	ratio  summary // to the first contender, the reference
	rate   summary // operations a second, for information
	failed uint64
	ops    uint64
}

// measureRounds lets contenders run in short slices, shuffled anew in each round, until every ratio is
// known well enough or maxRounds are done. The first contender is the reference.
func measureRounds(ctx context.Context, cs []contender, slice time.Duration, minRounds, maxRounds int) ([]outcome, error) {
	share := max(1, int(roundTime/(time.Duration(len(cs))*(slice+warmup))))
	var order []int
	for i := range cs {
		for range share {
			order = append(order, i)
		}
	}
	ratios, rates := make([][]float64, len(cs)), make([][]float64, len(cs))
	out := make([]outcome, len(cs))
	for round := range maxRounds {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		ops, took := make([]uint64, len(cs)), make([]time.Duration, len(cs))
		for _, i := range order {
			n, failed, t, err := cs[i].run(ctx, slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cs[i].name, err)
			}
			ops[i] += n
			took[i] += t
			out[i].failed += failed
			out[i].ops += n
		}
		reference := rate(ops[0], took[0])
		if reference == 0 {
			return nil, fmt.Errorf("%s: no operation succeeded in a round", cs[0].name)
		}
		for i := range cs {
			r := rate(ops[i], took[i])
			rates[i] = append(rates[i], r)
			ratios[i] = append(ratios[i], r/reference)
		}
		if round+1 >= minRounds && (round+1)%8 == 0 && settled(ratios) {
			break
		}
	}
	for i := range out {
		out[i].ratio, out[i].rate = summarize(ratios[i]), summarize(rates[i])
	}
	return out, nil
}

func rate(ops uint64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(ops) / took.Seconds()
}

func settled(ratios [][]float64) bool {
	return !slices.ContainsFunc(ratios, func(r []float64) bool { return summarize(r).uncertainty() > wanted })
}
