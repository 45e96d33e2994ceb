// SPDX-License-Identifier: Apache-2.0

package jump

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/progrun"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func nodeMaps(t *testing.T) *maps.Set {
	t.Helper()
	set, err := maps.Open(testenv.BPFFS(t), maps.Options{Sizes: maps.Sizes{
		Conntrack: 100, ConntrackHalfOpen: 100, NATFrontend: 100, NATBackend: 100, NATAffinity: 100,
		Routes: 100, Interfaces: 16,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// generation is 24 variants whose main program returns base + the variant's index.
func generation(t *testing.T, base int32, programs ...string) []*load.Object {
	t.Helper()
	var all []*load.Object
	for _, v := range variants.All() {
		o := &load.Object{Name: v.Name(), Variant: v, Programs: map[string]*ebpf.Program{}}
		for _, name := range programs {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Name: name, Type: ebpf.SchedCLS, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, base+int32(v.Index())), asm.Return()},
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Programs[name] = p
		}
		all = append(all, o)
	}
	t.Cleanup(func() { load.CloseAll(all) })
	return all
}

// reached is what the preamble of a variant's interface ends up in.
func reached(t *testing.T, set *maps.Set, v variants.Variant) int32 {
	t.Helper()
	cfg := layout.PreambleCfg{Hook: uint32(v.Hook), FailClosed: 1}
	for _, f := range variants.Families {
		cfg.Main[f] = variants.Variant{Hook: v.Hook, Class: v.Class, Family: f}.Slot(layout.SlotMain)
	}
	preamble, err := load.Preamble(cfg, set.Raw())
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer preamble.Close()
	packet := make([]byte, 64)
	packet[12], packet[13] = 0x08, 0x00
	if v.Family == layout.FamilyV6 {
		packet[12], packet[13] = 0x86, 0xdd
	}
	out, err := progrun.Run(preamble, progrun.Input{Packet: packet})
	if err != nil {
		t.Fatal(err)
	}
	return out.Verdict
}

func install(t *testing.T, set *maps.Set, generation []*load.Object) uint32 {
	t.Helper()
	bank, err := NextBank(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := Install(set, bank, generation); err != nil {
		t.Fatal(err)
	}
	return bank
}

func TestPreamblesReachTheirVariantOfTheGenerationThatWasInstalledLast(t *testing.T) {
	set := nodeMaps(t)
	if got := reached(t, set, variants.Variant{}); got != progrun.Shot {
		t.Errorf("with empty slots a workload's packet got verdict %d, want a drop", got)
	}
	banks := map[uint32]bool{}
	for _, base := range []int32{100, 200, 300} {
		banks[install(t, set, generation(t, base, "cali_main", "cali_drop"))] = true
		for _, v := range variants.All() {
			if got := reached(t, set, v); got != base+int32(v.Index()) {
				t.Errorf("%s of generation %d: verdict %d", v, base, got)
			}
		}
	}
	if len(banks) != 2 {
		t.Errorf("banks in turn: %v", banks)
	}
}

func TestASlotThatTheNewGenerationLacksIsEmptied(t *testing.T) {
	set := nodeMaps(t)
	bank := install(t, set, generation(t, 100, "cali_main", "cali_rst"))
	install(t, set, generation(t, 200, "cali_main"))
	install(t, set, generation(t, 300, "cali_main")) // in the first bank again
	_, found, err := set.Jump.Get(bank + variants.Variant{}.Slot(layout.SlotRST))
	if err != nil || found {
		t.Errorf("a program of the first generation is still there (%v)", err)
	}
}

func TestABadGenerationIsRefusedAndTheOldOneStays(t *testing.T) {
	set := nodeMaps(t)
	install(t, set, generation(t, 100, "cali_main"))
	next, err := NextBank(set)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bank       uint32
		generation []*load.Object
		want       string
	}{
		"a variant is missing":        {next, generation(t, 200, "cali_main")[:23], "to_l3dev_v6"},
		"no main program":             {next, generation(t, 200, "cali_drop"), "cali_main"},
		"a program without a slot":    {next, generation(t, 200, "cali_main", "cali_other"), "cali_other"},
		"the bank is active":          {512 - next, generation(t, 200, "cali_main"), "active"},
		"the bank does not exist":     {1024, generation(t, 200, "cali_main"), "1024"},
		"the bank begins in a bank's": {16, generation(t, 200, "cali_main"), "16"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Install(set, c.bank, c.generation)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that names %q", err, c.want)
			}
			if got := reached(t, set, variants.Variant{}); got != 100 {
				t.Errorf("verdict %d afterwards, want that of the old generation", got)
			}
		})
	}
}

