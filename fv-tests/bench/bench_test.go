// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

func TestMedianAndQuartilesAreInterpolated(t *testing.T) {
	for name, c := range map[string]struct {
		samples []float64
		want    summary
	}{
		"nothing":                           {nil, summary{}},
		"one sample is all three":           {[]float64{2}, summary{2, 2, 2, 1}},
		"an even count lies between two":    {[]float64{4, 1, 3, 2}, summary{2.5, 1.75, 3.25, 4}},
		"an odd count hits the middle":      {[]float64{5, 1, 4, 2, 3}, summary{3, 2, 4, 5}},
		"one wild sample moves no quartile": {[]float64{1, 1, 1, 1, 1, 1, 1, 900}, summary{1, 1, 1, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := summarize(c.samples); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestUncertaintyShrinksWithTheRootOfTheRounds(t *testing.T) {
	few, many := summary{1, 0.99, 1.01, 25}, summary{1, 0.99, 1.01, 100}
	if got := few.uncertainty() / many.uncertainty(); math.Abs(got-2) > 1e-9 {
		t.Errorf("four times the rounds shrink it by %v, want 2", got)
	}
	if !math.IsInf(summary{n: 1}.uncertainty(), 1) {
		t.Error("one round must say nothing")
	}
}

// fake is a contender whose operations take a fixed time.
func fake(name string, each time.Duration, turns *[]string) contender {
	return contender{name, func(_ context.Context, _, d time.Duration) (sample, error) {
		*turns = append(*turns, name)
		return sample{Ops: uint64(d / each), Took: d, P50: each, P99: 2 * each}, nil
	}}
}

func TestRoundsCompareEveryModeWithTheFirst(t *testing.T) {
	var turns []string
	cs := []contender{fake("direct", time.Microsecond, &turns), fake("half", 2*time.Microsecond, &turns)}
	out, err := measureRounds(t.Context(), cs, plan{time.Millisecond, 12 * time.Millisecond, 16, 64})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].ratio.median != 1 || out[1].ratio.median != 0.5 {
		t.Errorf("ratios %v and %v, want 1 and 0.5", out[0].ratio.median, out[1].ratio.median)
	}
	if out[1].p50ratio.median != 2 || out[1].p99.median != 4 {
		t.Errorf("p50 is %v times direct's and p99 %v us, want 2 and 4", out[1].p50ratio.median, out[1].p99.median)
	}
	if out[1].ratio.n != 16 {
		t.Errorf("%d rounds, want the minimum when nothing is noisy", out[1].ratio.n)
	}
	count := map[string]int{}
	for _, name := range turns {
		count[name]++
	}
	if count["direct"] != count["half"] {
		t.Errorf("unequal turns: %v", count)
	}
	if perRound := count["half"] / 16; perRound < 2 {
		t.Errorf("%d slices a round, want several when the modes are few", perRound)
	}
}

func TestARoundInWhichTheReferenceDidNotRunDoesNotCount(t *testing.T) {
	var turns []string
	n := 0
	starved := contender{"direct", func(_ context.Context, _, d time.Duration) (sample, error) {
		if n++; n == 3 {
			return sample{Took: d}, nil
		}
		return sample{Ops: 1000, Took: d, P50: time.Microsecond}, nil
	}}
	p := plan{slice: 200 * time.Millisecond, minRounds: 8, maxRounds: 8}
	out, err := measureRounds(t.Context(), []contender{starved, fake("other", time.Microsecond, &turns)}, p)
	if err != nil || out[0].ratio.n != 7 {
		t.Errorf("%v, %v: want 7 of 8 rounds", out, err)
	}
	never := contender{"direct", func(_ context.Context, _, d time.Duration) (sample, error) { return sample{Took: d}, nil }}
	if _, err := measureRounds(t.Context(), []contender{never, fake("other", time.Microsecond, &turns)}, p); err == nil {
		t.Error("no error where the reference never ran")
	}
}

func TestRoundsGoOnWhileTheRatioIsUncertain(t *testing.T) {
	var turns []string
	n := 0
	noisy := contender{"noisy", func(_ context.Context, _, d time.Duration) (sample, error) {
		n++
		return sample{Ops: uint64(100000 + 100000*(n%2)), Took: d, P50: time.Microsecond}, nil
	}}
	out, err := measureRounds(t.Context(), []contender{fake("direct", time.Microsecond, &turns), noisy}, plan{slice: 200 * time.Millisecond, minRounds: 8, maxRounds: 40})
	if err != nil {
		t.Fatal(err)
	}
	if out[1].ratio.n != 40 {
		t.Errorf("%d rounds, want the maximum", out[1].ratio.n)
	}
}

func TestTheMeasuredServicesStandInTheMiddle(t *testing.T) {
	for _, f := range []family{4, 6} {
		for _, n := range []int{10, 1000} {
			ports := fleet(n, f)
			if len(ports) != n-2+len(listeners)+len(crowdListeners) {
				t.Fatalf("%d service ports for %d services", len(ports), n)
			}
			seen := map[string]bool{}
			for _, p := range ports {
				key := fmt.Sprint(p.addr, p.proto, p.port)
				if seen[key] {
					t.Fatalf("frontend %s twice", key)
				}
				seen[key] = true
				if !serviceCIDR[f].Contains(p.addr) {
					t.Fatalf("%s is outside %s", p.addr, serviceCIDR[f])
				}
			}
			if got := ports[n/2]; got.service != measuredService || got.addr != measuredVIP(n, f) {
				t.Errorf("service in the middle is %q at %s", got.service, got.addr)
			}
			if got := ports[n/2+len(listeners)]; got.service != crowdService || got.addr != crowdVIP(n, f) || len(got.backends) != crowdBackends {
				t.Errorf("after it comes %q at %s with %d backends", got.service, got.addr, len(got.backends))
			}
		}
	}
}

func TestRulesOfBothShapesNameEveryServiceOnce(t *testing.T) {
	for _, f := range []family{4, 6} {
		ports := fleet(10, f)
		var nft, ipt bytes.Buffer
		nftRules(&nft, f, ports)
		iptRules(&ipt, f, ports)
		for i, p := range ports {
			for text, rules := range map[string]string{
				fmt.Sprintf("  %s . %s . %d : goto service-%d,\n", p.addr, p.protoName(), p.port, i): nft.String(),
				fmt.Sprintf("dnat to %s\n", hostPort(f, p.backends[0])):                              nft.String(),
				fmt.Sprintf("--dport %d -j B-SVC-%d\n", p.port, i):                                   ipt.String(),
				fmt.Sprintf("--to-destination %s\n", hostPort(f, p.backends[0])):                     ipt.String(),
			} {
				if n := strings.Count(rules, text); n < 1 {
					t.Errorf("%s: %q is missing", f, text)
				}
			}
		}
	}
}

func TestWhatALivingProcessMadeIsNotStale(t *testing.T) {
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a child that has ended and was not waited for", func() (bool, string) {
		return !alive(child.Process.Pid), "alive"
	})
	gone := child.Process.Pid
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		fmt.Sprintf("%s%d-direct-c", netnsPrefix, os.Getpid()): false,
		fmt.Sprintf("%s%d-direct-c", netnsPrefix, gone):        true,
		netnsPrefix + "direct-c":                               false,
		fmt.Sprintf("%d-direct-c", gone):                       false,
	} {
		if got := stale(name, netnsPrefix); got != want {
			t.Errorf("%s: stale %v, want %v", name, got, want)
		}
	}
}

