// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// goal is one line of what the project asks of itself.
type goal struct {
	name    string
	metric  string
	modes   []string // the best of them counts
	atLeast float64  // or
	atMost  float64
	peer    string // what others measure, for comparison
}

var (
	byAny   = []string{modeCTLB, modeTC}
	ctlb    = []string{modeCTLB}
	tc      = []string{modeTC}
	anyMode = []string{modeAgent}
)

var goals = []goal{
	{"tcp_short", metricRatio, ctlb, 1.02, 0, "best peer 0.95"},
	{"udp_established", metricRatio, byAny, 1.00, 0, "0.80, kube-proxy nftables 0.90"},
	{"udp_new_flow", metricRatio, byAny, 0.90, 0, "0.74, kube-proxy nftables 0.77"},
	{"tcp_short", metricRatio, tc, 0.95, 0, "0.74, kube-proxy nftables 0.80"},
	{"udp_established", metricRatio, tc, 1.00, 0, "0.80, 0.90"},
	{"udp_new_flow", metricRatio, tc, 0.88, 0, "0.74, 0.77"},
	{"tcp_rr", metricRatio, tc, 1.03, 0, "0.82, 0.86"},
	{"connect4/tcp_short", metricNSPerRun, ctlb, 0, 650, "1297"},
	{"sendmsg4/udp_unconnected", metricNSPerRun, ctlb, 0, 450, "781"},
	{"udp_established", metricNSPerRun, tc, 0, 300, "625"},
	{"udp_established", metricRuns, tc, 0, 2.05, "4"},
	{nameAttach, metricTime, anyMode, 0, 2, ""},
}

// verdict is what became of a goal in one family with one number of services.
type verdict struct {
	goal
	best *result
	ok   bool
}

// judge holds results against a goal. Few and many services count alike.
func (g goal) judge(results []result) []verdict {
	var out []verdict
	for _, f := range []family{0, 4, 6} {
		for _, services := range []int{0, 10, 30000} {
			var best *result
			for _, mode := range g.modes {
				r := find(results, g.name, mode, services, f, g.metric)
				if services == 0 && mode != modeAgent {
					continue // to a pod
				}
				if r != nil && (best == nil || g.better(r.Value, best.Value)) {
					best = r
				}
			}
			if best != nil {
				out = append(out, verdict{g, best, best.Value >= g.atLeast && (g.atMost == 0 || best.Value <= g.atMost)})
			}
		}
	}
	return out
}

func (g goal) better(a, b float64) bool {
	if g.atMost > 0 {
		return a < b
	}
	return a > b
}

func (g goal) limit() string {
	if g.atMost > 0 {
		return fmt.Sprintf("<= %.2f", g.atMost)
	}
	return fmt.Sprintf(">= %.2f", g.atLeast)
}

func (v verdict) text() string {
	switch {
	case v.best.Void:
		return "VOID"
	case v.ok:
		return "ok"
	}
	return "MISSED"
}

func (v verdict) where() string {
	if v.best.Services == 0 {
		return v.best.Mode
	}
	return fmt.Sprintf("%s, %s, %s", v.best.Mode, thousands(v.best.Services), family(v.best.Family))
}

// printGoals holds the results against the goals. It returns how many were missed.
func (b *bench) printGoals() int {
	missed := 0
	t := table{{"goals", "", "", "", "", ""}}
	for _, g := range goals {
		for _, v := range g.judge(b.results) {
			if !v.ok {
				missed++
			}
			t = append(t, []string{v.text(), g.name + " " + g.metric, v.where(), fmt.Sprintf("%.3f", v.best.Value), g.limit(), "others: " + g.peer})
		}
	}
	fmt.Println()
	t.screen(os.Stdout)
	return missed + b.printAlike() + printClaims(os.Stdout, b.results)
}

