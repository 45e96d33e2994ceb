// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// Loads are streams of traffic that run while something is done to the dataplane. Their clients do not
// retry: one error is one broken promise.
type Loads struct {
	running []running
}

type running struct {
	title       string
	kind        probe.LoadKind
	unconnected bool
	from        Client
	place       *lab.Place
	id          string
	result      probe.Result
}

// loadNumber makes the ids of loads differ.
var loadNumber atomic.Int64

func newRunning(title string, kind probe.LoadKind, place *lab.Place) running {
	return running{title: title, kind: kind, place: place, id: fmt.Sprint("load-", loadNumber.Add(1))}
}

// loadTimeout is long where nothing may fail: what takes more than a second is counted as slow, only what never comes is an
// error.
const loadTimeout = 10 * time.Second

// kinds of load, for each path and family.
var kinds = []struct {
	name        string
	kind        probe.LoadKind
	unconnected bool
	workers     int
	interval    time.Duration
}{
	{"new TCP", probe.LoadTCPConnect, false, 3, 40 * time.Millisecond},
	{"new UDP", probe.LoadUDPNew, false, 3, 50 * time.Millisecond},
	{"new unconnected UDP", probe.LoadUDPNew, true, 3, 50 * time.Millisecond},
	{"open TCP", probe.LoadTCPOpen, false, 17, 100 * time.Millisecond},
	{"open UDP", probe.LoadUDPOpen, false, 4, 100 * time.Millisecond},
	{"open unconnected UDP", probe.LoadUDPOpen, true, 4, 100 * time.Millisecond},
}

// StartLoads starts, in both families, from a pod and from a host to a ClusterIP and from outside to a
// NodePort, with backends on both nodes: new TCP connections, new UDP sockets, open connections (about
// 100 in all) and open UDP sockets; UDP by connected and unconnected ones.
func StartLoads(ctx context.Context, l *lab.Lab, timeout time.Duration) (*Loads, error) {
	loads := &Loads{}
	for _, ipv6 := range []bool{false, true} {
		for _, path := range []struct {
			from Client
			to   Frontend
		}{{FromPod, ClusterIP}, {FromNode, ClusterIP}, {FromOutside, NodePort}} {
			cell := Cell{Path: Path{From: path.from, To: path.to, Backend: spread}, IPv6: ipv6}
			for _, kind := range kinds {
				if kind.unconnected && path.from == FromOutside {
					continue // no hook sees these sockets: connected or not is the same
				}
				title := fmt.Sprintf("%-20s %s to %s, %s", kind.name, path.from, path.to, cell.family())
				r := newRunning(title, kind.kind, cell.client(l))
				r.unconnected, r.from = kind.unconnected, path.from
				err := r.place.Probe().StartLoad(ctx, probe.LoadArgs{
					ID: r.id, Kind: kind.kind, Address: cell.target(l).String(), Unconnected: kind.unconnected,
					Workers: kind.workers, Interval: kind.interval, Timeout: timeout,
				})
				if err != nil {
					_, stopErr := loads.Stop(ctx)
					return nil, errors.Join(fmt.Errorf("load %s: %w", r.title, err), stopErr)
				}
				loads.running = append(loads.running, r)
			}
		}
	}
	return loads, nil
}

// Stop ends all loads and returns their sum.
func (s *Loads) Stop(ctx context.Context) (probe.Result, error) {
	return s.collect(func(r *running) (probe.Result, error) { return r.place.Probe().StopLoad(ctx, r.id) })
}

// Snapshot returns the figures of each load so far.
func (s *Loads) Snapshot(ctx context.Context) ([]probe.Result, error) {
	if _, err := s.Sum(ctx); err != nil {
		return nil, err
	}
	var all []probe.Result
	for _, r := range s.running {
		all = append(all, r.result)
	}
	return all, nil
}

// Sum returns the sum of all loads so far.
func (s *Loads) Sum(ctx context.Context) (probe.Result, error) {
	return s.collect(func(r *running) (probe.Result, error) { return r.place.Probe().LoadStats(ctx, r.id) })
}

func (s *Loads) collect(get func(*running) (probe.Result, error)) (probe.Result, error) {
	var sum probe.Result
	var errs []error
	for i := range s.running {
		r := &s.running[i]
		result, err := get(r)
		errs = append(errs, err)
		r.result = result
		sum.Attempts += result.Attempts
		sum.OK += result.OK
		sum.Slow += result.Slow
		sum.Latency.Max = max(sum.Latency.Max, result.Latency.Max)
		sum.Examples = append(sum.Examples, result.Examples...)
		for kind, n := range result.Errors {
			if sum.Errors == nil {
				sum.Errors = map[string]int{}
			}
			sum.Errors[kind] += n
		}
	}
	return sum, errors.Join(errs...)
}

// String is a table of the loads as last collected.
func (s *Loads) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-50s %8s %8s %6s %9s %9s  %s\n", "load", "sent", "errors", "slow", "p99", "max", "backends")
	for _, r := range s.running {
		errorCount := r.result.Attempts - r.result.OK
		fmt.Fprintf(&b, "%-50s %8d %8d %6d %9s %9s  %s\n", r.title, r.result.Attempts, errorCount, r.result.Slow,
			r.result.Latency.P99.Round(10*time.Microsecond), r.result.Latency.Max.Round(10*time.Microsecond), probe.Spread(r.result.Backends))
		for _, e := range r.result.Examples {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
