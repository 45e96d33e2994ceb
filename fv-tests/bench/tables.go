// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Tables are made of results alone, for the screen and for docs/performance.md alike.

// row is a mode in a table.
type row struct {
	mode     string
	services int
	toPod    bool // a mode with services, but its clients talked to pods
}

func (r row) label() string {
	switch {
	case r.toPod:
		return r.mode + " to pod"
	case r.services == 0:
		return r.mode
	}
	return fmt.Sprintf("%s, %s", r.mode, thousands(r.services))
}

// thousands writes 10000 as 10,000.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// rowsOf are the modes that have results in some scenarios, in the order of the results.
func rowsOf(results []result, ss []scenario) []row {
	var out []row
	withServices := map[string]bool{}
	for _, r := range results {
		withServices[r.Mode] = withServices[r.Mode] || r.Services > 0
	}
	for _, r := range results {
		if r.Metric != metricRatio || !slices.ContainsFunc(ss, func(s scenario) bool { return s.name == r.Name }) {
			continue
		}
		w := row{r.Mode, r.Services, r.Services == 0 && withServices[r.Mode]}
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// scenariosOf are those of a group that have results.
func scenariosOf(results []result, group string) []scenario {
	var out []scenario
	for _, s := range scenarios {
		measured := func(r result) bool { return r.Name == s.name && r.Metric == metricRatio }
		if s.group() == group && slices.ContainsFunc(results, measured) {
			out = append(out, s)
		}
	}
	return out
}

// table is rows of cells, the first of them its head.
type table [][]string

// markdown writes the table as docs have it.
func (t table) markdown(w io.Writer) {
	for i, cells := range t {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(cells)))
		}
	}
}

// screen writes it with columns that stand below each other.
func (t table) screen(w io.Writer) {
	widths := map[int]int{}
	for _, cells := range t {
		for i, c := range cells {
			widths[i] = max(widths[i], len(c))
		}
	}
	for _, cells := range t {
		for i, c := range cells {
			fmt.Fprintf(w, "  %-*s", widths[i], c)
		}
		fmt.Fprintln(w)
	}
}

