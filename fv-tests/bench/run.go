// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// run is the whole benchmark: set up every mode, measure, report, remove.
func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root: it makes network namespaces and loads BPF programs")
	}
	if o.cpu < 0 {
		o.cpu = runtime.NumCPU() - 1
	}
	if err := removeStale(); err != nil {
		return err
	}
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
	for _, f := range families {
		for _, w := range workloads {
			if o.workloads != "" && !listed(o.workloads, string(w)) {
				continue
			}
			if !o.skips("ratios") {
				if err := b.ratios(ctx, f, w); err != nil {
					return err
				}
			}
			if !o.skips("programs") {
				if err := b.programRuns(ctx, f, w, pick(o.quick, 20, 60)); err != nil {
					return err
				}
			}
		}
	}
	if !o.skips("control") {
		if err := b.control(ctx); err != nil {
			return err
		}
	}
	b.printRatios(families)
	b.printGoals()
	return b.write(o.out)
}

// raiseAll sets every mode up. One that cannot be is named and left out; the direct ones are needed.
func (b *bench) raiseAll(ctx context.Context, modes []mode) {
	for _, m := range modes {
		start := time.Now()
		st, err := raise(ctx, b.o, m)
		if err != nil {
			fmt.Printf("  %-16s left out: %v\n", m.label(), errors.Join(err, st.close()))
			if m.services == 0 {
				return
			}
			continue
		}
		fmt.Printf("  %-16s up in %.2f s\n", m.label(), time.Since(start).Seconds())
		b.stages = append(b.stages, st)
	}
}

// ratios measures one workload in one family over all modes. A void measurement is repeated once.
func (b *bench) ratios(ctx context.Context, f family, w workload) error {
	for attempt := 1; ; attempt++ {
		stages, contenders := b.prepare(ctx, f, w)
		if len(contenders) < 2 {
			return fmt.Errorf("%s %s: the direct modes do not work", w, f)
		}
		before := readLoad()
		outcomes, err := measureRounds(ctx, contenders, b.o.slice, b.o.minRounds, b.o.maxRounds)
		if err != nil {
			return fmt.Errorf("%s %s: %w", w, f, err)
		}
		noise := outcomes[1].ratio.median - 1
		void := noise > noiseLimit || noise < -noiseLimit
		if void && attempt == 1 {
			fmt.Printf("  %s %s: void, direct2 is off by %+.1f %% (load %s, now %s); measured again\n", w, f, 100*noise, before, readLoad())
			continue
		}
		if void {
			fmt.Printf("  %s %s: void again, direct2 is off by %+.1f %%: not to be trusted\n", w, f, 100*noise)
		}
		for i, st := range stages {
			b.record(st.mode, f, w, outcomes[i], void)
		}
		return nil
	}
}

// prepare makes every mode ready for a workload. A mode in which it does not
// work is left out of this measurement, loudly.
func (b *bench) prepare(ctx context.Context, f family, w workload) ([]*stage, []contender) {
	var stages []*stage
	var contenders []contender
	for _, st := range b.stages {
		if err := st.prepare(ctx, f, w); err != nil {
			fmt.Printf("  %s %s: %s does not work: %v\n", w, f, st.label(), err)
			continue
		}
		stages = append(stages, st)
		contenders = append(contenders, contender{st.label(), func(ctx context.Context, d time.Duration) (uint64, uint64, time.Duration, error) {
			a, err := st.worker.ask(ctx, request{Verb: "run", Warmup: warmup, Duration: d})
			return a.Ops, a.Failed, a.Took, err
		}})
	}
	return stages, contenders
}

// prepare tells the mode's client what it will do and tries it once.
func (st *stage) prepare(ctx context.Context, f family, w workload) error {
	var sources []string
	for _, a := range clientSources(f) {
		sources = append(sources, a.String())
	}
	a, err := st.worker.ask(ctx, request{
		Verb: "prepare", Workload: w, Target: st.target(f, w).String(), Sources: sources, Duration: 30 * time.Millisecond,
	})
	if err == nil && a.Ops == 0 {
		err = fmt.Errorf("all of %d operations failed", a.Failed)
	}
	return err
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
