// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

var config = layout.Config{
	MarkShift: 20, HZ: 250, ToSYNSent: 5000, ToEstablished: 900000, ToFINs: 7500, ToReset: 10000,
	ToUDP: 15000, ToGeneric: 150000, ToICMP: 1250, ToTicksShift: 8,
}

func nodeMaps(t *testing.T) *maps.Set {
	t.Helper()
	set, err := maps.Open(testenv.BPFFS(t), maps.Options{Sizes: maps.Sizes{
		Conntrack: 1000, ConntrackHalfOpen: 1000, NATFrontend: 1000, NATBackend: 1000, NATAffinity: 1000,
		Routes: 1000, Interfaces: 64,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// The kernel refuses programs of more instructions than this; the datapath keeps 30 % in reserve.
const (
	verifierLimit = 1_000_000
	reserve       = 0.30
)

func TestEveryVariantLoadsWithReserveAndUsesTheNodesMaps(t *testing.T) {
	set := nodeMaps(t)
	ours := map[ebpf.MapID]bool{}
	for _, m := range set.Raw() {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		ours[id] = true
	}
	for _, v := range variants.All() {
		t.Run(v.Name(), func(t *testing.T) {
			o, err := Variant(v, config, set.Raw())
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer o.Close()
			if o.Programs["cali_main"] == nil {
				t.Error("no program cali_main")
			}
			for name, p := range o.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				n, ok := info.VerifiedInstructions()
				if ok && float64(n) > verifierLimit*(1-reserve) {
					t.Errorf("%s: %d instructions verified: less than 30 %% reserve", name, n)
				}
				xlated, err := info.Instructions()
				if err == nil {
					t.Logf("%s: %d instructions, %d verified", name, len(xlated), n)
				}
				used, _ := info.MapIDs()
				foreign := 0
				for _, id := range used {
					if !ours[id] {
						foreign++
					}
				}
				// Its constants, and literals of a function's own, are its only maps beside the node's.
				if foreign > 2 {
					t.Errorf("%s: %d of its %d maps are not the node's", name, foreign, len(used))
				}
			}
		})
	}
}

func TestPoliciesAndPreambleLoad(t *testing.T) {
	set := nodeMaps(t)
	policies, err := Policies(config, set.Raw())
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer policies.Close()
	if policies.Programs[PolicyDenyProgram] == nil || policies.Programs[PolicyAllowProgram] == nil {
		t.Errorf("policies: %v", policies.Programs)
	}
	preamble, err := Preamble(layout.PreambleCfg{IfaceSlot: 3, FailClosed: 1}, set.Raw())
	if err != nil {
		t.Fatalf("%+v", err)
	}
	preamble.Close()
}

func TestARefusedProgramNamesObjectAndCauseAndKeepsTheWholeLog(t *testing.T) {
	testenv.RequireRoot(t)
	var instructions asm.Instructions
	for range 50 {
		instructions = append(instructions, asm.Mov.Imm(asm.R2, 1))
	}
	instructions = append(instructions, asm.LoadMem(asm.R0, asm.R7, 0, asm.Word), asm.Return())
	spec := &ebpf.CollectionSpec{
		Maps:      map[string]*ebpf.MapSpec{},
		Variables: map[string]*ebpf.VariableSpec{},
		Programs: map[string]*ebpf.ProgramSpec{
			"cali_main": {Name: "cali_main", Type: ebpf.SchedCLS, License: "GPL", Instructions: instructions},
		},
	}
	_, err := Spec("from_wep_v4", spec, config, nil)
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v is not an *Error", err)
	}
	for _, want := range []string{"from_wep_v4", "cali_main", "R7 !read_ok"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("message has more than one line: %q", err)
	}
	if whole := fmt.Sprintf("%+v", err); strings.Count(whole, "\n") < 50 {
		t.Errorf("the whole log has only %d lines", strings.Count(whole, "\n"))
	}
}

func TestAnObjectThatIsNotBuiltSaysWhatToDo(t *testing.T) {
	_, err := object("no_such_object", config, nil)
	if !errors.Is(err, objects.ErrMissing) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v", err)
	}
}
