// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// watched are the programs of one place whose costs are told together.
type watched struct {
	entrant
	hook string // at connect time; "" for all TC programs of the node
	ids  []ebpf.ProgramID
}

// name of the results: a hook's stand beside the scenario's own.
func (w watched) name(s scenario) string {
	if w.hook == "" {
		return s.name
	}
	return w.hook + "/" + s.name
}

// programRuns measures what modes' programs cost while a scenario runs: nanoseconds for each run, and
// runs for each operation. The modes take turns as they do for ratios, so that builds can be compared.
// The kernel's statistics are on only meanwhile: they have a cost too.
func (b *bench) programRuns(ctx context.Context, s scenario, f family) error {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable program statistics: %w", err)
	}
	defer stats.Close()
	var entrants []entrant
	var all [][]watched
	try := b.try(ctx, s, f)
	for _, e := range b.entrants(s) {
		if !e.agent || s.mapped && e.by != byConnect {
			continue
		}
		if err := try(e); err != nil {
			fmt.Printf("  %s %s: programs of %s are left out: %v\n", s.name, f, e.label(), err)
			b.leftOut++
			continue
		}
		w, err := e.watch()
		if err != nil {
			return fmt.Errorf("%s: %w", e.label(), err)
		}
		entrants, all = append(entrants, e), append(all, w)
	}
	samples := map[string]*runSamples{}
	for range pick(b.o.quick, 8, 60) {
		for _, i := range rand.Perm(len(entrants)) {
			if err := sampleRuns(ctx, all[i], b.o.slice, s, samples); err != nil {
				return fmt.Errorf("%s %s: %s: %w", s.name, f, entrants[i].label(), err)
			}
		}
	}
	for _, ws := range all {
		for _, w := range ws {
			b.recordRuns(w, s, f, samples[w.label()+w.name(s)])
		}
	}
	return nil
}

// watch lists an entrant's programs.
func (e entrant) watch() ([]watched, error) {
	ids, err := e.site.node.attached()
	if err != nil {
		return nil, err
	}
	out := []watched{{e, "", ids}}
	hooks, err := e.connectPrograms()
	for _, hook := range slices.Sorted(maps.Keys(hooks)) {
		out = append(out, watched{e, hook, []ebpf.ProgramID{hooks[hook]}})
	}
	return out, err
}

// runSamples are what was seen of some programs, slice by slice.
type runSamples struct{ perRun, perOp []float64 }

// sampleRuns runs a prepared scenario for a slice and notes what ran meanwhile.
func sampleRuns(ctx context.Context, ws []watched, d time.Duration, s scenario, samples map[string]*runSamples) error {
	before := make([]runCount, len(ws))
	for i, w := range ws {
		var err error
		if before[i], err = countRuns(w.ids); err != nil {
			return err
		}
	}
	a, err := ws[0].worker.ask(ctx, request{Verb: "run", Client: ws[0].client, Duration: d})
	if err != nil {
		return err
	}
	for i, w := range ws {
		after, err := countRuns(w.ids)
		if err != nil {
			return err
		}
		runs, took := after.runs-before[i].runs, after.took-before[i].took
		if runs == 0 || a.Ops == 0 {
			continue // not this hook's scenario, or the machine gave the slice to others
		}
		key := w.label() + w.name(s)
		if samples[key] == nil {
			samples[key] = &runSamples{}
		}
		samples[key].perRun = append(samples[key].perRun, float64(took)/float64(runs))
		samples[key].perOp = append(samples[key].perOp, float64(runs)/float64(a.Ops))
	}
	return nil
}

// seldom is how many runs for each operation are not worth a line: those of sockets opened by the way.
const seldom = 0.2

func (b *bench) recordRuns(w watched, s scenario, f family, seen *runSamples) {
	if seen == nil {
		return
	}
	ns, runs := summarize(seen.perRun), summarize(seen.perOp)
	if w.hook != "" && runs.median < seldom {
		return
	}
	base := w.result(s, f)
	base.Name, base.Rounds = w.name(s), ns.n
	cost, count := base, base
	cost.Metric, cost.Unit, cost.Value, cost.Q1, cost.Q3 = metricNSPerRun, "ns", ns.median, ns.q1, ns.q3
	count.Metric, count.Unit, count.Value, count.Q1, count.Q3 = metricRuns, "1", runs.median, runs.q1, runs.q3
	b.results = append(b.results, cost, count)
	fmt.Printf("  %-28s %s %-18s %.0f ns per run (%.0f .. %.0f), %.2f runs per operation\n",
		base.Name, f, w.label(), ns.median, ns.q1, ns.q3, runs.median)
}
