// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// floodSYNs is the size of the flood; LAB_QUICK=1 makes it a tenth.
const floodSYNs = 2_000_000

// A flood fills the half-open table over and over. What is established must not be touched.
func TestSYNFloodCostsNoEstablishedFlow(t *testing.T) {
	l := up(t, Options(usual, "Auto"))
	out := l.Clients[0]
	// Answers to the random sources travel back the whole way, and end at the client, which drops them.
	sources := netip.MustParsePrefix("10.128.0.0/9")
	if err := l.RouteViaClient(sources, out); err != nil {
		t.Fatal(err)
	}
	loads := startLoads(t, l)
	dropsBefore := queueDrops(t)
	before, err := l.Nodes[0].Counters()
	if err != nil {
		t.Fatal(err)
	}
	count := floodSYNs
	if os.Getenv("LAB_QUICK") != "" {
		count /= 10
	}
	mac, err := l.GatewayMAC(out)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := out.Probe().Flood(t.Context(), probe.FloodArgs{
		Interface: "eth0", GatewayMAC: mac, Sources: sources.String(),
		Target: serviceFor(SameNode, false).address(l, NodePort).String(), Count: count,
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := l.Nodes[0].Counters()
	if err != nil {
		t.Fatal(err)
	}
	seen := after.Since(before)
	t.Logf("%d SYNs in %s; node1: new flows %d, drops %v", sent.Sent, sent.Duration,
		seen.Sum(layout.CountNewFlow), seen.Drops())
	if flows := seen.Sum(layout.CountNewFlow); flows < uint64(count)/2 {
		t.Errorf("the flood made only %d flows: it did not reach the table", flows)
	}
	if _, err := loads.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures of all loads during the flood:\n%s", loads)
	drops := queueDrops(t) - dropsBefore
	t.Logf("the kernel's queues had no room for %d packets, of this test or of another beside it", drops)
	loads.wantNoOpenErrors(t, drops)
}

// queueDrops are the packets that the kernel has dropped because a CPU's input queue was full
// (net.core.netdev_max_backlog): the second column of softnet_stat, a line for each CPU.
func queueDrops(t *testing.T) (drops int) {
	t.Helper()
	stat, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(stat)) {
		fields := strings.Fields(line)
		n, err := strconv.ParseUint(fields[1], 16, 32)
		if err != nil {
			t.Fatalf("softnet_stat: %q: %v", line, err)
		}
		drops += int(n)
	}
	return drops
}
