// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// goal is one line of what the project asks of itself. Ratios are those of felix-lite's TC programs,
// for 10 and 30,000 services alike.
type goal struct {
	name    string
	metric  string
	atLeast float64 // or
	atMost  float64
	peer    string // what others measure, for comparison
}

var goals = []goal{
	{string(tcpShort), metricRatio, 0.95, 0, "a comparable TC dataplane 0.74, kube-proxy nftables 0.80"},
	{string(udpEstablished), metricRatio, 1.00, 0, "0.80, 0.90"},
	{string(udpNewFlow), metricRatio, 0.88, 0, "0.74, 0.77"},
	{string(tcpRR), metricRatio, 1.03, 0, "0.82, 0.86"},
	{string(udpEstablished), metricNSPerRun, 0, 300, "625"},
	{string(udpEstablished), metricRuns, 0, 2.05, "4"},
	{nameAttach, metricTime, 0, 2, ""},
}

// alike is how far apart the ratios of few and many services may be.
const alike = 0.03

// printGoals holds the results against the goals. It returns how many were missed.
func (b *bench) printGoals() int {
	missed := 0
	fmt.Printf("\ngoals\n")
	for _, g := range goals {
		for _, r := range b.results {
			if r.Name != g.name || r.Metric != g.metric || r.Mode != modeFelix {
				continue
			}
			ok := r.Value >= g.atLeast
			limit := fmt.Sprintf(">= %.2f", g.atLeast)
			if g.atMost > 0 {
				ok, limit = r.Value <= g.atMost, fmt.Sprintf("<= %.2f", g.atMost)
			}
			if !ok {
				missed++
			}
			where := ""
			if r.Services > 0 {
				where = fmt.Sprintf("%s/%d %s", r.Mode, r.Services, family(r.Family))
			}
			fmt.Printf("  %-6s %-24s %-20s %-20s %8.3f %-8s", verdict(ok, r.Void), g.name, g.metric, where, r.Value, limit)
			if g.peer != "" {
				fmt.Printf(" others: %s", g.peer)
			}
			fmt.Println()
		}
	}
	return missed + b.printAlike()
}

func verdict(ok, void bool) string {
	switch {
	case void:
		return "VOID"
	case ok:
		return "ok"
	}
	return "MISSED"
}

// printAlike compares few services with many.
func (b *bench) printAlike() int {
	missed := 0
	for _, few := range b.results {
		if few.Mode != modeFelix || few.Metric != metricRatio || few.Services != 10 {
			continue
		}
		many := b.find(few.Name, modeFelix, 30000, family(few.Family), metricRatio)
		if many == nil {
			continue
		}
		apart := many.Value/few.Value - 1
		ok := apart <= alike && apart >= -alike
		if !ok {
			missed++
		}
		fmt.Printf("  %-6s %-24s 30,000 services against 10, %s: %+.1f %% (within %.0f %%)\n",
			verdict(ok, few.Void || many.Void), few.Name, family(few.Family), 100*apart, 100*alike)
	}
	return missed
}
