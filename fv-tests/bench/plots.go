// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// The plots of docs/performance.md, drawn from results.

// colors of the modes, and of everything else.
var colors = map[string]string{
	modeDirect: "#8c959f", modeDirect2: "#8c959f", "redirect-limit": "#afb8c1", "redirect-limit-tcx": "#afb8c1", "connect-limit": "#a5d0ff",
	modeCTLB: "#1f6feb", modeTC: "#2da44e", "nftables": "#bf8700", "iptables": "#cf222e",
}

func colorOf(mode string) string {
	if c, ok := colors[mode]; ok {
		return c
	}
	return "#8250df"
}

// drawAll writes the plots into a directory. One for which nothing was measured is not written.
func drawAll(results []result, dir string) error {
	plots := map[string]string{
		"pod-to-service.svg": ratioBars(results, "pod",
			"Pod to service: operations for each CPU second", "Relative to routing between the pods without service, policy or netfilter (line at 1). IPv4; thin lines: quartiles of the rounds."),
		"node-to-service.svg": ratioBars(results, "host",
			"The node itself to a service", "Relative to routing from node to pod (line at 1). IPv4; thin lines: quartiles of the rounds."),
		"latency.svg": crowdLines(results, "crowd_tcp_short", []crowdPlot{
			{"p50, microseconds", metricP50}, {"p99, microseconds", metricP99}},
			"Short connections: time of a connection", fmt.Sprintf("One ClusterIP, %d backends, %d connections at a time, client and server on one CPU. IPv4.", crowdBackends, crowdWidth)),
		"throughput.svg": crowdLines(results, "crowd_tcp_short", []crowdPlot{{"connections a second", metricRate}},
			"Short connections: throughput", fmt.Sprintf("One ClusterIP, %d backends, %d at a time, one CPU. IPv4.", crowdBackends, crowdWidth)),
		"http.svg": crowdLines(results, "crowd_http_close", []crowdPlot{
			{"requests a second", metricRate}, {"p99, microseconds", metricP99}},
			"HTTP, a connection for each request", fmt.Sprintf("One ClusterIP, %d backends, %d requests at a time, 1 KiB answers, client and server on one CPU. IPv4.", crowdBackends, crowdWidth)),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, plot := range plots {
		if plot == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(plot), 0o644); err != nil {
			return fmt.Errorf("write plot: %w", err)
		}
	}
	fmt.Printf("plots: %s\n", dir)
	return nil
}

// ratioBars has a panel for each scenario of a group.
func ratioBars(results []result, group, title, note string) string {
	var panels []barPanel
	ss := scenariosOf(results, group)
	for _, s := range ss {
		p := barPanel{title: s.title}
		for _, r := range rowsOf(results, ss) {
			if v := find(results, s.name, r.mode, r.services, 4, metricRatio); v != nil && r.mode != modeDirect {
				p.bars = append(p.bars, bar{r.label(), colorOf(r.mode), v.Value, v.Q1, v.Q3, v.Void})
			}
		}
		if len(p.bars) > 0 {
			panels = append(panels, p)
		}
	}
	if len(panels) == 0 {
		return ""
	}
	return bars(title, note, panels)
}

// crowdPlot is one panel over the number of services.
type crowdPlot struct {
	title  string
	metric string
}

// crowdSizes are the numbers of services on the x axis.
var crowdSizes = []int{10, 1000, 10000}

func crowdLines(results []result, scenario string, plots []crowdPlot, title, note string) string {
	var panels []linePanel
	drawn := false
	for _, p := range plots {
		panel := linePanel{title: p.title}
		for _, mode := range []string{modeDirect, modeCTLB, modeTC, "nftables", "iptables"} {
			c := curve{label: mode, color: colorOf(mode)}
			for _, n := range crowdSizes {
				services := n
				if mode == modeDirect {
					services, c.dashed = 0, true
				}
				if v := find(results, scenario, mode, services, 4, p.metric); v != nil && v.Value > 0 {
					c.points = append(c.points, point{float64(n), v.Value})
				}
			}
			if len(c.points) > 0 {
				panel.curves = append(panel.curves, c)
				drawn = true
			}
		}
		panels = append(panels, panel)
	}
	if !drawn {
		return ""
	}
	var xs []float64
	for _, n := range crowdSizes {
		xs = append(xs, float64(n))
	}
	return lines(title, note, "services", xs, panels)
}
