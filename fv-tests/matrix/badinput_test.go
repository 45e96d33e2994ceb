// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// smoke are cells that together use most of the datapath: after a bad input the rest must work.
func smoke(t *testing.T, l *lab.Lab, when string) {
	t.Helper()
	smokeAs(t, l, usual, func(Cell) bool { return true }, when)
}

// smokeAs does the same at a site that is meanwhile like another one, with the cells that it serves.
func smokeAs(t *testing.T, l *lab.Lab, site Site, serves func(Cell) bool, when string) {
	t.Helper()
	for _, c := range Sample(site) {
		if c.To != ClusterIP && !(c.From == FromOutside && c.To == NodePort) || !serves(c) {
			continue
		}
		if o := c.Deliver(t.Context(), l); len(o.Problems) > 0 {
			t.Errorf("%s: %s: %v", when, c, o.Problems)
		}
	}
	for _, n := range l.Nodes {
		ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
		if err := n.WaitReady(ctx); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		cancel()
	}
}

// waitLog wants a node's agent to say something a person can act on.
func waitLog(t *testing.T, n *lab.Node, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	err := lab.WaitFor(ctx, fmt.Sprintf("a log line of %s with %q", n.Name, words), func() (bool, string) {
		log := n.LogTail(2000)
		for _, line := range strings.Split(log, "\n") {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				return true, ""
			}
		}
		return false, n.LogTail(3)
	})
	if err != nil {
		t.Error(err)
	}
}

func waitBackends(t *testing.T, l *lab.Lab, vip netip.AddrPort, backends int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	for _, n := range l.Nodes {
		if err := n.WaitFrontend(ctx, vip, backends); err != nil {
			t.Error(err)
		}
	}
}

func TestBadManifestsAreReportedAndTheRestWorks(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	write := func(file, content string) {
		t.Helper()
		if err := l.WriteManifest(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("broken YAML", func(t *testing.T) {
		write("broken.yaml", "kind: Service\n  metadata: [unclosed")
		waitLog(t, l.Nodes[0], "broken.yaml")
		smoke(t, l, "with broken YAML")
	})
	t.Run("broken YAML that is put right", func(t *testing.T) {
		vip := netip.MustParseAddrPort("10.96.8.1:80")
		write("broken.yaml", serviceManifest("mended", vip, "name: far4", ""))
		waitBackends(t, l, vip, 1)
	})
	t.Run("a field nobody knows", func(t *testing.T) {
		service := serviceManifest("unknown", netip.MustParseAddrPort("10.96.8.2:80"), "name: far4", "")
		write("unknown.yaml", strings.Replace(service, "spec:", "spec:\n  noSuchField: 7", 1))
		waitLog(t, l.Nodes[0], "default/unknown", "noSuchField")
		smoke(t, l, "with an unknown field")
	})
	t.Run("a Service with an address that is none", func(t *testing.T) {
		bad := strings.Replace(serviceManifest("bad-address", netip.MustParseAddrPort("10.96.8.3:80"), "name: far4", ""), "10.96.8.3", "10.96.8.300", 2)
		write("address.yaml", bad)
		waitLog(t, l.Nodes[0], "bad-address")
		smoke(t, l, "with a bad address")
	})
	t.Run("two Services with the same address: the older has it, on every node", func(t *testing.T) {
		vip := netip.MustParseAddrPort("10.96.8.4:80")
		write("dup1.yaml", serviceManifest("a-younger", vip, "name: far4", "2026-01-02T00:00:00Z"))
		waitBackends(t, l, vip, 1)
		write("dup2.yaml", serviceManifest("b-older", vip, "name: near4", "2026-01-01T00:00:00Z"))
		for i, client := range []string{"client4", "far4"} {
			waitLog(t, l.Nodes[i], "a-younger") // in the pass that writes the maps
			eventually(t, programTimeout, "answers to "+client+" from near4 alone", func() (bool, string) {
				r, err := l.Pod(client).Probe().TCP(t.Context(), probe.TCPArgs{Address: vip.String(), Count: 10})
				return err == nil && r.Backends["near4"] == 10, fmt.Sprint(r, r.Examples, err)
			})
		}
	})
	smoke(t, l, "after all bad manifests")
}

func serviceManifest(name string, vip netip.AddrPort, selector, created string) string {
	if created == "" {
		created = "2026-01-01T00:00:00Z"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, creationTimestamp: %q}
spec:
  clusterIP: %q
  clusterIPs: [%q]
  selector: {%s}
  ports: [{port: %d, targetPort: %d}]
`, name, created, vip.Addr(), vip.Addr(), selector, vip.Port(), probe.Port)
}

func TestServiceWithFiveThousandEndpoints(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	vip := netip.MustParseAddrPort("10.96.7.1:80")
	var b strings.Builder
	b.WriteString(serviceManifest("large", vip, "", ""))
	addr := netip.MustParseAddr("10.70.0.1")
	for slice := range 50 {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: large-%d, namespace: default, labels: {kubernetes.io/service-name: large}}
addressType: IPv4
ports: [{name: "", protocol: TCP, port: %d}]
endpoints:
`, slice, probe.Port)
		for range 100 {
			fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}, nodeName: node2}\n", addr)
			addr = addr.Next()
		}
	}
	if err := l.WriteManifest("large.yaml", []byte(b.String())); err != nil {
		t.Fatal(err)
	}
	waitBackends(t, l, vip, 5000)
	smoke(t, l, "with 5,000 endpoints")
	if err := l.WriteManifest("large.yaml", []byte(serviceManifest("large", vip, "", ""))); err != nil {
		t.Fatal(err)
	}
	waitBackends(t, l, vip, 0)
	r, err := l.Pod("client4").Probe().TCP(t.Context(), probe.TCPArgs{Address: vip.String()})
	if err != nil || r.Errors["refused"] != 1 {
		t.Errorf("without endpoints: want a refusal, have %s %v %v", r, r.Examples, err)
	}
}

