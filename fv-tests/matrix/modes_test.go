// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// natInterface is the end of the fallback's pair that the host's packets for services leave by.
const natInterface = "bpfin.cali"

// A node changes its mode while everything talks: what was opened in one mode goes on in the next, and
// what is new is served without a gap, on nodes with a firewall, too. At last nothing of the fallback is left.
func TestModesChangeUnderTraffic(t *testing.T) {
	t.Parallel()
	opts := Options(usual, "Auto")
	opts.AgentConfig["conntrackSweepInterval"] = "500ms"
	opts.AgentConfig["conntrackTimeouts"] = map[string]any{"tcpFinsSeen": "2s", "tcpResetSeen": "2s", "udp": "10s"}
	l := up(t, opts)
	raiseFirewalls(t, l)
	loads := startLoads(t, l)
	for _, mode := range []Mode{Disabled, TCPOnly, HostOnly, Enabled} {
		restartAgents(t, l, func() { l.Options.CTLB = string(mode) })
		wait(t, time.Second) // traffic in the new mode
		sum, err := loads.Sum(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: sent %d, errors %d %v so far", mode, sum.Attempts, sum.Attempts-sum.OK, sum.Errors)
		for _, n := range l.Nodes {
			have := hasInterface(t, n, natInterface)
			if want := mode == Disabled || mode == TCPOnly; want && !have {
				t.Errorf("%s, mode %s: there is no %s", n.Name, mode, natInterface)
			}
		}
	}
	stopLoads(t, l, loads)
	for _, n := range l.Nodes {
		eventually(t, time.Minute, "the fallback's pair to go from "+n.Name, func() (bool, string) {
			links, err := n.Run(t.Context(), "ip", "-o", "link")
			return err == nil && !strings.Contains(links, natInterface), links
		})
	}
	site := usual
	failed := 0
	for _, c := range Sample(site) {
		if o := c.Run(t.Context(), l); len(o.Problems) > 0 {
			failed++
			t.Errorf("%s: %v", c, o.Problems)
		}
	}
	t.Logf("cells after the changes: %d, failed %d", len(Sample(site)), failed)
}

// restartAgents stops all agents, lets change do something, starts them and waits until they are ready.
func restartAgents(t *testing.T, l *lab.Lab, change func()) {
	t.Helper()
	ctx, cancel := deadline(t, programTimeout)
	defer cancel()
	change()
	for _, n := range l.Nodes {
		if err := n.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if err := n.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			t.Fatalf("%v\n%s", err, n.LogTail(20))
		}
	}
}

func hasInterface(t *testing.T, n *lab.Node, name string) bool {
	t.Helper()
	links, err := n.Run(t.Context(), "ip", "-o", "link")
	if err != nil {
		t.Fatalf("%v: %s", err, links)
	}
	return strings.Contains(links, " "+name)
}

// eventually waits for a condition, fails the test if it does not come, and says how long it took.
func eventually(t *testing.T, limit time.Duration, what string, condition func() (bool, string)) {
	t.Helper()
	ctx, cancel := deadline(t, limit)
	defer cancel()
	start := time.Now()
	if err := lab.WaitFor(ctx, what, condition); err != nil {
		t.Error(err)
		return
	}
	t.Logf("waited for %s: %s", what, time.Since(start).Round(time.Millisecond))
}
