// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// programPrefix is what the names of the datapath's programs start with.
const programPrefix = "cali_"

// runCount is what the kernel knows about one program, or the difference between two moments. A
// tail-called program's time is booked on the one that stands on the hook.
type runCount struct {
	runs uint64
	took time.Duration
}

// countRuns reads the run counts of all programs of the datapath on this machine.
func countRuns() (map[ebpf.ProgramID]runCount, error) {
	out := map[ebpf.ProgramID]runCount{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, unix.ENOENT) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list programs: %w", err)
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, unix.ENOENT) {
			continue // unloaded meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("open program %d: %w", id, err)
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, programPrefix) {
			var stats *ebpf.ProgramStats
			if stats, err = p.Stats(); err == nil {
				out[id] = runCount{stats.RunCount, stats.Runtime}
			}
		}
		p.Close()
		if err != nil {
			return nil, fmt.Errorf("program %d: %w", id, err)
		}
	}
}

// since is what ran between two moments, over all programs.
func since(before, after map[ebpf.ProgramID]runCount) runCount {
	var sum runCount
	for id, now := range after {
		sum.runs += now.runs - before[id].runs
		sum.took += now.took - before[id].took
	}
	return sum
}

// Metrics of programs.
const (
	metricNSPerRun = "ns_per_run"
	metricRuns     = "runs_per_operation"
)

// programRuns measures what modes' programs cost while a workload runs: nanoseconds for each run, and
// runs for each operation. The modes take turns as they do for ratios, so that builds can be compared.
// The kernel's statistics are on only meanwhile: they have a cost too.
func (b *bench) programRuns(ctx context.Context, f family, w workload, rounds int) error {
	var stages []*stage
	for _, st := range b.stages {
		if !st.programs {
			continue
		}
		if err := st.prepare(ctx, f, w); err != nil {
			fmt.Printf("  %s %s: %s does not work: %v\n", w, f, st.label(), err)
			continue
		}
		stages = append(stages, st)
	}
	if len(stages) == 0 {
		return nil
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable program statistics: %w", err)
	}
	defer stats.Close()
	perRun, perOp := make([][]float64, len(stages)), make([][]float64, len(stages))
	for range rounds {
		for _, i := range rand.Perm(len(stages)) {
			sum, ops, err := stages[i].sampleRuns(ctx, b.o.slice)
			if err != nil {
				return fmt.Errorf("%s %s: %s: %w", w, f, stages[i].label(), err)
			}
			if sum.runs == 0 || ops == 0 {
				continue // the machine gave the slice to others
			}
			perRun[i] = append(perRun[i], float64(sum.took)/float64(sum.runs))
			perOp[i] = append(perOp[i], float64(sum.runs)/float64(ops))
		}
	}
	for i, st := range stages {
		ns, runs := summarize(perRun[i]), summarize(perOp[i])
		base := result{Name: string(w), Mode: st.name, Services: st.services, Family: int(f), Rounds: ns.n}
		cost, count := base, base
		cost.Metric, cost.Unit, cost.Value, cost.Q1, cost.Q3 = metricNSPerRun, "ns", ns.median, ns.q1, ns.q3
		count.Metric, count.Unit, count.Value, count.Q1, count.Q3 = metricRuns, "1", runs.median, runs.q1, runs.q3
		b.results = append(b.results, cost, count)
		fmt.Printf("  %-16s %s %-16s %.0f ns per run (%.0f .. %.0f), %.2f runs per operation\n",
			w, f, st.label(), ns.median, ns.q1, ns.q3, runs.median)
	}
	return nil
}

// sampleRuns runs a prepared workload for a slice and returns what ran meanwhile.
func (st *stage) sampleRuns(ctx context.Context, d time.Duration) (runCount, uint64, error) {
	before, err := countRuns()
	if err != nil {
		return runCount{}, 0, err
	}
	a, err := st.worker.ask(ctx, request{Verb: "run", Duration: d})
	if err != nil {
		return runCount{}, 0, err
	}
	after, err := countRuns()
	if err != nil {
		return runCount{}, 0, err
	}
	return since(before, after), a.Ops, nil
}
