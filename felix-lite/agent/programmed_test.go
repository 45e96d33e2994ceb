// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestInterfacesWaitForProgramsAndWorkloadsAreClosedWhereThereCanBeNone(t *testing.T) {
	for name, c := range map[string]struct {
		active         []layout.Class
		failure        error
		workload, host bool
	}{
		"while the first programs are loaded":     {},
		"when workloads' programs are there":      {active: []layout.Class{layout.ClassWEP}, workload: true},
		"when all are there":                      {active: []layout.Class{layout.ClassWEP, layout.ClassHEP}, workload: true, host: true},
		"when none can be loaded":                 {failure: errors.New("refused"), workload: true},
		"when a later generation can not be":      {active: []layout.Class{layout.ClassWEP, layout.ClassHEP}, failure: errors.New("refused"), workload: true, host: true},
		"when only those of the host are missing": {active: []layout.Class{layout.ClassWEP}, failure: errors.New("refused"), workload: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{programs: &programs{active: map[layout.Class]bool{}, failure: c.failure}}
			a.programs.activate(c.active...)
			if got := a.programmed(layout.ClassWEP); got != c.workload {
				t.Errorf("workloads are attached: %v, want %v", got, c.workload)
			}
			if got := a.programmed(layout.ClassHEP); got != c.host {
				t.Errorf("host interfaces are attached: %v, want %v", got, c.host)
			}
		})
	}
}
