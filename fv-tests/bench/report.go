// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	metricRatio    = "ratio_to_direct"
	metricRate     = "rate"
	metricP50      = "p50"
	metricP99      = "p99"
	metricP50Ratio = "p50_ratio_to_direct"
	metricP99Ratio = "p99_ratio_to_direct"
)

// record stores what rounds found about an entrant.
func (b *bench) record(e entrant, s scenario, f family, o outcome, void bool) {
	for _, m := range []struct {
		metric, unit string
		summary
	}{
		{metricRatio, "1", o.ratio}, {metricRate, "1/s", o.rate}, {metricP50, "us", o.p50}, {metricP99, "us", o.p99},
		{metricP50Ratio, "1", o.p50ratio}, {metricP99Ratio, "1", o.p99ratio},
	} {
		r := e.result(s, f)
		r.Metric, r.Unit, r.Value, r.Q1, r.Q3, r.Rounds = m.metric, m.unit, m.median, m.q1, m.q3, m.n
		r.Failed, r.Void = o.failed, void
		b.results = append(b.results, r)
	}
	note := ""
	if o.failed > 0 {
		note = fmt.Sprintf("  %d of %d failed", o.failed, o.failed+o.ops)
	}
	fmt.Printf("  %-20s %s %-18s %.3f +-%.3f  (%.3f .. %.3f, %d rounds)  %.0f/s, p50 %.1f us, p99 %.1f us%s\n",
		s.name, f, e.label(), o.ratio.median, o.ratio.uncertainty(), o.ratio.q1, o.ratio.q3, o.ratio.n, o.rate.median, o.p50.median, o.p99.median, note)
}

// recordMachine stores the load averages of the last minute: when the bench began, which is others' work (and the build), when
// its modes were set up, and at the end. The latter two are mostly its own.
func (b *bench) recordMachine(start, before, after string) {
	for metric, text := range map[string]string{"load_start": start, "load_before": before, "load_after": after} {
		if load, err := strconv.ParseFloat(text, 64); err == nil {
			b.results = append(b.results, result{Name: "machine", Metric: metric, Value: load, Unit: "1", Q1: load, Q3: load, Rounds: 1})
		}
	}
}

// find returns a result, or nil.
func find(results []result, name, mode string, services int, f family, metric string) *result {
	for i := range results {
		r := &results[i]
		if r.Name == name && r.Mode == mode && r.Services == services && r.Family == int(f) && r.Metric == metric {
			return r
		}
	}
	return nil
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
