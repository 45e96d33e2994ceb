// SPDX-License-Identifier: Apache-2.0

package variants

import (
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

func names() []string {
	var names []string
	for _, v := range All() {
		names = append(names, v.Name())
	}
	sort.Strings(names)
	return names
}

func TestThereAre24VariantsInTheOrderOfTheirIndices(t *testing.T) {
	all := All()
	if len(all) != 24 {
		t.Fatalf("%d variants", len(all))
	}
	for i, v := range all {
		if v.Index() != uint32(i) {
			t.Errorf("%s has index %d, want %d", v, v.Index(), i)
		}
		parsed, err := Parse(v.Name())
		if err != nil || parsed != v {
			t.Errorf("%s parses to %v, %v", v, parsed, err)
		}
	}
	last := all[23].Slot(layout.SlotStride - 1)
	if last >= uint32(layout.BankStride) {
		t.Errorf("slot %d of the last variant is outside a bank of %d", last, layout.BankStride)
	}
}

func TestIndicesPlaceVariantsAsTheCSideDoes(t *testing.T) {
	for name, want := range map[string]uint32{"from_wep_v4": 0, "from_wep_v6": 1, "to_wep_v4": 2, "to_l3dev_v6": 23} {
		v, err := Parse(name)
		if err != nil || v.Index() != want {
			t.Errorf("%s: index %d, want %d (%v)", name, v.Index(), want, err)
		}
	}
	if got := (Variant{Hook: layout.HookEgress, Class: layout.ClassHEP}).Slot(layout.SlotRST); got != 6*16+6 {
		t.Errorf("slot %d", got)
	}
}

func TestEveryVariantHasItsObjectAndNoObjectIsWithoutAUse(t *testing.T) {
	want := append(names(), objects.Preamble, objects.Policy, objects.Clock, objects.LayoutV4, objects.LayoutV6,
		objects.CTLBV4, objects.CTLBV6, objects.CTLBV46)
	sort.Strings(want)
	if diff := cmp.Diff(want, objects.Names()); diff != "" {
		t.Errorf("objects that are built in (-want +got):\n%s", diff)
	}
}

// The Makefile spells the same table in three lists of words.
func TestTheMakefileHasTheSameTable(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + `\s*:=(.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("Makefile has no %s", name)
		}
		return strings.Fields(string(m[1]))
	}
	var made []string
	for _, direction := range list("DIRS") {
		for _, class := range list("CLASSES") {
			for _, family := range list("FAMILIES") {
				made = append(made, direction+"_"+class+"_"+family)
			}
		}
	}
	sort.Strings(made)
	if diff := cmp.Diff(names(), made); diff != "" {
		t.Errorf("variants of the Makefile (-Go +Makefile):\n%s", diff)
	}
}

func TestAnUnknownNameSaysWhatANameLooksLike(t *testing.T) {
	_, err := Parse("from_pod_v4")
	if err == nil || !strings.Contains(err.Error(), "{wep,hep,lo,nat,tunnel,l3dev}") {
		t.Errorf("error %v", err)
	}
}
