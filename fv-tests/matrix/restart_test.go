// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// restarts is how often the restart test kills an agent.
const restarts = 10

// Agents are killed in every phase of their lives, also before they have read anything, and services,
// backends and pods change while they are down. No connection may notice.
func TestTrafficDoesNotNoticeAgentsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	loads := startLoads(t, l)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := &restartRun{t: t, l: l, backends: 2}
	for round := range restarts {
		node := l.Nodes[round%2]
		// Every other kill hits an agent that is at most half a second old, ready or not.
		age := time.Duration(random.Int64N(int64(500 * time.Millisecond)))
		if round%2 == 0 {
			r.waitSettled()
			age = time.Duration(random.Int64N(int64(time.Second)))
		}
		wait(t, age)
		if err := node.KillAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.change(round)
		if round == 4 {
			// From here on agents bring other programs, as a new build would: these have another constant.
			l.Options.AgentConfig["conntrackTimeouts"] = map[string]any{"tcpSynSent": "25s"}
		}
		if err := node.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if round%2 == 1 {
			// The second agent of the pair is killed once more, right after its start.
			wait(t, time.Duration(random.Int64N(int64(500*time.Millisecond))))
			if err := node.KillAgent(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := node.StartAgent(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.waitSettled()
	wait(t, time.Second) // traffic on what the last agents have programmed
	stopLoads(t, l, loads)
	r.compare()
}

// restartRun remembers what the changes made while agents were down must lead to.
type restartRun struct {
	t        *testing.T
	l        *lab.Lab
	extra    *lab.Pod // a backend that comes and goes
	joining  bool     // extra was made while its agent was down and is to become Ready
	idle     *lab.Pod // a pod that is no backend
	backends int      // of the spread service of IPv4
	kept     []netip.AddrPort
}

// waitSettled returns when both agents are ready and have programmed all that was changed.
func (r *restartRun) waitSettled() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), programTimeout)
	defer cancel()
	for _, n := range r.l.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			r.t.Fatal(err)
		}
	}
	if r.joining {
		if err := r.l.MarkReady(ctx, r.extra); err != nil {
			r.t.Fatal(err)
		}
		r.joining = false
		r.backends++
	}
	for _, n := range r.l.Nodes {
		if err := n.WaitFrontend(ctx, serviceFor(spread, false).address(r.l, ClusterIP), r.backends); err != nil {
			r.t.Fatal(err)
		}
	}
}

// change alters the cluster while an agent is down, in turn: a new service and the end of a pod, a new
// pod that becomes a backend once it is programmed, a new pod that is none, and the backend leaving its
// service. It stays alive: what outlives a backend's death is not promised here.
func (r *restartRun) change(round int) {
	r.t.Helper()
	ctx, node := r.t.Context(), r.l.Nodes[round%2]
	var err error
	switch round % 4 {
	case 0:
		vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 9, byte(round + 1)}), servicePort)
		apply(r.t, r.l, serviceManifest(fmt.Sprintf("kept-%d", round), vip, "name: far4", ""))
		r.kept = append(r.kept, vip)
		if r.idle != nil {
			err = r.l.RemovePod(ctx, r.idle)
			r.idle = nil
		}
	case 1:
		r.extra, err = r.l.AddPod(ctx, node, lab.PodSpec{
			Name: fmt.Sprintf("extra%d", round), IPv4: true, Labels: map[string]string{"group": "spread4"},
		})
		r.joining = true
	case 2:
		r.idle, err = r.l.AddPod(ctx, node, lab.PodSpec{Name: fmt.Sprintf("idle%d", round), IPv4: true})
	case 3:
		r.extra.NotReady = true
		err = r.l.Publish()
		r.backends--
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// compare looks at what is programmed after all: every service answers from the backends it has now.
func (r *restartRun) compare() {
	r.t.Helper()
	client := r.l.Pod("client4").Probe()
	for _, vip := range r.kept {
		got, err := client.TCP(r.t.Context(), probe.TCPArgs{Address: vip.String(), Count: 5})
		if err != nil || got.OK != 5 || got.Backends["far4"] != 5 {
			r.t.Errorf("service %s, made while an agent was down: %s %v %v", vip, got, got.Examples, err)
		}
	}
	got, err := client.TCP(r.t.Context(), probe.TCPArgs{
		Address: serviceFor(spread, false).address(r.l, ClusterIP).String(), Count: 100, Concurrency: 4,
	})
	if err != nil || got.OK != 100 || len(got.Backends) != r.backends {
		r.t.Errorf("want answers from %d backends, have %s %v %v", r.backends, got, got.Examples, err)
	}
	failed := 0
	for _, c := range Sample(usual) {
		if o := c.Run(r.t.Context(), r.l); len(o.Problems) > 0 {
			failed++
			r.t.Errorf("%s: %v", c, o.Problems)
		}
	}
	r.t.Logf("cells after the restarts: %d, failed %d", len(Sample(usual)), failed)
}

