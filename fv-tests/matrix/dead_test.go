// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// A backend dies with flows open to it, its pod goes, and its service has another. Whoever asks anew is
// served by that one without an error once the agents know; nobody hangs: open connections to the dead
// backend end with an error, and open UDP sockets get answers again, from the other.
func TestBackendsThatDieUnderTraffic(t *testing.T) {
	for _, mode := range []Mode{Enabled, Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(Site{Overlay: "VXLAN", Mode: mode}, "Auto"))
			loads := startLoads(t, l)
			for _, ipv6 := range []bool{false, true} {
				if err := l.RemovePod(t.Context(), l.Pod(podName("far", ipv6))); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := deadline(t, programTimeout)
				defer cancel()
				for _, n := range l.Nodes {
					if err := n.WaitFrontend(ctx, serviceFor(spread, ipv6).address(l, ClusterIP), 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			died, err := loads.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait(t, 3*time.Second) // what a client has to notice in
			settled, err := loads.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait(t, 2*time.Second)
			if _, err := loads.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, r := range loads.running {
				last := r.result
				fresh, broken := last.OK-settled[i].OK, (last.Attempts-last.OK)-(settled[i].Attempts-settled[i].OK)
				t.Logf("%-50s errors when it died %d, in 3 s after %d, later %d of %d", r.title, died[i].Attempts-died[i].OK,
					(settled[i].Attempts-settled[i].OK)-(died[i].Attempts-died[i].OK), broken, broken+fresh)
				if broken > 0 || fresh == 0 {
					t.Errorf("%s: %d errors after the clients had three seconds, %d answers %v", r.title, broken, fresh, last.Examples)
				}
			}
		})
	}
}

// A connection that was made before any program of ours was attached goes on when they are: direct ones,
// and those of kube-proxy's rules.
func TestConnectionsOlderThanTheProgramsGoOn(t *testing.T) {
	for _, mode := range []Mode{Enabled, Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			opts := Options(Site{Overlay: "Direct", Mode: mode}, "Auto")
			opts.LateAgents = true
			l := lab.UpForTest(t, opts)
			var running []running
			start := func(title string, from *lab.Place, target string) {
				t.Helper()
				for _, kind := range []probe.LoadKind{probe.LoadTCPOpen, probe.LoadUDPOpen} {
					r := newRunning(fmt.Sprintf("%s %s", kind, title), kind, from)
					err := from.Probe().StartLoad(t.Context(), probe.LoadArgs{
						ID: r.id, Kind: kind, Address: target, Workers: 3, Interval: 50 * time.Millisecond, Timeout: loadTimeout,
					})
					if err != nil {
						t.Fatalf("%s: %v", title, err)
					}
					running = append(running, r)
				}
			}
			for _, ipv6 := range []bool{false, true} {
				vip := foreignVIP(ipv6)
				if err := l.Nodes[0].KubeProxy(t.Context(), vip, podPort(l, "near", ipv6), podPort(l, "far", ipv6)); err != nil {
					t.Fatal(err)
				}
				client := &l.Pod(podName("client", ipv6)).Place
				start("pod to pod of the same node", client, podPort(l, "near", ipv6).String())
				start("pod to pod of the other node", client, podPort(l, "far", ipv6).String())
				start("pod to kube-proxy's service", client, vip.String())
				start("host to pod", &l.Nodes[0].Place, podPort(l, "near", ipv6).String())
				start("host to pod of the other node", &l.Nodes[0].Place, podPort(l, "far", ipv6).String())
				start("host to kube-proxy's service", &l.Nodes[0].Place, vip.String())
				start("outside to pod", &l.Clients[0].Place, podPort(l, "near", ipv6).String())
			}
			if err := l.StartAgents(t.Context()); err != nil {
				t.Fatal(err)
			}
			wait(t, 2*time.Second) // traffic through the programs
			loads := &Loads{running: running}
			stopLoads(t, l, loads)
		})
	}
}
