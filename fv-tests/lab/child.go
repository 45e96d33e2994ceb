// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// First arguments that make an executable one of the lab's own helper processes.
const (
	probeArgument = "__probe"
	guardArgument = "__guard"
	tunArgument   = "__tun"
)

// RunChild must be the first call in main, or in a test binary's TestMain, of everything that calls
// Up: the lab starts its probers and its guard by running the same executable again. It returns only
// in the original process.
func RunChild() {
	if len(os.Args) < 2 {
		return
	}
	args := os.Args[2:]
	var err error
	switch verb := os.Args[1]; {
	case verb == probeArgument && len(args) == 2:
		err = probe.Run(args[0], args[1])
	case verb == guardArgument && len(args) == 1:
		err = runGuard(args[0])
	case verb == tunArgument && len(args) == 4:
		err = runTun(args)
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startProber starts the resident prober of a place, inside its namespace and cgroup.
func (l *Lab) startProber(p *Place) error {
	cg, err := labCgroup(l.Name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return fmt.Errorf("prober of %s: %w", p.Name, err)
	}
	parent := p.Name
	if pod := l.Pod(p.Name); pod != nil {
		parent = filepath.Join(pod.NodeName, "pods", p.Name)
	}
	p.Prober, err = command{
		argv:      []string{l.Options.ProbeExecutable, probeArgument, p.Name, p.socket()},
		namespace: p.Namespace,
		cgroup:    cg.child(parent, "prober"),
		logFile:   filepath.Join(p.Dir, "prober.log"),
		env:       []string{"GOMAXPROCS=2", "GOGC=50"},
	}.start()
	if err != nil {
		return fmt.Errorf("prober of %s: %w", p.Name, err)
	}
	return nil
}

func (p *Place) socket() string { return filepath.Join(p.Dir, "prober.sock") }

func (p *Place) waitProber(ctx context.Context) error {
	return WaitFor(ctx, "prober of "+p.Name, func() (bool, string) {
		err := p.Probe().Ping(ctx)
		return err == nil, fmt.Sprint(err)
	})
}

// Probe returns the control side of the place's prober.
func (p *Place) Probe() *probe.Client { return probe.NewClient(p.socket()) }
