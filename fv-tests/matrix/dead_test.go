// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// A backend dies with flows open to it, its pod goes, and its service has another. Whoever connects anew
// is served by that one once the agents know, and nobody hangs: open connections to the dead backend end
// with an error at once. Unconnected UDP sockets that are balanced at connect time, each datagram anew, get
// answers again. Other UDP flows keep the backend that they have while they are used: that is printed.
func TestBackendsThatDieUnderTraffic(t *testing.T) {
	const patience = 2 * time.Second // a datagram's, and a dead connection's
	for _, mode := range []Mode{Enabled, Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(Site{Overlay: "VXLAN", Mode: mode}, "Auto"))
			loads, err := StartLoads(t.Context(), l, patience)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := deadline(t, programTimeout)
			defer cancel()
			for _, ipv6 := range []bool{false, true} {
				if err := l.RemovePod(ctx, l.Pod(podName("far", ipv6))); err != nil {
					t.Fatal(err)
				}
				for _, n := range l.Nodes {
					if err := n.WaitFrontend(ctx, serviceFor(spread, ipv6).address(l, ClusterIP), 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			wait(t, 2*patience) // what was under way has ended
			settled, err := loads.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait(t, patience)
			if _, err := loads.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, r := range loads.running {
				before, last := settled[i], r.result
				failed := (last.Attempts - last.OK) - (before.Attempts - before.OK)
				t.Logf("%-50s errors while it died %3d, later %d of %d", r.title, before.Attempts-before.OK, failed, last.Attempts-before.Attempts)
				tcp := r.kind == probe.LoadTCPConnect || r.kind == probe.LoadTCPOpen
				moves := tcp || r.unconnected && mode == Enabled
				if moves && (failed > 0 || last.OK == before.OK) {
					t.Errorf("%s: later %d errors, %d answers %v", r.title, failed, last.OK-before.OK, last.Examples)
				}
				if r.kind == probe.LoadTCPOpen && last.Errors["timeout"] > 0 {
					t.Errorf("%s: %d connections to the dead backend were left hanging %v", r.title, last.Errors["timeout"], last.Examples)
				}
			}
		})
	}
}

// A connection that was made before any program of ours was attached goes on when they are: direct ones,
// and those of kube-proxy's rules. While an agent loads its first programs a pod's packets may be dropped
// (it is closed until it is programmed): TCP sends them again, datagrams of that time are lost.
func TestConnectionsOlderThanTheProgramsGoOn(t *testing.T) {
	for _, mode := range []Mode{Enabled, Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			// TCP's own pauses grow with the time that a segment is not answered.
			const patience, tcpPatience = 3 * time.Second, 2 * time.Minute
			opts := Options(Site{Overlay: "Direct", Mode: mode}, "Auto")
			opts.LateAgents = true
			l := lab.UpForTest(t, opts)
			old := &Loads{}
			start := func(title string, from *lab.Place, target string) {
				t.Helper()
				for kind, timeout := range map[probe.LoadKind]time.Duration{
					probe.LoadTCPOpen: tcpPatience, probe.LoadUDPOpen: patience,
				} {
					r := newRunning(fmt.Sprintf("%s %s", kind, title), kind, from)
					err := from.Probe().StartLoad(t.Context(), probe.LoadArgs{
						ID: r.id, Kind: kind, Address: target, Workers: 3, Interval: 50 * time.Millisecond, Timeout: timeout,
					})
					if err != nil {
						t.Fatalf("%s: %v", title, err)
					}
					old.running = append(old.running, r)
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
			wait(t, patience+time.Second) // datagrams that were under way have been given up
			attached, err := old.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait(t, 2*time.Second) // traffic through the programs
			if _, err := old.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("figures of all loads:\n%s", old)
			for i, r := range old.running {
				failed := r.result.Attempts - r.result.OK
				if r.kind == probe.LoadUDPOpen {
					failed -= attached[i].Attempts - attached[i].OK
				}
				if failed > 0 || r.result.OK == attached[i].OK {
					t.Errorf("%s: %d errors, %d answers after the programs were attached %v",
						r.title, failed, r.result.OK-attached[i].OK, r.result.Examples)
				}
			}
		})
	}
}
