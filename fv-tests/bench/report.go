// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// result is one figure of bench.json.
type result struct {
	Name     string  `json:"name"`
	Mode     string  `json:"mode"`
	Services int     `json:"services"`
	Family   int     `json:"family"` // 0: both
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Q1       float64 `json:"q1"`
	Q3       float64 `json:"q3"`
	Rounds   int     `json:"rounds"`
	Failed   uint64  `json:"failed,omitempty"` // operations that did not succeed
	Void     bool    `json:"void,omitempty"`   // direct2 was off by more than 2 %
}

// Metrics of results.
const (
	metricRatio = "ratio_to_direct"
	metricRate  = "rate"
)

func (b *bench) record(m mode, f family, w workload, o outcome, void bool) {
	base := result{Name: string(w), Mode: m.name, Services: m.services, Family: int(f), Rounds: o.ratio.n, Failed: o.failed, Void: void}
	ratio, rate := base, base
	ratio.Metric, ratio.Value, ratio.Unit, ratio.Q1, ratio.Q3 = metricRatio, o.ratio.median, "1", o.ratio.q1, o.ratio.q3
	rate.Metric, rate.Value, rate.Unit, rate.Q1, rate.Q3 = metricRate, o.rate.median, "1/s", o.rate.q1, o.rate.q3
	b.results = append(b.results, ratio, rate)
	note := ""
	if o.failed > 0 {
		note = fmt.Sprintf("  %d of %d failed", o.failed, o.failed+o.ops)
	}
	fmt.Printf("  %-16s %s %-16s %.3f +-%.3f  (%.3f .. %.3f, %d rounds)  %.0f/s%s\n",
		w, f, m.label(), o.ratio.median, o.ratio.uncertainty(), o.ratio.q1, o.ratio.q3, o.ratio.n, o.rate.median, note)
}

// find returns a result, or nil.
func (b *bench) find(name, mode string, services int, f family, metric string) *result {
	for i := range b.results {
		r := &b.results[i]
		if r.Name == name && r.Mode == mode && r.Services == services && r.Family == int(f) && r.Metric == metric {
			return r
		}
	}
	return nil
}

// printRatios prints one table for each family: modes down, workloads across.
func (b *bench) printRatios(families []family) {
	for _, f := range families {
		fmt.Printf("\nratio to direct, IP%s (median of rounds, quartiles)\n%-16s", f, "")
		for _, w := range workloads {
			fmt.Printf(" | %-24s", w.title())
		}
		fmt.Println()
		for _, st := range b.stages {
			var cells []string
			for _, w := range workloads {
				cell := "-"
				if r := b.find(string(w), st.name, st.services, f, metricRatio); r != nil {
					cell = fmt.Sprintf("%.3f (%.3f .. %.3f)", r.Value, r.Q1, r.Q3)
					if r.Void {
						cell += " void"
					}
				}
				cells = append(cells, fmt.Sprintf("%-24s", cell))
			}
			fmt.Printf("%-16s | %s\n", st.label(), strings.Join(cells, " | "))
		}
	}
}

// write stores the results.
func (b *bench) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(b.results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	fmt.Printf("\nresults: %s\n", path)
	return nil
}
