// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// programTimeout is how long agents may take to program the services of a test: on a busy machine four of them load their
// programs at a time, beside all loads.
const programTimeout = 3 * time.Minute

// cellsVariable chooses the cells: see Choose.
const cellsVariable = "LAB_CELLS"

func TestMain(m *testing.M) {
	lab.RunChild()
	os.Exit(m.Run())
}

// usual is the site of tests that are about something else than sites.
var usual = Site{Overlay: "VXLAN", Mode: Enabled}

// up builds a lab with the matrix's services programmed.
func up(t *testing.T, opts lab.Options) *lab.Lab {
	t.Helper()
	l := lab.UpForTest(t, opts)
	if err := Prepare(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	if err := WaitProgrammed(ctx, l); err != nil {
		t.Fatalf("%v\n%s", err, l.Nodes[0].Dump(t.Context()))
	}
	return l
}

// deadline is a context of the test that ends after a while.
func deadline(t *testing.T, limit time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), limit)
}

func apply(t *testing.T, l *lab.Lab, manifest string) {
	t.Helper()
	if _, err := l.Apply([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
}

// Every path is carried by its mechanism, on every site: overlays, modes of connect-time balancing, with
// a firewall on the nodes and without.
func TestEveryPathIsCarriedByItsMechanism(t *testing.T) {
	cells, err := Choose(os.Getenv(cellsVariable))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d cells are chosen", len(cells), len(All()))
	var score score
	t.Run("sites", func(t *testing.T) {
		for _, overlay := range []string{"VXLAN", "Direct"} {
			for _, mode := range Modes {
				here := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool {
					return c.Site.Overlay != overlay || c.Site.Mode != mode
				})
				if len(here) == 0 {
					continue
				}
				t.Run(overlay+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					runSite(t, Site{Overlay: overlay, Mode: mode}, here, &score)
				})
			}
		}
	})
	score.print(t, len(cells))
}

// runSite runs a site's cells: those without a firewall, then those with one.
func runSite(t *testing.T, site Site, cells []Cell, score *score) {
	l := up(t, Options(site, "Auto"))
	for _, firewall := range []bool{false, true} {
		here := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Site.Firewall != firewall })
		if firewall && len(here) > 0 {
			raiseFirewalls(t, l)
		}
		runCells(t, l, here, score)
	}
}

// raiseFirewalls makes the nodes forward nothing, and waits until the agents have put their own chains in
// front again.
func raiseFirewalls(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, n := range l.Nodes {
		if err := n.ForwardNothing(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.Nodes {
		chains := []string{"FORWARD"}
		if hasInterface(t, n, natInterface) {
			chains = append(chains, "INPUT")
		}
		for _, chain := range chains {
			for _, rules := range []string{"iptables -S " + chain, "ip6tables -S " + chain} {
				eventually(t, programTimeout, "the agent's chain in front in "+rules+" of "+n.Name, func() (bool, string) {
					out, err := n.Run(t.Context(), strings.Fields(rules)...)
					lines := strings.Split(out, "\n") // the first says the policy
					return err == nil && len(lines) > 1 && strings.Contains(lines[1], "FELIX-LITE"), out
				})
			}
		}
	}
}

// The underlay's family changes only what the tunnel does: the paths that use it are run again.
func TestTunnelPathsWorkOverIPv6Underlay(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Enabled, Disabled} {
		site := Site{Overlay: "VXLAN", Mode: mode}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cells := slices.DeleteFunc(Sample(site), func(c Cell) bool {
				return c.Backend != OtherNode && c.Backend != OtherHost
			})
			var score score
			runCells(t, up(t, Options(site, "IPv6")), cells, &score)
			score.print(t, len(cells))
		})
	}
}

// runCells runs cells one after the other, so that each cell's counters are its own. The first failed
// cells are explained in full.
func runCells(t *testing.T, l *lab.Lab, cells []Cell, score *score) {
	t.Helper()
	const explained = 2
	failed := 0
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			o := c.Run(t.Context(), l)
			score.add(c, len(o.Problems) == 0)
			if len(o.Problems) == 0 {
				t.Logf("%s; %s", o.Result, o.Carried)
				return
			}
			failed++
			for _, p := range o.Problems {
				t.Error(p)
			}
			t.Logf("node1 counted:\n%s\nnode2 counted:\n%s", o.Entry, o.Far)
			if failed <= explained {
				t.Log(c.Explain(t.Context(), l))
			}
		})
	}
}

func TestEveryCellHasAMechanismAndOneName(t *testing.T) {
	names := map[string]bool{}
	for _, c := range All() {
		if _, _, err := c.mechanism(); err != nil {
			t.Error(err)
		}
		if names[c.String()] {
			t.Errorf("two cells are called %q", c)
		}
		names[c.String()] = true
	}
	t.Logf("%d paths, %d cells, %d mechanisms", len(Paths), len(names), len(mechanisms))
}

func TestTheChosenCellsMeetEveryPairOfValues(t *testing.T) {
	pairs := func(cells []Cell) map[string]bool {
		found := map[string]bool{}
		for _, c := range cells {
			for i, a := range dimensions(c) {
				for _, b := range dimensions(c)[:i] {
					found[a+"|"+b] = true
				}
			}
		}
		return found
	}
	chosen, err := Choose("")
	if err != nil {
		t.Fatal(err)
	}
	have := pairs(chosen)
	for pair := range pairs(All()) {
		if !have[pair] {
			t.Errorf("no chosen cell has %s", pair)
		}
	}
	again, _ := Choose("")
	if !slices.Equal(chosen, again) {
		t.Error("the choice differs from run to run")
	}
	t.Logf("%d of %d cells are chosen", len(chosen), len(All()))
}

func TestCellsAreChosenByTheirNames(t *testing.T) {
	cells, err := Choose("^node to ClusterIP, backend on same node, IPv4, UDP, VXLAN, Disabled$")
	if err != nil || len(cells) != 1 {
		t.Errorf("want one cell, have %v %v", cells, err)
	}
	if _, err := Choose("("); err == nil {
		t.Error("a broken expression was accepted")
	}
}

// probeOnce sends one TCP connection and one UDP exchange and wants the answer of a place.
func probeOnce(t *testing.T, from *lab.Place, target, server, what string) {
	t.Helper()
	tcp, err := from.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: megabyte})
	udp, udpErr := from.Probe().UDP(t.Context(), probe.UDPArgs{Address: target, Sizes: []int{1, 1200}})
	if err != nil || udpErr != nil {
		t.Fatal(err, udpErr)
	}
	for proto, r := range map[string]probe.Result{"TCP": tcp, "UDP": udp} {
		if r.OK != 1 || r.Backends[server] != 1 || r.ReplySources[target] != 1 {
			t.Errorf("%s, %s from %s to %s: want an answer from %s, have %s %v", what, proto, from.Name, target, server, r, r.Examples)
		}
	}
}
