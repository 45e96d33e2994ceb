// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/conntrack"
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
			checkHooks(t, n, mode)
		}
		checkTranslation(t, l, mode)
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

// checkHooks wants the hooks to stand that a mode begins something new by, and no other such: those that serve what was begun
// may stay for a while.
func checkHooks(t *testing.T, n *lab.Node, mode Mode) {
	t.Helper()
	var want []string
	if mode != Disabled {
		want = append(want, "connect4", "connect46", "connect6", "post_bind4", "post_bind46", "post_bind6")
	}
	if mode == Enabled || mode == HostOnly {
		want = append(want, "sendmsg4", "sendmsg6")
	}
	eventually(t, 10*time.Second, fmt.Sprintf("%s to have the hooks of %s", n.Name, mode), func() (bool, string) {
		links, err := attach.CgroupLinks(n.BPFRoot())
		if err != nil {
			return false, err.Error()
		}
		var have []string
		for _, l := range links {
			if strings.HasPrefix(l.Hook, "connect") || strings.HasPrefix(l.Hook, "sendmsg") || strings.HasPrefix(l.Hook, "post_bind") {
				have = append(have, l.Hook)
			}
		}
		slices.Sort(have)
		return slices.Equal(have, want), fmt.Sprint(have)
	})
}

// checkTranslation runs a few of a mode's cells and wants their services to be found where the mode says: at connect time,
// or by packet, of which conntrack has an entry with the service's address. Counters would tell the loads' packets too.
func checkTranslation(t *testing.T, l *lab.Lab, mode Mode) {
	t.Helper()
	for _, c := range Cells(Site{Overlay: usual.Overlay, Mode: mode, Firewall: true}) {
		tcp, udp := c.Socket == TCP, c.Socket == UDPConnected
		if c.To != ClusterIP || c.Backend != OtherNode || c.From != FromPod && c.From != FromNode || !tcp && !udp {
			continue
		}
		if c.IPv6 != (udp == (c.From == FromPod)) {
			continue // one family each is enough
		}
		before := flowsTo(t, l.Nodes[0], c.target(l))
		if o := c.Deliver(t.Context(), l); len(o.Problems) > 0 {
			t.Errorf("%s: %v", c, o.Problems)
		}
		byPacket := false
		for flow := range flowsTo(t, l.Nodes[0], c.target(l)) {
			byPacket = byPacket || !before[flow]
		}
		if byPacket == c.atConnect() {
			t.Errorf("%s: found by packet: %t, want %t", c, byPacket, !c.atConnect())
		}
	}
}

// flowsTo are the node's conntrack entries of a service's address, by their ends.
func flowsTo(t *testing.T, n *lab.Node, service netip.AddrPort) map[string]bool {
	t.Helper()
	flows := map[string]bool{}
	eachFlow(t, n, func(e conntrack.Entry) {
		if e.Source == service || e.Destination == service {
			flows[fmt.Sprint(e.Proto, e.Source, e.Destination)] = true
		}
	})
	return flows
}

// eachFlow reads the node's conntrack.
func eachFlow(t *testing.T, n *lab.Node, do func(conntrack.Entry)) {
	t.Helper()
	set, err := n.Maps()
	if err != nil {
		t.Fatal(err)
	}
	clock, err := features.OpenClock()
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close()
	err = conntrack.Walk(conntrack.Tables{
		V4: set.ConntrackV4.Confirmed.Raw(), V4Half: set.ConntrackV4.HalfOpen.Raw(),
		V6: set.ConntrackV6.Confirmed.Raw(), V6Half: set.ConntrackV6.HalfOpen.Raw(),
	}, conntrack.Clock{Jiffies: clock.Jiffies, HZ: clock.HZ}, conntrack.Filter{}, func(e conntrack.Entry) bool {
		do(e)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What a pod's socket asked for at connect time is known to TC, and so to policy and to whoever looks: the flow's entry says it.
func TestTCKnowsWhatASocketAskedFor(t *testing.T) {
	t.Parallel()
	l := up(t, Options(Site{Overlay: "VXLAN", Mode: Enabled}, "Auto"))
	for _, ipv6 := range []bool{false, true} {
		for _, backend := range []Backend{SameNode, OtherNode} {
			s := serviceFor(backend, ipv6)
			vip := s.address(l, ClusterIP)
			client := l.Pod(podName("client", ipv6))
			probeOnce(t, &client.Place, vip.String(), backendPod(backend, ipv6), "socket")
			asked := map[string]bool{}
			eachFlow(t, l.Nodes[0], func(e conntrack.Entry) {
				if e.Asked == vip && e.ServiceID != 0 && e.Source.Addr() == client.Address(ipv6) &&
					e.Destination == podPort(l, strings.TrimRight(backendPod(backend, ipv6), "46"), ipv6) {
					asked[e.Proto] = true
				}
			})
			if !asked["tcp"] || !asked["udp"] {
				t.Errorf("%s: entries that say so: %v", vip, asked)
				eachFlow(t, l.Nodes[0], func(e conntrack.Entry) { t.Log(e.String()) })
			}
		}
	}
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
