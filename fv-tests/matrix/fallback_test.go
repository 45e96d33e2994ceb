// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// Somebody deletes or alters the fallback's pair, its routes, neighbours, addresses and settings while
// the host talks: each comes back, and what was open goes on.
func TestTheFallbackComesBackWhenItIsAltered(t *testing.T) {
	t.Parallel()
	site := Site{Overlay: "VXLAN", Mode: Disabled}
	opts := Options(site, "Auto")
	opts.AgentConfig["resyncInterval"] = "3s" // nobody tells of a changed sysctl
	l := up(t, opts)
	loads := startLoads(t, l)
	node := l.Nodes[0]
	// A flush of ip's deletes until nothing is left, and fails where somebody is as quick to put it back.
	for _, damage := range []struct {
		name, command, look string
	}{
		{"a route is deleted", "ip route del 10.96.0.1 dev bpfin.cali || ip route flush dev bpfin.cali || true", "ip route show dev bpfin.cali"},
		{"all routes are deleted", "ip route flush dev bpfin.cali || true; ip -6 route flush dev bpfin.cali || true", "ip route show dev bpfin.cali; ip -6 route show dev bpfin.cali"},
		{"a neighbour is deleted", "ip neigh flush dev bpfin.cali nud permanent || true", "ip neigh show dev bpfin.cali"},
		{"a MAC is changed", "ip link set bpfout.cali address 02:00:00:00:be:ef", "cat /sys/class/net/bpfout.cali/address; ip neigh show dev bpfin.cali"},
		{"an address is deleted", "ip addr flush dev bpfout.cali || true", "ip addr show dev bpfout.cali"},
		{"an end is set down", "ip link set bpfin.cali down", "ip -o link show dev bpfin.cali"},
		{"settings are changed", "echo 0 > /proc/sys/net/ipv4/conf/bpfout.cali/accept_local", "cat /proc/sys/net/ipv4/conf/bpfout.cali/accept_local"},
		{"the pair is deleted", "ip link del bpfin.cali", "ip -o link show"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			if out, err := node.Run(t.Context(), "sh", "-c", damage.command); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			eventually(t, 10*time.Second, "the host to be served", func() (bool, string) {
				return hostServed(t, l, node, damage.look)
			})
		})
	}
	if _, err := loads.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures of all loads:\n%s", loads)
	for _, r := range loads.running {
		if r.kind == probe.LoadTCPOpen && r.result.OK != r.result.Attempts {
			t.Errorf("%s: %d of %d exchanges failed", r.title, r.result.Attempts-r.result.OK, r.result.Attempts)
		}
	}
	for _, c := range Sample(site) {
		if c.From != FromNode {
			continue
		}
		if o := c.Run(t.Context(), l); len(o.Problems) > 0 {
			t.Errorf("%s, after all repairs: %v", c, o.Problems)
		}
	}
}

// hostServed says whether the host reaches services with a backend in every place.
func hostServed(t *testing.T, l *lab.Lab, node *lab.Node, look string) (bool, string) {
	var seen []string
	for _, ipv6 := range []bool{false, true} {
		for _, place := range []Backend{SameNode, OtherNode, SameHost, OtherHost} {
			target := serviceFor(place, ipv6).address(l, ClusterIP).String()
			r, err := node.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: 1000, Timeout: 500 * time.Millisecond})
			if err != nil || r.OK != 1 {
				seen = append(seen, fmt.Sprint(target, " ", r, r.Examples, err))
			}
		}
	}
	if seen == nil {
		return true, ""
	}
	state, _ := node.Run(t.Context(), "sh", "-c", look)
	return false, strings.Join(append(seen, state), "\n")
}
