// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// portmap's DNAT is netfilter's: the packets come in by the uplink, are translated by the stack and go to
// the pod by its veth; the answers must go back the same way.
func TestHostPortsOfThePortmapPluginWork(t *testing.T) {
	t.Parallel()
	const port = 8088
	l := up(t, Options(usual, "Auto"))
	for _, ipv6 := range []bool{false, true} {
		pod := l.Pod(podName("near", ipv6))
		if err := l.Nodes[0].HostPort(t.Context(), port, netip.AddrPortFrom(pod.Address(ipv6), probe.Port)); err != nil {
			t.Fatal(err)
		}
		target := netip.AddrPortFrom(l.Nodes[0].Address(ipv6), port).String()
		for _, from := range []*lab.Place{
			&l.Clients[0].Place, &l.Nodes[1].Place, &l.Nodes[0].Place, &l.Pod(podName("client", ipv6)).Place, &l.Pod(podName("far", ipv6)).Place,
		} {
			probeOnce(t, from, target, pod.Name, "host port")
		}
	}
}

// What the agent does not know is somebody else's: kube-proxy's rules serve it, for pods and the host.
func TestKubeProxyServesWhatTheAgentDoesNotKnow(t *testing.T) {
	for _, mode := range []Mode{Enabled, Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(Site{Overlay: "VXLAN", Mode: mode}, "Auto"))
			for _, ipv6 := range []bool{false, true} {
				vip := foreignVIP(ipv6)
				err := l.Nodes[0].KubeProxy(t.Context(), vip, podPort(l, "near", ipv6), podPort(l, "far", ipv6))
				if err != nil {
					t.Fatal(err)
				}
				for _, from := range []*lab.Place{&l.Pod(podName("client", ipv6)).Place, &l.Nodes[0].Place} {
					wantBoth(t, from, vip.String(), podName("near", ipv6), podName("far", ipv6))
				}
			}
		})
	}
}

// foreignVIP is a service that only kube-proxy's rules know.
func foreignVIP(ipv6 bool) netip.AddrPort {
	if ipv6 {
		return netip.MustParseAddrPort("[fd96::7701]:80")
	}
	return netip.MustParseAddrPort("10.96.77.1:80")
}

func podPort(l *lab.Lab, role string, ipv6 bool) netip.AddrPort {
	return netip.AddrPortFrom(l.Pod(podName(role, ipv6)).Address(ipv6), probe.Port)
}

// wantBoth makes connections and datagrams until both backends must have answered, and wants no error.
func wantBoth(t *testing.T, from *lab.Place, target string, backends ...string) {
	t.Helper()
	const count = 40
	tcp, err := from.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: 64 << 10, Count: count})
	udp, udpErr := from.Probe().UDP(t.Context(), probe.UDPArgs{Address: target, Sizes: []int{1, 1200}, Count: count})
	if err != nil || udpErr != nil {
		t.Fatal(err, udpErr)
	}
	for proto, r := range map[string]probe.Result{"TCP": tcp, "UDP": udp} {
		if r.OK != count || r.ReplySources[target] != count {
			t.Errorf("%s from %s to %s: %s %v", proto, from.Name, target, r, r.Examples)
		}
		for _, b := range backends {
			if r.Backends[b] == 0 {
				t.Errorf("%s from %s to %s: no answer from %s: %s", proto, from.Name, target, b, r)
			}
		}
	}
}

