// SPDX-License-Identifier: Apache-2.0

// Command bench compares the cost of carrying a service's traffic by different dataplanes, in one
// run on one machine.
//
// In: nothing but flags (and QUICK=1). Out: tables on screen, judged against the goals of the
// project, build/bench.json, a list of results, and plots of them. `make bench` calls it.
//
// Every mode (direct routing, felix-lite at connect time or by packet, kube-proxy's nftables shape ...)
// exists side by side in network namespaces and a cgroup of its own: a client pod, a node, a server pod. Client and server
// threads stand on one CPU, so what is measured is the pure CPU cost of an operation, not the
// machine's idle wake-ups. Short slices alternate between the modes in shuffled order, each round's
// rates are divided by that round's direct rate, and the median over many rounds is reported. The
// same direct mode a second time (direct2) shows the noise. docs/performance.md explains the method.
//
// It must never touch an interface, route or rule outside the namespaces it made, nor a cgroup above
// those that it made, and it removes all of them, whatever happens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the command's flags.
type options struct {
	quick     bool
	modes     string
	workloads string
	families  string
	out       string
	agent     string
	builds    string
	cpu       int
	realtime  bool
	minRounds int
	maxRounds int
	slice     time.Duration
	skip      string
	keep      bool
	micro     bool
	publish   string
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.BoolVar(&o.quick, "quick", quickFromEnv(), "few modes and rounds, under two minutes (also QUICK=1)")
	fs.StringVar(&o.modes, "modes", "", "comma-separated modes to measure, as name or name/services (default: all)")
	fs.StringVar(&o.workloads, "workloads", "", "comma-separated scenarios (default: all)")
	fs.StringVar(&o.families, "families", "4,6", "address families")
	fs.StringVar(&o.out, "out", "build/bench.json", "file for the results")
	fs.StringVar(&o.agent, "agent", "bin/felix-lite", "the agent's binary")
	fs.StringVar(&o.builds, "build", "", "comma-separated name=directory of BPF objects to measure as modes, loaded without an agent")
	fs.IntVar(&o.cpu, "cpu", -1, "CPU of client and server threads (default: the last)")
	fs.BoolVar(&o.realtime, "realtime", true, "run client and server threads with real-time priority")
	fs.IntVar(&o.minRounds, "min-rounds", 0, "rounds of each measurement at least (default 120, quick 16)")
	fs.IntVar(&o.maxRounds, "max-rounds", 0, "rounds of each measurement at most (default 390, quick 20)")
	fs.DurationVar(&o.slice, "slice", 12*time.Millisecond, "how long one mode runs before the next")
	fs.StringVar(&o.skip, "skip", "", "comma-separated parts to leave out: ratios, programs, control")
	fs.BoolVar(&o.keep, "keep", false, "stop after set-up and wait for an interrupt: for looking around")
	fs.BoolVar(&o.micro, "micro", false, "only run the builds of -build on single packets, without traffic")
	fs.StringVar(&o.publish, "publish", "", "measure nothing: write the results of -out into this directory's performance.md and plots")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.minRounds == 0 {
		o.minRounds = pick(o.quick, 16, 120)
	}
	if o.maxRounds == 0 {
		o.maxRounds = max(o.minRounds, pick(o.quick, 20, 390))
	}
	return o, nil
}

func (o options) skips(part string) bool { return listed(o.skip, part) }

// listed says whether a comma-separated list names s.
func listed(list, s string) bool {
	for _, part := range strings.Split(list, ",") {
		if strings.TrimSpace(part) == s {
			return true
		}
	}
	return false
}

func pick(cond bool, a, b int) int {
	if cond {
		return a
	}
	return b
}

func quickFromEnv() bool {
	v := os.Getenv("QUICK")
	return v != "" && v != "0"
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == workerVerb {
		workerMain(os.Args[2])
		return
	}
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	// SIGPIPE: when nobody reads the output any more, there is still everything to be removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}
