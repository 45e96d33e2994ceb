// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// metrics are the agent's figures. Counters and histograms are updated by the loop; figures that
// stand in maps are read when somebody asks, from the snapshot the loop published last.
type metrics struct {
	registry *prometheus.Registry

	ready             prometheus.Gauge
	programming       prometheus.Histogram
	sync              *prometheus.HistogramVec
	reconcileErrors   *prometheus.CounterVec
	mapErrors         *prometheus.CounterVec
	programLoadErrors *prometheus.CounterVec
	condition         *prometheus.GaugeVec

	snapshot atomic.Pointer[snapshot]
}

// snapshot is what the loop knows, in a form that others may read at any time.
type snapshot struct {
	pending   map[string]float64 // by table
	entries   map[string]mapFill // by map
	writes    map[string]uint64  // by map
	conntrack map[ctLabels]float64
	endpoints [2]int // all, ready
	sockets   socketFigures
	ifaces    []counted
	retired   *dropTotals
	counters  *maps.Counters
}

// socketFigures is what is told of connect time and of the fallback. working has no value while the self-test has not told.
type socketFigures struct {
	mode              string
	balances, pending bool
	working, pair     float64
	optedOut          float64
}

type mapFill struct{ entries, max float64 }

type ctLabels struct{ family, proto string }

// counted is a row of the counters and the class that it is counted for.
type counted struct {
	slot  uint32
	class layout.Class
}

func newMetrics(version, revision string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	buckets := prometheus.ExponentialBuckets(0.0005, 2, 18)
	m.ready = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "felix_lite_ready", Help: "1 if the agent can program the dataplane (as /readyz says)."})
	m.programming = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "felix_lite_network_programming_duration_seconds", Buckets: buckets,
		Help: "Time from the change that an EndpointSlice tells of to its being in the maps."})
	m.sync = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "felix_lite_sync_duration_seconds", Buckets: buckets,
		Help: "Time that one pass spent on a component."}, []string{"component"})
	m.reconcileErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "felix_lite_reconcile_errors_total", Help: "Refused writes and deletes, and failed reads, by table."},
		[]string{"table"})
	m.mapErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "felix_lite_map_errors_total", Help: "Operations on a BPF map that the kernel refused."}, []string{"map"})
	m.programLoadErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "felix_lite_program_load_errors_total", Help: "Programs that could not be loaded, by variant."},
		[]string{"variant"})
	m.condition = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "felix_lite_condition", Help: "1 if the condition of /readyz holds."}, []string{"condition"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "felix_lite_build_info",
		Help: "Always 1; the labels say which build runs.", ConstLabels: prometheus.Labels{"version": version, "revision": revision}})
	build.Set(1)
	m.registry.MustRegister(m.ready, m.programming, m.sync, m.reconcileErrors, m.mapErrors, m.programLoadErrors, m.condition, build,
		(*mapCollector)(m), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, table := range tableNames {
		m.reconcileErrors.WithLabelValues(table)
	}
	return m
}

// tableNames are all values of the label "table".
var tableNames = []string{"frontends", "backends", "routes", "kernel_routes", "neighbours", "interfaces", "programs", "tunnel", "netfilter"}

func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// mapCollector reads what the loop published, and the counters, at the time of the scrape.
type mapCollector metrics

var (
	descEntries    = desc("map_entries", "Entries in a BPF map, as last counted.", "map")
	descMax        = desc("map_max_entries", "Size of a BPF map.", "map")
	descWrites     = desc("map_writes_total", "Entries of a BPF map that the agent wrote or deleted.", "map")
	descPending    = desc("reconcile_pending", "Entries that are not yet in the kernel as they should be.", "table")
	descConntrack  = desc("conntrack_entries", "Live flows, as last swept.", "family", "proto")
	descDrops      = desc("drops_total", "Packets dropped by the datapath.", "class", "hook", "reason", "family")
	descEndpoints  = desc("endpoints", "Endpoint files of this node.")
	descEndpointsR = desc("endpoints_ready", "Endpoint files of this node that are answered ready.")
	descSockets    = desc("socket_lb_working", "1 if sockets are balanced at connect time as the mode says: hooks are attached, the self-test passed.", "mode")
	descOptedOut   = desc("socket_lb_opted_out", "Network namespaces whose sockets are not balanced at connect time.")
	descPair       = desc("fallback_in_use", "1 if this host's traffic to services is led through bpfin.cali and bpfout.cali.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("felix_lite_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *mapCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEntries, descMax, descWrites, descPending, descConntrack, descDrops, descEndpoints,
		descEndpointsR, descSockets, descOptedOut, descPair} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *mapCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.snapshot.Load()
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for name, f := range s.entries {
		gauge(descEntries, f.entries, name)
		gauge(descMax, f.max, name)
	}
	for name, n := range s.writes {
		ch <- prometheus.MustNewConstMetric(descWrites, prometheus.CounterValue, float64(n), name)
	}
	for name, n := range s.pending {
		gauge(descPending, n, name)
	}
	for l, n := range s.conntrack {
		gauge(descConntrack, n, l.family, l.proto)
	}
	gauge(descEndpoints, float64(s.endpoints[0]))
	gauge(descEndpointsR, float64(s.endpoints[1]))
	if k := s.sockets; k.balances {
		if !k.pending {
			gauge(descSockets, k.working, k.mode)
		}
		gauge(descOptedOut, k.optedOut)
	}
	gauge(descPair, s.sockets.pair)
	totals := s.retired.clone()
	for _, i := range s.ifaces {
		totals.addSlot(s.counters, i.slot, i.class)
	}
	for key, n := range totals.counts {
		ch <- prometheus.MustNewConstMetric(descDrops, prometheus.CounterValue, float64(n), key.class.String(), key.hook.String(),
			key.reason.String(), key.family.String())
	}
}

// dropTotals sums drop counters over interfaces; those of interfaces that have gone are kept, so
// that a total never falls.
type dropTotals struct{ counts map[dropKey]uint64 }

type dropKey struct {
	class  layout.Class
	hook   layout.Hook
	reason layout.Counter
	family layout.Family
}

func newDropTotals() *dropTotals { return &dropTotals{counts: map[dropKey]uint64{}} }

func (t *dropTotals) clone() *dropTotals {
	c := newDropTotals()
	for k, v := range t.counts {
		c.counts[k] = v
	}
	return c
}

// addSlot adds all rows of an interface slot. A row that can not be read adds nothing.
func (t *dropTotals) addSlot(counters *maps.Counters, slot uint32, class layout.Class) {
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		for _, family := range []layout.Family{layout.FamilyV4, layout.FamilyV6} {
			row, err := counters.Read(maps.CounterKey{Slot: slot, Hook: hook, Family: family})
			if err != nil {
				continue
			}
			for reason := layout.DropPolicy; reason < layout.CounterMax; reason++ {
				if n := row.Count[reason]; n != 0 {
					t.counts[dropKey{class, hook, reason, family}] += n
				}
			}
		}
	}
}