// of are those programs of a generation that are some classes'.
func of(generation []*load.Object, classes ...layout.Class) []*load.Object {
	var some []*load.Object
	for _, o := range generation {
		if slices.Contains(classes, o.Variant.Class) {
			some = append(some, o)
		}
	}
	return some
}

func TestANodesFirstGenerationComesClassByClass(t *testing.T) {
	set := nodeMaps(t)
	if classes, empty, err := Active(set); err != nil || !empty || len(classes) != 0 {
		t.Errorf("a new node's active bank has %v, empty %v, %v", classes, empty, err)
	}
	first := generation(t, 100, "cali_main", "cali_drop")
	bank, err := NextBank(set)
	if err != nil {
		t.Fatal(err)
	}
	wep := layout.ClassWEP
	others := variants.Classes()[1:]
	for name, err := range map[string]error{
		"a variant is missing":        InstallClasses(set, bank, of(first, wep)[1:], wep),
		"there are others":            InstallClasses(set, bank, first, wep),
		"the bank begins in a bank's": InstallClasses(set, bank+16, of(first, wep), wep),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := InstallClasses(set, bank, of(first, wep), wep); err != nil {
		t.Fatal(err)
	}
	pod, host := variants.Variant{Hook: layout.HookEgress}, variants.Variant{Class: layout.ClassHEP}
	if got := reached(t, set, pod); got != 100+int32(pod.Index()) {
		t.Errorf("verdict of %s: %d", pod, got)
	}
	if got := reached(t, set, host); got != progrun.Shot {
		t.Errorf("verdict of %s, whose programs are not there: %d", host, got)
	}
	if classes, empty, err := Active(set); err != nil || empty || !slices.Equal(classes, []layout.Class{wep}) {
		t.Errorf("the active bank has %v, empty %v, %v", classes, empty, err)
	}
	if err := InstallClasses(set, bank, of(first, wep), wep); err == nil {
		t.Error("slots that packets reach were filled again")
	}
	other, err := NextBank(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := InstallClasses(set, other, of(first, others...), others...); err == nil {
		t.Error("a part of a generation was installed beside the active bank")
	}
	if err := InstallClasses(set, bank, of(first, others...), others...); err != nil {
		t.Fatal(err)
	}
	for _, v := range variants.All() {
		if got := reached(t, set, v); got != 100+int32(v.Index()) {
			t.Errorf("verdict of %s: %d", v, got)
		}
	}
	if classes, _, err := Active(set); err != nil || !slices.Equal(classes, variants.Classes()) {
		t.Errorf("the active bank has %v, %v", classes, err)
	}
	install(t, set, generation(t, 200, "cali_main")) // from now on whole
	if got := reached(t, set, pod); got != 200+int32(pod.Index()) {
		t.Errorf("verdict of %s in the second generation: %d", pod, got)
	}
}

func TestPoliciesStandInTheirSlots(t *testing.T) {
	set := nodeMaps(t)
	for range 2 { // in place of an earlier build's
		policies, err := load.Policies(layout.Config{}, set.Raw())
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if err := InstallPolicies(set, policies); err != nil {
			t.Fatal(err)
		}
		policies.Close()
	}
	for _, slot := range []layout.PolicyIndex{layout.PolicyDeny, layout.PolicyAllow} {
		if _, found, err := set.Policy.Get(uint32(slot)); err != nil || !found {
			t.Errorf("policy %s: found %v, %v", slot, found, err)
		}
	}
}

func TestTheRealGenerationInstallsWithAllItsPrograms(t *testing.T) {
	set := nodeMaps(t)
	bank, err := NextBank(set)
	if err != nil {
		t.Fatal(err)
	}
	all, err := load.All(t.Context(), layout.Config{JumpBank: bank, MarkShift: 20, HZ: 250}, set.Raw())
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer load.CloseAll(all)
	if err := Install(set, bank, all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		for name := range o.Programs {
			_, found, err := set.Jump.Get(bank + o.Variant.Slot(slots[name]))
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				t.Errorf("%s: slot of %s is empty", o.Name, name)
			}
		}
	}
}