// Pods that are gone before the agent has attached anything are everyday life on a busy node.
func TestInterfacesThatDisappearDuringAttach(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	node := l.Nodes[0]
	for i := range 20 {
		if err := node.FlashPod(fmt.Sprintf("flash%d", i), i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	p, err := l.AddPod(t.Context(), node, lab.PodSpec{Name: "after", IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Pod("client4").Probe().TCP(t.Context(), probe.TCPArgs{
		Address: netip.AddrPortFrom(p.IPv4, probe.Port).String(), Bytes: megabyte,
	})
	if err != nil || r.OK != 1 {
		t.Errorf("pod made after the others vanished: %s %v %v", r, r.Examples, err)
	}
	smoke(t, l, "after 20 interfaces that vanished")
}

// unused are the features that nothing asks for yet.
var unused = []string{
	"fib-table-id", "fib-source", "fib-mark", "check-mtu", "coarse-clock", "ring-buffer", "loop", "for-each-map-elem", "timer",
	"netns-cookie-tc", "xdp-load-bytes", "open-coded-iterators", "socket-destroy", "socket-iterators",
}

// Each feature that something asks for is hidden in turn, as on a kernel that lacks it, then all others, and last
// all at once: traffic must arrive, by whatever way is left.
func TestTrafficArrivesWithEachFeatureMissing(t *testing.T) {
	t.Parallel()
	for _, f := range unused {
		if !slices.Contains(features.Names(), f) {
			t.Errorf("there is no feature %q", f)
		}
	}
	rounds := [][]string{unused, features.Names()}
	for _, f := range features.Names() {
		if !slices.Contains(unused, f) {
			rounds = append(rounds, []string{f})
		}
	}
	l := up(t, Options(usual, "Auto"))
	for _, hidden := range rounds {
		t.Run(strings.Join(hidden, ","), func(t *testing.T) {
			restartAgents(t, l, func() { l.Options.AgentConfig["disabledFeatures"] = hidden })
			site, serves := servedWithout(hidden)
			smokeAs(t, l, site, serves, fmt.Sprintf("without %v", hidden))
		})
	}
}

// servedWithout says what a node whose agent lacks some features is like, and what it cannot do.
func servedWithout(hidden []string) (Site, func(Cell) bool) {
	lacks := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(hidden, n) })
	}
	site := usual
	switch {
	case lacks("ctlb-connect"):
		site.Mode = Disabled
	case lacks("ctlb-sendmsg", "ctlb-recvmsg"):
		site.Mode = TCPOnly
	}
	return site, func(c Cell) bool {
		switch {
		case lacks("netns-cookie") && c.From == FromMesh:
			return false // nobody can be told apart to be left alone
		case lacks("set-retval") && c.refused() && c.Socket.udp() && !c.Socket.connected():
			return false // nobody is told of a refusal but connected sockets
		}
		return true
	}
}
