// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// programPrefix is what the names of the datapath's programs start with.
const programPrefix = "cali_"

// runCount is what the kernel knows about some programs, or the difference between two moments. A
// tail-called program's time is booked on the one that stands on the hook.
type runCount struct {
	runs uint64
	took time.Duration
}

// attached are the programs of the datapath that stand on the hooks of the node's interfaces: those
// of other nodes on this machine, a test's perhaps, do not count.
func (n *namespace) attached() ([]ebpf.ProgramID, error) {
	links, err := n.nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var ids []ebpf.ProgramID
	for _, l := range links {
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := n.nl.FilterList(l, parent)
			if err != nil {
				return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
			}
			for _, f := range filters {
				if b, ok := f.(*netlink.BpfFilter); ok {
					ids = append(ids, ebpf.ProgramID(b.Id))
				}
			}
		}
	}
	err = inNamespace(n.handle, func() error {
		for _, l := range links {
			for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: hook})
				if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
					return nil // a kernel without TCX
				}
				if err != nil {
					return fmt.Errorf("query tcx of %s: %w", l.Attrs().Name, err)
				}
				for _, p := range found.Programs {
					ids = append(ids, p.ID)
				}
			}
		}
		return nil
	})
	return ids, err
}

// countRuns reads the run counts of programs.
func countRuns(ids []ebpf.ProgramID) (runCount, error) {
	var sum runCount
	for _, id := range ids {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return sum, fmt.Errorf("open program %d: %w", id, err)
		}
		stats, err := p.Stats()
		p.Close()
		if err != nil {
			return sum, fmt.Errorf("program %d: %w", id, err)
		}
		sum.runs += stats.RunCount
		sum.took += stats.Runtime
	}
	return sum, nil
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
	var ids [][]ebpf.ProgramID
	for _, st := range b.stages {
		if !st.programs {
			continue
		}
		if err := st.prepare(ctx, f, w); err != nil {
			fmt.Printf("  %s %s: %s does not work: %v\n", w, f, st.label(), err)
			continue
		}
		programs, err := st.site.node.attached()
		if err != nil {
			return fmt.Errorf("%s: %w", st.label(), err)
		}
		stages, ids = append(stages, st), append(ids, programs)
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
			sum, ops, err := stages[i].sampleRuns(ctx, ids[i], b.o.slice)
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
func (st *stage) sampleRuns(ctx context.Context, ids []ebpf.ProgramID, d time.Duration) (runCount, uint64, error) {
	before, err := countRuns(ids)
	if err != nil {
		return runCount{}, 0, err
	}
	a, err := st.worker.ask(ctx, request{Verb: "run", Duration: d})
	if err != nil {
		return runCount{}, 0, err
	}
	after, err := countRuns(ids)
	if err != nil {
		return runCount{}, 0, err
	}
	return runCount{after.runs - before.runs, after.took - before.took}, a.Ops, nil
}
