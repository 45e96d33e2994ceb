// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
	"github.com/felix-lite/felix-lite/felix-lite/inspect"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// dualManifest is a service by both families with a pod of this node. The last byte of its addresses and its name are
// what tells it from another.
func dualManifest(i int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: dual%d, namespace: default}
spec:
  clusterIP: 10.96.0.%d
  clusterIPs: [10.96.0.%d, "fd96::%d"]
  ipFamilies: [IPv4, IPv6]
  type: NodePort
  selector: {app: dual}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: %d, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: d%d, namespace: default, labels: {app: dual}}
spec: {nodeName: n1}
status: {phase: Running, podIP: 10.65.9.%d, podIPs: [{ip: 10.65.9.%d}, {ip: "fd00:65::9:%d"}], conditions: [{type: Ready, status: "True"}]}
`, i, i, i, i, 30100+i, i, i, i, i)
}

// shell is what a command prints; a failure is part of it, because it may be what is waited for.
func (n *testNode) shell(command string) string {
	n.t.Helper()
	return testenv.Run(n.t, "sh", "-c", command+" 2>&1 || true")
}

// untilShell waits until a command prints all of the parts, and none of those with a !.
func (n *testNode) untilShell(what, command string, parts ...string) {
	n.t.Helper()
	n.until(what, func() (bool, string) {
		got := n.shell(command)
		for _, p := range parts {
			if without, no := strings.CutPrefix(p, "!"); no == strings.Contains(got, without) {
				return false, "looking for " + p + " in\n" + got
			}
		}
		return true, ""
	})
}

func (n *testNode) globals() (g layout.Globals) {
	n.t.Helper()
	n.look(func(v *inspect.View) {
		var err error
		if g, err = v.Maps.Globals.Read(); err != nil {
			n.t.Fatal(err)
		}
	})
	return g
}

// untilFallback waits until the pair and all that belongs to it is in use.
func (n *testNode) untilFallback() {
	n.t.Helper()
	n.until("the datapath to know of the pair", func() (bool, string) {
		g := n.globals()
		out, err := netlink.LinkByName(hostnat.OutName)
		if err != nil {
			return false, err.Error()
		}
		return int(g.NatoutIfindex) == out.Attrs().Index && g.NatinIfindex == uint32(out.Attrs().ParentIndex), "other indices"
	})
	n.untilShell("IPv4 routes", "ip route show proto 241", "10.96.0.1 via 169.254.1.1 dev bpfin.cali src 192.0.2.1 onlink mtu 1450")
	n.untilShell("IPv6 routes", "ip -6 route show proto 241", "fd96::1 via fe80::1 dev bpfin.cali src 2001:db8::1 metric 1024 onlink mtu 1450")
	n.until("neighbours with bpfout.cali's Ethernet address", func() (bool, string) {
		out, err := netlink.LinkByName(hostnat.OutName)
		if err != nil {
			return false, err.Error()
		}
		got := n.shell("ip neigh show dev bpfin.cali")
		mac := out.Attrs().HardwareAddr.String()
		return strings.Count(got, mac+" PERMANENT") == 2, got + " want " + mac
	})
	n.untilContains("programs", n.interfacesTable, "bpfout.cali", "lo ")
	if got := n.interfacesTable(); strings.Contains(got, "bpfin.cali") {
		n.t.Errorf("bpfin.cali carries programs:\n%s", got)
	}
	if got := n.shell("tc qdisc show dev bpfin.cali; tc filter show dev bpfin.cali ingress"); strings.Contains(got, "clsact") || strings.Contains(got, "bpf") {
		n.t.Errorf("bpfin.cali has hooks:\n%s", got)
	}
}

// hostFlow puts an open connection of this host to a service into an agent's conntrack, and returns what ends it in a later
// agent's.
func hostFlow(t *testing.T, first *Agent) (end func(later *Agent)) {
	t.Helper()
	var key layout.CTKeyV4
	client, err := layout.AddrFrom[layout.AddrV4](netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	key.AddrA, key.PortABE, key.Proto = client, layout.PortBE(40000), 6
	key.AddrB, key.PortBBE = client, layout.PortBE(80)
	v := layout.CTValueV4{Timeout: 1<<32 - 1, Type: uint8(layout.CTNATFwd), Flags: uint32(layout.CTFHostOrigin), Created: 1<<63 - 1}
	if err := first.maps.ConntrackV4.Confirmed.Raw().Put(&key, &v); err != nil {
		t.Fatal(err)
	}
	return func(later *Agent) {
		if err := later.maps.ConntrackV4.Confirmed.Raw().Delete(&key); err != nil {
			t.Fatal(err)
		}
	}
}

func TestANewPairWaitsForItsNetfilterChains(t *testing.T) {
	now := time.Now()
	fresh := func(phase fallbackPhase) *fallback {
		f := &fallback{phase: phase, now: func() time.Time { return now }, routes: hostnat.NewRoutes()}
		f.enter(fallbackOn)
		return f
	}
	f := fresh(fallbackOff)
	if !f.held() {
		t.Error("a new pair is used before its chains were looked at")
	}
	if at, ok := f.due(0); !ok || at.After(now) {
		t.Errorf("the pair itself waits: %v, %t", at, ok)
	}
	f.dirty = false
	if at, ok := f.due(0); !ok || !at.Equal(now.Add(chainsLimit)) {
		t.Errorf("due at %v, %t", at, ok)
	}
	f.chained()
	if f.held() {
		t.Error("held although its chains were looked at")
	}
	f.told = 7
	if at, ok := f.due(7); !ok || at.After(now) {
		t.Errorf("the datapath knows of the pair, and routes wait for somebody else's event: %v, %t", at, ok)
	}
	f = fresh(fallbackOff)
	now = now.Add(chainsLimit)
	if f.held() {
		t.Error("held for ever by somebody who has the xtables lock")
	}
	if fresh(fallbackDraining).held() {
		t.Error("a pair that has connections is held")
	}
}

func TestHostTrafficIsLedThroughAPairThatComesBack(t *testing.T) {
	n := newTestNode(t)
	n.manifest("dual1.yaml", dualManifest(1))
	r := n.start("netfilterRefreshInterval: 1s", "connectTimeLoadBalancing: Disabled")
	r.waitReady()
	n.untilFallback()
	if got := n.shell("ip route show proto 241"); strings.Contains(got, "192.0.2.1 via") {
		t.Errorf("the node's own address is routed into the pair:\n%s", got)
	}
	for _, c := range []struct{ what, command string }{
		{"the pair is deleted", "ip link del bpfin.cali"},
		{"bpfout.cali is deleted", "ip link del bpfout.cali"},
		{"another device has a name of ours", "ip link del bpfin.cali; ip tuntap add dev bpfin.cali mode tap || true"},
		{"the MTU is changed", "ip link set bpfout.cali mtu 1300"},
		{"bpfin.cali is down", "ip link set bpfin.cali down"},
		{"bpfout.cali's Ethernet address is changed", "ip link set bpfout.cali address 02:00:00:00:00:99"},
		{"the address is deleted", "ip addr del 169.254.1.3/32 dev bpfout.cali"},
		{"a neighbour is deleted", "ip neigh del 169.254.1.1 dev bpfin.cali"},
		{"a neighbour is changed", "ip -6 neigh replace fe80::1 lladdr 02:00:00:00:00:11 dev bpfin.cali nud permanent"},
		{"a route is deleted", "ip route del 10.96.0.1"},
		{"all routes are deleted", "ip route flush proto 241; ip -6 route flush proto 241"},
	} {
		n.step(t, c.what, func(t *testing.T) {
			before := n.globals()
			testenv.Run(t, "sh", "-c", c.command)
			n.untilShell("the pair", "ip -o addr show dev bpfout.cali; ip -o link show bpfin.cali; ip -o link show bpfout.cali",
				"169.254.1.3/32", "bpfin.cali@bpfout.cali", "bpfout.cali@bpfin.cali", "!mtu 1300", "!DOWN")
			n.untilFallback()
			r.waitReady()
			if after := n.globals(); after.NatoutIfindex != before.NatoutIfindex && after.RouteEpoch == before.RouteEpoch {
				t.Errorf("flows that went by the old pair, or past it, are not resolved anew: route epoch %d", after.RouteEpoch)
			}
		})
	}
	n.step(t, "netfilter chains are made, and repaired at a resync", func(t *testing.T) {
		n.untilShell("chains", "iptables-nft-save; ip6tables-nft-save", "-A FORWARD -j FELIX-LITE-FORWARD", "-A FELIX-LITE-FORWARD -o cali+ -j ACCEPT",
			"-A FELIX-LITE-POSTROUTING -j MASQUERADE", "-A FELIX-LITE-PREROUTING -i bpfout.cali -j CT --notrack")
		testenv.Run(t, "iptables-nft", "-D", "FORWARD", "-j", "FELIX-LITE-FORWARD")
		n.untilShell("the repair", "iptables-nft-save", "-A FORWARD -j FELIX-LITE-FORWARD")
	})
	n.step(t, "services come and go", func(t *testing.T) {
		n.manifest("dual2.yaml", dualManifest(2))
		n.untilShell("a new service", "ip route; ip -6 route", "10.96.0.2 via", "fd96::2 via")
		if err := os.Remove(filepath.Join(n.manifests, "dual2.yaml")); err != nil {
			t.Fatal(err)
		}
		n.untilShell("its end", "ip route; ip -6 route", "!10.96.0.2", "!fd96::2", "10.96.0.1 via")
	})
	n.step(t, "the node's address moves", func(t *testing.T) {
		data, err := os.ReadFile(filepath.Join(n.manifests, "node.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		node := string(data)
		n.manifest("node.yaml", strings.ReplaceAll(node, "address: 192.0.2.1}", "address: 192.0.2.7}"))
		testenv.Run(t, "ip", "addr", "add", "192.0.2.7/24", "dev", "eth0")
		n.untilShell("the source to follow", "ip route show proto 241", "10.96.0.1 via 169.254.1.1 dev bpfin.cali src 192.0.2.7")
		n.manifest("node.yaml", node)
		n.untilFallback()
	})
	n.step(t, "a restart changes nothing", func(t *testing.T) {
		show := func() string {
			return n.shell("ip -d link show bpfin.cali; ip route; ip -6 route; ip neigh show nud permanent")
		}
		before := show()
		r.stop()
		if got := show(); got != before {
			t.Errorf("the stop changed\n%s\nto\n%s", before, got)
		}
		r = n.start("connectTimeLoadBalancing: Disabled")
		r.waitReady()
		n.untilFallback()
		if got := show(); got != before {
			t.Errorf("the restart changed\n%s\nto\n%s", before, got)
		}
	})
	n.step(t, "with host traffic balanced at connect time all goes when the last connection has ended", func(t *testing.T) {
		end := hostFlow(t, r.agent)
		r.stop()
		r = n.start("connectTimeLoadBalancing: Enabled", "conntrackSweepInterval: 100ms")
		r.waitReady()
		n.until("a sweep to find the connection", func() (bool, string) {
			live := r.agent.metrics.snapshot.Load().conntrack
			return live[ctLabels{"v4", "tcp"}] == 1, fmt.Sprint(live)
		})
		n.untilFallback() // the connection may still need it
		end(r.agent)
		n.untilShell("the end of the pair", "ip link; ip route; ip -6 route; ip neigh", "!bpfin", "!bpfout", "!10.96.0.1", "!fd96::1")
		n.until("the datapath to know", func() (bool, string) {
			g := n.globals()
			return g.NatinIfindex == 0 && g.NatoutIfindex == 0, "indices of the pair are left"
		})
		n.until("lo to be left alone", func() (bool, string) {
			got := n.interfacesTable()
			return !strings.Contains(got, "lo "), got
		})
		n.untilShell("the chains that only the pair needs to go", "iptables-nft-save; ip6tables-nft-save", "-A FORWARD -j FELIX-LITE-FORWARD",
			"!FELIX-LITE-PREROUTING", "!FELIX-LITE-INPUT", "!FELIX-LITE-OUTPUT")
		r.waitReady()
	})
	n.step(t, "and it comes back when it is needed again", func(t *testing.T) {
		r.stop()
		r = n.start("connectTimeLoadBalancing: Disabled")
		r.waitReady()
		n.untilFallback()
		n.untilShell("its chains to be back", "iptables-nft-save; ip6tables-nft-save", "-A FELIX-LITE-PREROUTING -i bpfout.cali -j CT --notrack",
			"-A FELIX-LITE-OUTPUT -o lo", "-A FELIX-LITE-INPUT -i lo")
	})
	n.step(t, "cleanup takes it away", func(t *testing.T) {
		r.stop()
		if report, err := Cleanup(context.Background(), CleanupOptions{BPFFSRoot: n.bpffs, RunDirectory: n.run}); err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(report, "\n"))
		}
		n.untilShell("nothing of ours", "ip link; ip route; ip -6 route; tc filter show dev lo ingress; iptables-nft-save", "!bpfin", "!bpfout", "!proto 241", "!felix", "!FELIX")
	})
}
