// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// Without connect-time balancing all classes of interfaces are there: the host's own packets take the
// fallback's pair and lo.
func TestEveryVariantCarriesRealPackets(t *testing.T) {
	t.Parallel()
	site := Site{Overlay: "VXLAN", Mode: Disabled}
	opts := Options(site, "Auto")
	opts.AgentConfig["l3InterfacePattern"] = "^" + lab.TunInterface + "$"
	l := up(t, opts)
	client, err := l.AddTunClient(t.Context(), l.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := waitAttached(t.Context(), l.Nodes[0], layout.ClassL3Dev); err != nil {
		t.Fatal(err)
	}
	for _, c := range Sample(site) {
		_ = c.Run(t.Context(), l) // judged by the matrix; here only what its packets touch counts
	}
	for _, ipv6 := range []bool{false, true} {
		for _, place := range []Backend{SameNode, OtherNode} {
			target := serviceFor(place, ipv6).address(l, NodePort)
			target = netip.AddrPortFrom(gateway(client, ipv6), target.Port())
			for _, target := range []netip.AddrPort{
				netip.AddrPortFrom(l.Pod(backendPod(place, ipv6)).Address(ipv6), probe.Port),
				serviceFor(place, ipv6).address(l, NodePort), target,
			} {
				probeFromTun(t, client, target, backendPod(place, ipv6), ipv6)
			}
		}
	}
	sum := lab.Counters{}
	for _, n := range l.Nodes {
		c, err := n.Counters()
		if err != nil {
			t.Fatal(err)
		}
		sum = sum.Plus(c)
	}
	t.Logf("packets by variant, of both nodes:\n%s", coverageTable(sum))
	for _, v := range lab.AllVariants() {
		if sum.Packets(v) == 0 {
			t.Errorf("%s has seen no packet", v)
		}
	}
}

func gateway(c *lab.Client, ipv6 bool) netip.Addr {
	if ipv6 {
		return c.Gateway6
	}
	return c.Gateway4
}

// probeFromTun sends both protocols from behind the layer 3 device.
func probeFromTun(t *testing.T, client *lab.Client, target netip.AddrPort, backend string, ipv6 bool) {
	t.Helper()
	tcp, err := client.Probe().TCP(t.Context(), probe.TCPArgs{Address: target.String(), Bytes: megabyte})
	udp, udpErr := client.Probe().UDP(t.Context(), probe.UDPArgs{Address: target.String(), Sizes: []int{1, 1200}})
	if err != nil || udpErr != nil {
		t.Fatal(err, udpErr)
	}
	for proto, r := range map[string]probe.Result{"TCP": tcp, "UDP": udp} {
		if r.OK != 1 || r.Backends[backend] != 1 || r.Clients[client.Address(ipv6).String()] != 1 {
			t.Errorf("%s to %s by a layer 3 device: want one answer from %s to %s, have %s %v",
				proto, target, backend, client.Address(ipv6), r, r.Examples)
		}
	}
}

func waitAttached(ctx context.Context, n *lab.Node, class layout.Class) error {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	return lab.WaitFor(ctx, fmt.Sprintf("an interface of class %s on %s", class, n.Name), func() (bool, string) {
		set, err := n.Maps()
		if err != nil {
			return false, err.Error()
		}
		found, names := false, []string{}
		err = set.Interfaces.All(func(_ uint32, v layout.IfaceValue) bool {
			found = found || layout.Class(v.Class) == class
			names = append(names, strings.TrimRight(string(v.Name[:]), "\x00"))
			return true
		})
		return err == nil && found, fmt.Sprint(names, err)
	})
}

// coverageTable prints packets by direction, class and family.
func coverageTable(c lab.Counters) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %12s %12s %12s %12s\n", "class", "from v4", "from v6", "to v4", "to v6")
	for class := range layout.ClassCount {
		fmt.Fprintf(&b, "%-8s", class)
		for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
			for _, family := range []layout.Family{layout.FamilyV4, layout.FamilyV6} {
				fmt.Fprintf(&b, " %12d", c.Packets(lab.Variant{Class: class, Hook: hook, Family: family}))
			}
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}
