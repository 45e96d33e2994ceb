// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net/netip"
	"os"
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
	loads.wantNoOpenErrors(t)
}