// The dataplane outlives the agents: everything goes on, and the hosts can be reached.
func TestTrafficGoesOnAndHostsStayReachableWithoutAgents(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	loads := startLoads(t, l)
	for _, n := range l.Nodes {
		if err := n.KillAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range Sample(usual) {
		// The loads are counted too, so the counters cannot say what carried this cell.
		if o := c.Deliver(t.Context(), l); len(o.Problems) > 0 {
			t.Errorf("%s, agents dead: %v", c, o.Problems)
		}
	}
	for _, path := range []struct{ from, to string }{{"out1", "node1"}, {"out1", "node2"}, {"node1", "node2"}, {"node1", "out1"}} {
		for _, ipv6 := range []bool{false, true} {
			from, _ := l.Place(path.from)
			to, _ := l.Place(path.to)
			target := netip.AddrPortFrom(to.Address(ipv6), probe.Port).String()
			r, err := from.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: megabyte})
			if err != nil || r.OK != 1 {
				t.Errorf("%s to %s, agents dead: %s %v %v", path.from, target, r, r.Examples, err)
			}
		}
	}
	stopLoads(t, l, loads)
}

// Larger tables take what is in the old ones with them: no open connection may notice. A connection that
// is made in the very moment of the change may.
func TestOpenConnectionsSurviveLargerTables(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	loads := startLoads(t, l)
	restartAgents(t, l, func() {
		l.Options.AgentConfig["mapSizeConntrack"] = 131072
		l.Options.AgentConfig["mapSizeNATFrontend"] = 16384
	})
	wait(t, time.Second) // traffic on the new tables
	if _, err := loads.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures of all loads:\n%s", loads)
	loads.wantNoOpenErrors(t, 0)
}

// wantNoOpenErrors fails if an exchange on something that was open failed. As many datagrams may be lost as the
// kernel's own queues have dropped: nobody sends those again.
func (s *Loads) wantNoOpenErrors(t *testing.T, queueDrops int) {
	t.Helper()
	for _, r := range s.running {
		failed := r.result.Attempts - r.result.OK
		switch {
		case r.kind != probe.LoadTCPOpen && r.kind != probe.LoadUDPOpen:
		case r.result.Attempts == 0 || failed > 0 && (r.kind == probe.LoadTCPOpen || failed > queueDrops):
			t.Errorf("%s: %d of %d exchanges failed", r.title, failed, r.result.Attempts)
		case failed > 0:
			queueDrops -= failed
			t.Logf("%s: %d of %d datagrams were lost; the kernel's queues had no room for at least as many", r.title, failed, r.result.Attempts)
		}
	}
}

func startLoads(t *testing.T, l *lab.Lab) *Loads {
	t.Helper()
	loads, err := StartLoads(t.Context(), l, loadTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return loads
}

// stopLoads ends the loads, prints their figures and wants no error at all.
func stopLoads(t *testing.T, l *lab.Lab, loads *Loads) {
	t.Helper()
	sum, err := loads.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sent %d, errors %d %v, slower than a second %d, longest %s\n%s",
		sum.Attempts, sum.Attempts-sum.OK, sum.Errors, sum.Slow, sum.Latency.Max, loads)
	if sum.OK != sum.Attempts {
		t.Errorf("%d of %d attempts failed", sum.Attempts-sum.OK, sum.Attempts)
		for _, n := range l.Nodes {
			t.Log(n.Dump(t.Context()))
		}
	}
}

// wait lets time pass that is part of what is tested: how long traffic runs, or how old an agent is
// when it is killed. It is never used to wait for a condition.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