// both writes the figures of the two families into one cell.
func both(results []result, name, mode string, services int, metric, format string) string {
	var parts []string
	for _, f := range []family{4, 6} {
		if r := find(results, name, mode, services, f, metric); r != nil {
			text := fmt.Sprintf(format, r.Value)
			if r.Void {
				text += " (void)"
			}
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " / ")
}

// runTable says under which circumstances the results came about.
func runTable(results []result) table {
	t := table{{"load average at the start", "after set-up", "at the end", "rounds of short TCP", "void measurements"}}
	machine := func(metric string) string {
		if r := find(results, "machine", "", 0, 0, metric); r != nil {
			return fmt.Sprintf("%.1f", r.Value)
		}
		return "-"
	}
	rounds, void := "-", 0
	for _, r := range results {
		if r.Mode != modeDirect2 || r.Metric != metricRatio {
			continue
		}
		if r.Name == scenarios[0].name && r.Family == 4 {
			rounds = fmt.Sprint(r.Rounds)
		}
		if r.Void {
			void++
		}
	}
	if rounds == "-" {
		return t
	}
	return append(t, []string{machine("load_start"), machine("load_before"), machine("load_after"), rounds, fmt.Sprint(void)})
}

// ratioTable compares the rates of a group's scenarios with direct's.
func ratioTable(results []result, group string) table {
	ss := scenariosOf(results, group)
	head := []string{""}
	for _, s := range ss {
		head = append(head, s.title)
	}
	t := table{head}
	for _, r := range rowsOf(results, ss) {
		cells := []string{r.label()}
		for _, s := range ss {
			cells = append(cells, both(results, s.name, r.mode, r.services, metricRatio, "%.2f"))
		}
		t = append(t, cells)
	}
	return t
}

// latencyTable has rate, p50 and p99 of the crowd's scenarios in IPv4.
func latencyTable(results []result) table {
	ss := scenariosOf(results, "crowd")
	head := []string{""}
	for _, s := range ss {
		head = append(head, s.title+": 1/s", "p50 us", "p99 us")
	}
	t := table{head}
	for _, r := range rowsOf(results, ss) {
		cells := []string{r.label()}
		for _, s := range ss {
			for metric, format := range orderedMetrics {
				cell := "-"
				if v := find(results, s.name, r.mode, r.services, 4, metric); v != nil {
					cell = format(v.Value)
				}
				cells = append(cells, cell)
			}
		}
		t = append(t, cells)
	}
	return t
}

// orderedMetrics are those of latencyTable with their formats.
func orderedMetrics(yield func(string, func(float64) string) bool) {
	whole := func(v float64) string { return thousands(int(v + 0.5)) }
	_ = yield(metricRate, whole) && yield(metricP50, whole) && yield(metricP99, whole)
}

var allScenarios = slices.Concat(scenarios, mappedScenarios)

// hookTable has the costs of the programs at connect time, of the mode with few services.
func hookTable(results []result) table {
	t := table{{"hook", "scenario", "ns per run", "runs per operation", "the client's, ns"}}
	var seen []string
	for _, r := range results {
		hook, name, ok := strings.Cut(r.Name, "/")
		if !ok || r.Metric != metricNSPerRun || r.Mode != modeCTLB || r.Services != 10 || slices.Contains(seen, r.Name) {
			continue
		}
		seen = append(seen, r.Name)
		at := slices.IndexFunc(allScenarios, func(s scenario) bool { return s.name == name })
		if at < 0 || allScenarios[at].node {
			continue // a socket of the node costs what a pod's does
		}
		title := allScenarios[at].title
		t = append(t, []string{
			hook, title, both(results, r.Name, r.Mode, r.Services, metricNSPerRun, "%.0f"),
			both(results, r.Name, r.Mode, r.Services, metricRuns, "%.2f"), clientsShare(results, hook, name),
		})
	}
	return t
}

// clientsShare is what a run for the client costs, where every other run is for the server: that talks to
// nobody's service, as it does in the scenario of connected sockets, where its runs are the only ones.
func clientsShare(results []result, hook, name string) string {
	const servers = "udp_established"
	var parts []string
	for _, f := range []family{4, 6} {
		runs := find(results, hook+"/"+name, modeCTLB, 10, f, metricRuns)
		all := find(results, hook+"/"+name, modeCTLB, 10, f, metricNSPerRun)
		server := find(results, hook+"/"+servers, modeCTLB, 10, f, metricNSPerRun)
		if runs == nil || all == nil || server == nil || runs.Value < 1.9 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%.0f", 2*all.Value-server.Value))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, " / ")
}

// tcTable has what TC programs cost.
func tcTable(results []result) table {
	t := table{{"", "scenario", "ns per run", "runs per operation"}}
	for _, s := range scenarios {
		for _, mode := range []string{modeTC, modeCTLB} {
			cost := both(results, s.name, mode, 10, metricNSPerRun, "%.0f")
			if cost == "-" {
				continue
			}
			title := s.title
			if s.node {
				title += ", node"
			}
			t = append(t, []string{mode, title, cost, both(results, s.name, mode, 10, metricRuns, "%.2f")})
		}
	}
	return t
}

// printTables shows what came out: each ratio is the median of its rounds, IPv4 / IPv6.
func (b *bench) printTables(families []family) {
	for _, part := range []struct {
		title string
		table table
	}{
		{"pod to service: ratio to direct, median of rounds, " + familyNames(families), ratioTable(b.results, "pod")},
		{"node to service: ratio to direct", ratioTable(b.results, "host")},
		{fmt.Sprintf("%d backends, %d connections at a time: ratio of rates to direct", crowdBackends, crowdWidth), ratioTable(b.results, "crowd")},
		{"the same in figures, v4", latencyTable(b.results)},
		{"programs at connect time, live", hookTable(b.results)},
		{"TC programs, live", tcTable(b.results)},
	} {
		if len(part.table) > 1 {
			fmt.Printf("\n%s\n", part.title)
			part.table.screen(os.Stdout)
		}
	}
}

func familyNames(families []family) string {
	var names []string
	for _, f := range families {
		names = append(names, f.String())
	}
	return strings.Join(names, " / ")
}
