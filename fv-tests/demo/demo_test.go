// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

func TestMain(m *testing.M) {
	lab.RunChild()
	os.Exit(m.Run())
}

func TestDemoCarriesEveryPathOnBothOverlays(t *testing.T) {
	for _, overlay := range []string{"VXLAN", "Direct"} {
		t.Run(overlay, func(t *testing.T) {
			var out strings.Builder
			if err := Run(t.Context(), &out, Options{Overlay: overlay}); err != nil {
				t.Error(err)
			}
			t.Log(out.String())
		})
	}
}
