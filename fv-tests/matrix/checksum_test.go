// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// A sum that a device is to finish covers the pseudo-header only, one without offload covers all: both must be
// right after a translation. Where pods have offload and the uplinks have none, sums are finished after it; where
// pods have none, before it. Receivers drop what is wrong.
func TestChecksumsAreRightWithAndWithoutOffload(t *testing.T) {
	for _, overlay := range []string{"VXLAN", "Direct"} {
		site := Site{Overlay: overlay, Mode: Disabled} // every packet is translated
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(site, "Auto"))
			for _, pods := range []bool{true, false} {
				for _, p := range l.Pods {
					setOffload(t, &p.Place, pods)
				}
				for _, n := range l.Nodes {
					setOffload(t, &n.Place, !pods)
				}
				for _, c := range l.Clients {
					setOffload(t, &c.Place, !pods)
				}
				name := "sums are finished by the uplinks"
				if !pods {
					name = "sums are finished by the pods"
				}
				t.Run(name, func(t *testing.T) {
					cells := slices.DeleteFunc(Sample(site), func(c Cell) bool {
						return c.Backend == None || (c.To != ClusterIP && c.To != NodePort)
					})
					var score score
					runCells(t, l, cells, &score)
					score.print(t, len(cells))
				})
			}
		})
	}
}

func setOffload(t *testing.T, p *lab.Place, on bool) {
	t.Helper()
	if err := p.ChecksumOffload("eth0", on); err != nil {
		t.Fatal(err)
	}
}