// Other people's programs on our hooks run before ours and behind, and see what passes.
func TestForeignProgramsOnOurHooksStillRun(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	node := l.Nodes[0]
	programs := map[string]*lab.ForeignProgram{}
	keep := func(name string, f *lab.ForeignProgram, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		programs[name] = f
	}
	for name, first := range map[string]bool{"TCX in front": true, "TCX behind": false} {
		f, err := node.ForeignTCX("eth0", first)
		keep(name, f, err)
	}
	f, err := node.ForeignFilter("eth0", 7)
	keep("clsact filter on the uplink", f, err)
	f, err = node.ForeignFilter(l.Pod("client4").HostInterface, 7)
	keep("clsact filter behind ours on a pod's interface", f, err)
	f, err = node.ForeignConnect(false)
	keep("connect4", f, err)
	f, err = node.ForeignConnect(true)
	keep("connect6", f, err)
	smoke(t, l, "with foreign programs attached after ours")
	restartAgents(t, l, func() {})
	smoke(t, l, "with foreign programs and restarted agents")
	for name, f := range programs {
		runs, err := f.Runs()
		t.Logf("%s: %d runs", name, runs)
		if err != nil || (runs == 0 && !strings.Contains(name, "behind ours")) {
			t.Errorf("%s: %d runs, %v", name, runs, err)
		}
	}
}

// An address that keepalived or kube-vip moves is a NodePort's where it is, at once, and nobody's own.
func TestNodePortsFollowAnAddressThatMoves(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	for _, ipv6 := range []bool{false, true} {
		vip := netip.MustParseAddr("172.30.0.200")
		if ipv6 {
			vip = netip.MustParseAddr("fd30::200")
		}
		target := netip.AddrPortFrom(vip, uint16(serviceFor(SameNode, ipv6).nodePort())).String()
		for i, n := range l.Nodes {
			if err := n.AddAddress(vip); err != nil {
				t.Fatal(err)
			}
			if err := l.ForgetNeighbour(vip); err != nil {
				t.Fatal(err)
			}
			eventually(t, 5*time.Second, fmt.Sprintf("NodePort of %s on %s", vip, n.Name), func() (bool, string) {
				r, err := l.Clients[0].Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: 1000, Timeout: time.Second})
				return err == nil && r.OK == 1, fmt.Sprint(r, r.Examples, err)
			})
			probeOnce(t, &l.Clients[0].Place, target, podName("near", ipv6), "moved address on "+n.Name)
			if i == 0 {
				if err := n.RemoveAddress(t.Context(), vip); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range Sample(usual) {
		if c.From == FromNode || c.Backend == Itself {
			if o := c.Run(t.Context(), l); len(o.Problems) > 0 {
				t.Errorf("%s, with a foreign address on node2: %v", c, o.Problems)
			}
		}
	}
}

// Reverse-path filters of any strictness on the uplink do not matter.
func TestReversePathFiltersDoNotMatter(t *testing.T) {
	for _, site := range []Site{
		{Overlay: "VXLAN", Mode: Enabled}, {Overlay: "VXLAN", Mode: Disabled},
		{Overlay: "Direct", Mode: Enabled}, {Overlay: "Direct", Mode: Disabled},
	} {
		t.Run(site.String(), func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(site, "Auto"))
			for _, filter := range []struct{ all, uplink int }{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}} {
				for _, n := range l.Nodes {
					for dev, value := range map[string]int{"all": filter.all, "eth0": filter.uplink} {
						if err := n.ReversePathFilter(dev, value); err != nil {
							t.Fatal(err)
						}
					}
				}
				run, failed := 0, 0
				for _, c := range mainCells(site) {
					run++
					if o := c.Deliver(t.Context(), l); len(o.Problems) > 0 {
						failed++
						t.Errorf("rp_filter all=%d uplink=%d: %s: %v", filter.all, filter.uplink, c, o.Problems)
					}
				}
				t.Logf("rp_filter all=%d uplink=%d: %d cells, failed %d", filter.all, filter.uplink, run, failed)
			}
		})
	}
}

// mainCells are the ways that packets can take, each once in a family and protocol. Reverse-path filters
// are IPv4's.
func mainCells(site Site) []Cell {
	var cells []Cell
	for _, c := range Sample(site) {
		if !c.IPv6 && c.Backend != None && c.To != ExternalIP && c.To != LoadBalancer {
			cells = append(cells, c)
		}
	}
	return cells
}