func TestUnknownModesAreRefused(t *testing.T) {
	if _, err := selectModes(options{modes: "nftables/10,nonsense"}); err == nil {
		t.Error("no error for a mode that does not exist")
	}
	got, err := selectModes(options{modes: "nftables/10"})
	if err != nil || len(got) != 3 || got[0].name != modeDirect || got[1].name != modeDirect2 {
		t.Errorf("got %v, %v: want the two direct modes and the one asked for", got, err)
	}
}

func TestDirectAndNftablesCarryEveryScenarioInBothFamilies(t *testing.T) {
	testenv.RequireRoot(t)
	b := &bench{o: options{cpu: 0, realtime: true, slice: 12 * time.Millisecond}}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	every := "pod host crowd"
	b.raiseAll(t.Context(), []mode{
		{name: modeDirect, groups: every, carry: carryDirect}, {name: modeDirect2, groups: every, carry: carryDirect},
		{name: "nftables", services: 10, by: byNetfilter, groups: every, carry: carryNftables},
	})
	if len(b.stages) != 3 {
		t.Fatalf("%d modes are up, want 3", len(b.stages))
	}
	for _, f := range []family{4, 6} {
		for _, s := range append(scenarios, mappedScenarios...) {
			if s.mapped && f == 6 {
				continue
			}
			entrants, err := b.prepareCounted(t.Context(), s, f)
			if err != nil {
				t.Fatal(err)
			}
			if len(entrants) != 3 {
				t.Errorf("%s %s works in %d modes, want 3", s.name, f, len(entrants))
				continue
			}
			out, err := measureRounds(t.Context(), contendersOf(entrants), plan{0, 2 * b.o.slice, 1, 1})
			if err != nil {
				t.Errorf("%s %s: %v", s.name, f, err)
			}
			for i := range out {
				if out[i].failed > 0 {
					t.Errorf("%s %s: %d operations of %s failed", s.name, f, out[i].failed, entrants[i].label())
				}
			}
		}
	}
}

func TestAModeThatAnotherMechanismCarriesIsLeftOut(t *testing.T) {
	testenv.RequireRoot(t)
	b := &bench{o: options{cpu: 0, realtime: true, slice: 2 * time.Millisecond}}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	b.raiseAll(t.Context(), []mode{
		{name: modeDirect, groups: "pod", carry: carryDirect},
		{name: "pretender", services: 10, by: byPacket, groups: "pod", carry: carryNftables},
	})
	entrants, err := b.prepareCounted(t.Context(), scenarios[0], 4)
	if err != nil || len(entrants) != 1 || b.leftOut != 1 {
		t.Errorf("%d modes take part, %d are left out, %v: want 1 and 1", len(entrants), b.leftOut, err)
	}
}

// TestMain lets the test binary be its own worker.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == workerVerb {
		workerMain(os.Args[2])
		return
	}
	os.Exit(m.Run())
}
