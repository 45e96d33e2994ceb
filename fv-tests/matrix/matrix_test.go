// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// programTimeout is how long agents may take to program the services of a test.
const programTimeout = 60 * time.Second

func TestMain(m *testing.M) {
	lab.RunChild()
	os.Exit(m.Run())
}

// up builds a lab with the matrix's services programmed.
func up(t *testing.T, opts lab.Options) *lab.Lab {
	t.Helper()
	l := lab.UpForTest(t, opts)
	apply(t, l, string(Manifests()))
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	if err := WaitProgrammed(ctx, l); err != nil {
		t.Fatalf("%v\n%s", err, l.Nodes[0].Dump(t.Context()))
	}
	return l
}

func apply(t *testing.T, l *lab.Lab, manifest string) {
	t.Helper()
	if _, err := l.Apply([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
}

func TestEveryPathIsCarriedByItsMechanism(t *testing.T) {
	for _, overlay := range []string{"VXLAN", "Direct"} {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			runCells(t, up(t, Options(overlay, "Auto")), Cells(overlay))
		})
	}
}

// The underlay's family changes only what the tunnel does: the paths that use it are run again.
func TestTunnelPathsWorkOverIPv6Underlay(t *testing.T) {
	t.Parallel()
	var cells []Cell
	for _, c := range Cells("VXLAN") {
		if c.Backend == OtherNode && (c.To == PodAddress || c.To == ClusterIP || c.To == NodePort) {
			cells = append(cells, c)
		}
	}
	runCells(t, up(t, Options("VXLAN", "IPv6")), cells)
}

// runCells runs cells one after the other, so that each cell's counters are its own. The first failed
// cells are explained in full.
func runCells(t *testing.T, l *lab.Lab, cells []Cell) {
	t.Helper()
	const explained = 2
	run, failed := 0, 0
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			o := c.Run(t.Context(), l)
			run++
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
	t.Logf("cells run / expected: %d / %d, failed: %d", run, len(cells), failed)
	if run != len(cells) {
		t.Errorf("cells run / expected: %d / %d", run, len(cells))
	}
}

func TestEveryCellHasAMechanismAndOneName(t *testing.T) {
	names := map[string]bool{}
	for _, overlay := range []string{"VXLAN", "Direct"} {
		for _, c := range Cells(overlay) {
			if _, _, err := c.mechanism(); err != nil {
				t.Error(err)
			}
			if names[c.String()] {
				t.Errorf("two cells are called %q", c)
			}
			names[c.String()] = true
		}
	}
	if want := 2 * 4 * len(Paths); len(names) != want {
		t.Errorf("want %d cells, have %d", want, len(names))
	}
}
