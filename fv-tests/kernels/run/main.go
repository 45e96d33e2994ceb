// SPDX-License-Identifier: Apache-2.0

// Command run boots the supported kernels one after another and runs the guest suite on each:
// `make test-kernels` calls it, from the top of the tree, after the BPF objects are built.
//
// It needs root (for apt) and the network for the first run only; kernels are kept in -cache. It
// exits with 1 if any check failed on any kernel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/kernels"
	"github.com/felix-lite/felix-lite/fv-tests/kernels/result"
)

type options struct {
	versions string
	cache    string
	logs     string
	only     string
	match    string
	refresh  bool
	nice     int
	timeout  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.versions, "kernels", "", "comma-separated versions to run on (default: all)")
	flag.StringVar(&o.cache, "cache", "build/kernels", "directory for kernel packages, kept between runs")
	flag.StringVar(&o.logs, "logs", "build/kernels/logs", "directory for the consoles' logs")
	flag.StringVar(&o.only, "only", "", "comma-separated suites of the guest (default: all)")
	flag.StringVar(&o.match, "match", "", "regular expression: load only the programs whose object/program it matches")
	flag.BoolVar(&o.refresh, "refresh", false, "look for newer kernel packages first")
	flag.IntVar(&o.nice, "nice", kernels.DefaultMachine.Niceness, "niceness of QEMU: at 19 it waits for everything else on a busy machine")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "longest time for one kernel")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "test-kernels:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	selected, err := kernels.Select(o.versions)
	if err != nil {
		return err
	}
	cache, err := filepath.Abs(o.cache)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return err
	}
	guest, err := buildGuest(ctx)
	if err != nil {
		return err
	}
	if err := kernels.InstallTools(ctx); err != nil {
		return err
	}
	var total result.Counts
	var failed []error
	var summary []string
	for _, k := range selected {
		start := time.Now()
		counts, err := runOn(ctx, o, cache, k, guest)
		total.Passed += counts.Passed
		total.Failed += counts.Failed
		total.Skipped += counts.Skipped
		verdict := "ok"
		if err != nil {
			verdict = err.Error()
			failed = append(failed, fmt.Errorf("kernel %s: %w", k.Version, err))
		}
		summary = append(summary, fmt.Sprintf("%-5s %-40s %4.0f s  %s", k.Version, counts, time.Since(start).Seconds(), verdict))
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Println("\n" + strings.Join(summary, "\n"))
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	return errors.Join(failed...)
}

// runOn runs the guest on one kernel.
func runOn(ctx context.Context, o options, cache string, k kernels.Kernel, guest []byte) (result.Counts, error) {
	image, err := kernels.Fetch(ctx, cache, k, o.refresh)
	if err != nil {
		return result.Counts{}, err
	}
	log, err := os.Create(filepath.Join(o.logs, k.Version+".log"))
	if err != nil {
		return result.Counts{}, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not finished after %s", o.timeout))
	defer cancel()
	var args []string
	if o.only != "" {
		args = append(args, "-only="+o.only)
	}
	if o.match != "" {
		args = append(args, "-match="+o.match)
	}
	fmt.Printf("\n=== kernel %s (%s)\n", k.Version, image.Release)
	machine := kernels.DefaultMachine
	machine.Niceness = o.nice
	report, err := machine.Boot(ctx, image, guest, args, func(line string) {
		fmt.Printf("%-4s | %s\n", k.Version, line)
		fmt.Fprintln(log, line)
	})
	if report == nil {
		return result.Counts{}, err
	}
	for _, f := range report.Failures {
		fmt.Printf("%-4s : %s\n", k.Version, f)
	}
	if err == nil {
		err = report.Err()
	}
	return report.Counts, err
}

// buildGuest builds the guest as one static binary; it stands in the initramfs alone.
func buildGuest(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "felix-lite-guest-")
	if err != nil {
		return nil, fmt.Errorf("build guest: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./fv-tests/kernels/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build guest: %w", err)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("build guest: %w", err)
	}
	return binary, nil
}
