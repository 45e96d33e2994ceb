// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
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

func TestTheOtherClassesAreLoadedWhenPodsAreAttached(t *testing.T) {
	set, err := maps.Open(testenv.BPFFS(t), maps.Options{Sizes: maps.Sizes{Conntrack: 1000, ConntrackHalfOpen: 1000, NATFrontend: 1000,
		NATBackend: 1000, NATAffinity: 1000, Routes: 1000, Interfaces: 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	p := newPrograms(set, layout.Config{MarkShift: 20, HZ: 250}, logrus.NewEntry(logrus.StandardLogger()), time.Now, func(string) {})
	begun := make(chan int, 2) // loads
	p.classes = func(ctx context.Context, cfg layout.Config, maps map[string]*ebpf.Map, classes ...layout.Class) ([]*load.Object, error) {
		begun <- len(classes)
		return load.Classes(ctx, cfg, maps, classes...)
	}
	defer p.close()
	if err := p.adopt(); err != nil {
		t.Fatal(err)
	}
	p.ensure(t.Context())
	p.attached() // nothing is attached yet: there is nothing to be attached with
	p.onLoaded(<-p.loaded)
	if !p.active[layout.ClassWEP] || p.complete() || p.next == nil {
		t.Fatalf("after the first part: active %v, the second waits: %v; %v", p.active, p.next != nil, p.failure)
	}
	if len(begun) != 1 { // installing the first has taken its time
		t.Errorf("%d loads have begun before the pods are attached", len(begun))
	}
	p.attached()
	p.attached() // every pass says so
	p.onLoaded(<-p.loaded)
	if !p.complete() || !p.current || p.loading {
		t.Errorf("after the second part: active %v, current %t, loading %t; %v", p.active, p.current, p.loading, p.failure)
	}
}
