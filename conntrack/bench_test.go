// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// BenchmarkSweep measures whole sweeps of 200,000 entries: all alive, and all dead.
func BenchmarkSweep(b *testing.B) {
	const entries = 200_000
	run := func(b *testing.B, idle time.Duration, refill bool) {
		k := newKernel[layout.AddrV4](b, 262144, 16)
		fill(k, entries)
		s := k.sweeper(Options{Now: time.Now})
		k.sleep(idle)
		var worst, used time.Duration
		for b.Loop() {
			before := cpuTime(b)
			for finished := false; !finished; {
				start := time.Now()
				var err error
				if finished, err = s.Step(); err != nil {
					b.Fatal(err)
				}
				worst = max(worst, time.Since(start))
			}
			used += cpuTime(b) - before
			if refill {
				b.StopTimer()
				k.now = startJiffies
				fill(k, entries)
				k.sleep(idle)
				b.StartTimer()
			}
		}
		b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/entries, "cpu-ns/entry")
		b.ReportMetric(float64(worst.Microseconds())/1000, "ms/worst-step")
		b.ReportMetric(float64(s.Last().Steps), "steps")
	}
	b.Run("alive", func(b *testing.B) { run(b, 0, false) })
	b.Run("dead", func(b *testing.B) { run(b, time.Hour, true) })
}

// cpuTime is what this process has used: wall time says little on a machine that others use.
func cpuTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkWalk measures listing for people.
func BenchmarkWalk(b *testing.B) {
	k := newKernel[layout.AddrV4](b, 262144, 16)
	fill(k, 50_000)
	for b.Loop() {
		n := 0
		if err := Walk(k.tables, k.clock, Filter{}, func(Entry) bool { n++; return true }); err != nil || n != 50_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/entry")
}
