// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// Somebody deletes or alters the fallback's pair, its routes, neighbours, addresses and settings while
// the host talks: each comes back as it was, and what was open goes on.
func TestTheFallbackComesBackWhenItIsAltered(t *testing.T) {
	t.Parallel()
	site := Site{Overlay: "VXLAN", Mode: Disabled}
	opts := Options(site, "Auto")
	opts.AgentConfig["resyncInterval"] = "3s" // nobody tells of a changed sysctl
	l := up(t, opts)
	loads := startLoads(t, l)
	node := l.Nodes[0]
	want, err := pairState(t, node)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(want, "lladdr") < 2 || strings.Count(want, " via ") < 4 {
		t.Fatalf("the fallback has no neighbours and routes:\n%s", want)
	}
	t.Logf("the pair:\n%s", want)
	// A flush of ip's deletes until nothing is left, and fails where somebody is as quick to put it back: entries are deleted
	// one by one, each of them once.
	for _, damage := range []struct{ name, command string }{
		{"a route is deleted", "ip route del 10.96.0.1 dev bpfin.cali"},
		{"all routes are deleted", deleteEach("ip -4", "route", "") + "; " + deleteEach("ip -6", "route", "")},
		{"the neighbours are deleted", deleteEach("ip", "neigh", "nud permanent")},
		{"a neighbour is changed", "ip neigh replace 169.254.1.1 lladdr 02:00:00:00:de:ad dev bpfin.cali nud permanent"},
		{"a MAC is changed", "ip link set bpfout.cali address 02:00:00:00:be:ef"},
		{"an address is deleted", "ip addr del 169.254.1.3/32 dev bpfout.cali"},
		{"an end is set down", "ip link set bpfin.cali down"},
		{"settings are changed", "echo 0 > /proc/sys/net/ipv4/conf/bpfout.cali/accept_local"},
		{"the pair is deleted", "ip link del bpfin.cali"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			if out, err := node.Run(t.Context(), "sh", "-ec", damage.command); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			eventually(t, 10*time.Second, "the repair", func() (bool, string) {
				have, err := pairState(t, node)
				return err == nil && have == want, fmt.Sprint(err, cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")))
			})
			eventually(t, 10*time.Second, "the host to be served", func() (bool, string) { return hostServed(t, l, node) })
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
func hostServed(t *testing.T, l *lab.Lab, node *lab.Node) (bool, string) {
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
	return seen == nil, strings.Join(seen, "\n")
}

// deleteEach is a command that deletes each of the pair's entries of a kind once, and fails where one is not there.
func deleteEach(ip, kind, which string) string {
	return fmt.Sprintf("%[1]s %[2]s show dev bpfin.cali %[3]s | while read -r entry rest; do echo %[2]s del $entry dev bpfin.cali; done | %[1]s -batch -",
		ip, kind, which)
}

// pairState is all that the fallback needs of the node's kernel, line by line: links, addresses, routes, neighbours and
// settings of the pair. Ethernet addresses of the two ends are written as whose they are, and interfaces have no numbers, so
// that a pair that was made anew is as good as the old one.
func pairState(t *testing.T, node *lab.Node) (string, error) {
	t.Helper()
	const script = `
ip -o link; ip -o addr; ip -4 route; ip -6 route; ip neigh show nud permanent
cd /proc/sys/net
for dev in bpfin.cali bpfout.cali; do # not every kernel has all
	grep -s . ipv4/conf/$dev/accept_local ipv4/conf/$dev/rp_filter ipv4/conf/$dev/forwarding ipv6/conf/$dev/forwarding \
		ipv6/conf/$dev/force_forwarding ipv6/conf/$dev/addr_gen_mode ipv6/conf/$dev/accept_dad ipv6/conf/$dev/accept_ra || true
done`
	out, err := node.Run(t.Context(), "sh", "-ec", script)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var lines, names []string // names: an Ethernet address, and whose it is
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "bpfin.cali") && !strings.Contains(line, "bpfout.cali") {
			continue
		}
		line = strings.Join(strings.Fields(numbered.ReplaceAllString(line, "")), " ")
		if m := ofEnd.FindStringSubmatch(line); m != nil {
			names = append(names, m[2], "(that of "+m[1]+")")
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.NewReplacer(names...).Replace(strings.Join(lines, "\n")), nil
}

var (
	// numbered is the number of an interface at the beginning of a line; ofEnd is what ip link says of an end's Ethernet address.
	numbered = regexp.MustCompile(`^\d+: `)
	ofEnd    = regexp.MustCompile(`^(\w+\.cali)@.* link/ether (\S+)`)
)