// goalTable is the goals with what was measured, families side by side.
func goalTable(results []result) table {
	t := table{{"goal", "wanted", "measured, IPv4 / IPv6", "by", "", "others"}}
	for _, g := range goals {
		var values, by []string
		ok := true
		for _, v := range g.judge(results) {
			if v.best.Services == 30000 {
				continue // 10 and 30,000 are compared on their own
			}
			value := fmt.Sprintf("%.2f", v.best.Value)
			if g.metric == metricNSPerRun {
				value = fmt.Sprintf("%.0f", v.best.Value)
			}
			values = append(values, value)
			if !slices.Contains(by, v.best.Mode) {
				by = append(by, v.best.Mode)
			}
			ok = ok && v.ok && !v.best.Void
		}
		if len(values) == 0 {
			continue
		}
		reached := "reached"
		if !ok {
			reached = "**missed**"
		}
		t = append(t, []string{g.name + ", " + g.metric, g.limit(), strings.Join(values, " / "), strings.Join(by, ", "), reached, g.peer})
	}
	return t
}

// alike is how far apart the ratios of few and many services may be.
const alike = 0.03

// printAlike compares few services with many.
func (b *bench) printAlike() int {
	missed := 0
	for _, few := range b.results {
		if few.Mode != modeTC && few.Mode != modeCTLB || few.Metric != metricRatio || few.Services != 10 {
			continue
		}
		many := find(b.results, few.Name, few.Mode, 30000, family(few.Family), metricRatio)
		if many == nil {
			continue
		}
		apart := many.Value/few.Value - 1
		v := verdict{best: &result{Void: few.Void || many.Void}, ok: apart <= alike && apart >= -alike}
		if !v.ok {
			missed++
		}
		fmt.Printf("  %-6s %s %s %s: 30,000 services against 10: %+.1f %% (within %.0f %%)\n",
			v.text(), few.Name, few.Mode, family(few.Family), 100*apart, 100*alike)
	}
	return missed
}

// claim is what somebody has published of a like comparison: not ours to reach, but to be told beside ours.
type claim struct {
	said          string
	name, metric  string
	mode, against string
	services      int
}

var claims = []claim{
	{"+15 % throughput by sockets against TC", "crowd_tcp_short", metricRatio, modeCTLB, modeTC, 10},
	{"-20 % latency by sockets against TC", "crowd_tcp_short", metricP50Ratio, modeCTLB, modeTC, 10},
	{"the same, at p99", "crowd_tcp_short", metricP99Ratio, modeCTLB, modeTC, 10},
	{"+19.5 % HTTP requests against kube-proxy, few services", "crowd_http_close", metricRatio, modeCTLB, "iptables", 10},
	{"+27.7 % with 500 more services", "crowd_http_close", metricRatio, modeCTLB, "iptables", 1000},
	{"-", "crowd_http_close", metricRatio, modeCTLB, "iptables", 10000},
	{"-", "crowd_http_close", metricRatio, modeCTLB, "nftables", 10},
	{"-", "crowd_http_close", metricRatio, modeCTLB, "nftables", 10000},
}

// measured is what came out here, as a relative difference of the two modes' ratios to direct.
func (c claim) measured(results []result) (difference float64, ok bool) {
	own := find(results, c.name, c.mode, c.services, 4, c.metric)
	other := find(results, c.name, c.against, c.services, 4, c.metric)
	if own == nil || other == nil || other.Value == 0 {
		return 0, false
	}
	return own.Value/other.Value - 1, true
}

// claimTable sets what others have published beside what was measured here.
func claimTable(results []result) table {
	t := table{{"published", "here", "of", "against", "services"}}
	titles := map[string]string{metricRatio: "rate", metricP50Ratio: "p50", metricP99Ratio: "p99"}
	for _, c := range claims {
		if d, ok := c.measured(results); ok {
			t = append(t, []string{c.said, fmt.Sprintf("%+.1f %%", 100*d), c.name + ", " + titles[c.metric], c.against, thousands(c.services)})
		}
	}
	return t
}

// printClaims shows them. None of them is a goal: nothing is ever missed.
func printClaims(w io.Writer, results []result) int {
	if t := claimTable(results); len(t) > 1 {
		fmt.Fprintln(w)
		t.screen(w)
	}
	return 0
}
