// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// run is the whole benchmark: set up every mode, measure, report, remove.
func run(ctx context.Context, o options) (err error) {
	if o.publish != "" {
		results, err := readResults(o.out)
		if err != nil {
			return err
		}
		return publish(results, o.publish)
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: it makes network namespaces and loads BPF programs")
	}
	if o.cpu < 0 {
		o.cpu = runtime.NumCPU() - 1
	}
	if err := removeStale(); err != nil {
		return err
	}
	start := readLoad()
	raisePriority()
	if o.micro {
		return runMicro(o)
	}
	modes, err := selectModes(o)
	if err != nil {
		return err
	}
	families, err := parseFamilies(o.families)
	if err != nil {
		return err
	}
	b := &bench{o: o}
	defer func() { err = errors.Join(err, b.close()) }()
	printMachine(o)
	b.raiseAll(ctx, modes)
	if len(b.stages) < 2 {
		return errors.New("the direct modes could not be set up")
	}
	if o.keep {
		fmt.Println("everything is up; interrupt to end")
		<-ctx.Done()
		return nil
	}
	before := readLoad()
	for _, f := range families {
		if err := b.measure(ctx, f); err != nil {
			// What was measured until then is not lost.
			b.recordMachine(start, before, readLoad())
			return errors.Join(err, b.write(o.out))
		}
	}
	if !o.skips("control") {
		if err := b.control(ctx); err != nil {
			return err
		}
	}
	b.recordMachine(start, before, readLoad())
	b.printTables(families)
	b.printGoals()
	if b.leftOut > 0 {
		fmt.Printf("\n%d modes or measurements were left out: see above\n", b.leftOut)
	}
	if err := b.write(o.out); err != nil {
		return err
	}
	return drawAll(b.results, filepath.Join(filepath.Dir(o.out), "plots"))
}

// measure makes all measurements of one family.
func (b *bench) measure(ctx context.Context, f family) error {
	for _, s := range scenarios {
		if !s.in(b.o, f) {
			continue
		}
		if !b.o.skips("ratios") {
			if err := b.ratios(ctx, s, f); err != nil {
				return err
			}
		}
		if !b.o.skips("programs") && s.width == 0 {
			if err := b.programRuns(ctx, s, f); err != nil {
				return err
			}
		}
	}
	for _, s := range mappedScenarios {
		if b.o.skips("programs") || b.o.workloads != "" && !listed(b.o.workloads, s.name) || f == 6 {
			continue
		}
		if err := b.programRuns(ctx, s, f); err != nil {
			return err
		}
	}
	return nil
}

// raiseAll sets every mode up. One that cannot be is named and left out; the direct ones are needed.
func (b *bench) raiseAll(ctx context.Context, modes []mode) {
	for _, m := range modes {
		start := time.Now()
		st, err := raise(ctx, b.o, m)
		if err != nil {
			fmt.Printf("  %-16s left out: %v\n", m.label(), errors.Join(err, st.close()))
			b.leftOut++
			if m.services == 0 {
				return
			}
			continue
		}
		fmt.Printf("  %-16s up in %.2f s\n", m.label(), time.Since(start).Seconds())
		b.stages = append(b.stages, st)
	}
}

// ratios measures one scenario in one family over all modes. A void measurement is repeated once.
func (b *bench) ratios(ctx context.Context, s scenario, f family) error {
	warm, slice := s.slices(b.o)
	p := plan{warmup: warm, slice: slice, minRounds: b.o.minRounds, maxRounds: b.o.maxRounds}
	if s.width > 0 { // longer slices, of more operations each
		p.minRounds /= pick(b.o.quick, 1, 2)
		p.maxRounds = max(p.minRounds, b.o.maxRounds/4)
	}
	for attempt := 1; ; attempt++ {
		entrants, err := b.prepareCounted(ctx, s, f)
		if err != nil {
			return err
		}
		if len(entrants) < 2 || entrants[1].name != modeDirect2 {
			fmt.Printf("  %s %s: left out: nothing to compare with, the direct modes do not work\n", s.name, f)
			b.leftOut++
			return nil
		}
		before := readLoad()
		outcomes, err := measureRounds(ctx, contendersOf(entrants), p)
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.name, f, err)
		}
		noise := outcomes[1].ratio.median - 1
		void := noise > noiseLimit || noise < -noiseLimit
		if void && attempt == 1 {
			fmt.Printf("  %s %s: void, direct2 is off by %+.1f %% (load %s, now %s); measured again\n", s.name, f, 100*noise, before, readLoad())
			continue
		}
		if void {
			fmt.Printf("  %s %s: void again, direct2 is off by %+.1f %%: not to be trusted\n", s.name, f, 100*noise)
		}
		for i, e := range entrants {
			b.record(e, s, f, outcomes[i], void)
		}
		return nil
	}
}

// prepareCounted prepares a scenario while the kernel counts the runs of programs; it does not while
// anything is measured.
func (b *bench) prepareCounted(ctx context.Context, s scenario, f family) ([]entrant, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("enable program statistics: %w", err)
	}
	defer stats.Close()
	return b.prepare(s, f, b.try(ctx, s, f)), nil
}

// contendersOf lets each entrant's client run in turn.
func contendersOf(entrants []entrant) []contender {
	var out []contender
	for _, e := range entrants {
		out = append(out, contender{e.label(), func(ctx context.Context, warmup, d time.Duration) (sample, error) {
			a, err := e.worker.ask(ctx, request{Verb: "run", Client: e.client, Warmup: warmup, Duration: d})
			return a.sample, err
		}})
	}
	return out
}

func parseFamilies(list string) ([]family, error) {
	var out []family
	for _, part := range strings.Split(list, ",") {
		switch strings.TrimSpace(part) {
		case "4":
			out = append(out, 4)
		case "6":
			out = append(out, 6)
		default:
			return nil, fmt.Errorf("families: %q is neither 4 nor 6", part)
		}
	}
	return out, nil
}

// raisePriority lets this process's threads, and the workers they start, run before the machine's other
// work. It is not needed, and so an error is no matter.
func raisePriority() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, -20)
		}
	}
}

func printMachine(o options) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Printf("kernel %s, %d CPUs, measuring on CPU %d, load %s\n", strings.TrimSpace(string(release)), runtime.NumCPU(), o.cpu, readLoad())
	if load, err := strconv.ParseFloat(readLoad(), 64); err == nil && load > 1 {
		fmt.Println("the machine is busy with other work: ratios hold, absolute figures do not")
	}
}

// readLoad is the load average of the last minute.
func readLoad() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}
