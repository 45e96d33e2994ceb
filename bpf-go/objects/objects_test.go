// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"debug/elf"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

func TestEveryObjectParsesAndItsProgramsAreOfTheirHooks(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal(ErrMissing)
	}
	for _, name := range Names() {
		spec, err := Spec(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range spec.Programs {
			if cgroup := p.Type == ebpf.CGroupSockAddr || p.Type == ebpf.CGroupSock; cgroup != strings.HasPrefix(name, "ctlb_") {
				t.Errorf("%s: program %s is a %v", name, p.Name, p.Type)
			} else if !cgroup && p.Type != ebpf.SchedCLS {
				t.Errorf("%s: program %s is a %v: it could not share a prog_array", name, p.Name, p.Type)
			}
			if p.License != "Dual BSD/GPL" {
				t.Errorf("%s: license %q", name, p.License)
			}
		}
	}
}

func TestObjectsKeepBTFAndHaveNoDWARF(t *testing.T) {
	for _, name := range Names() {
		data, err := Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		btf := false
		for _, s := range f.Sections {
			btf = btf || s.Name == ".BTF"
			if strings.HasPrefix(s.Name, ".debug") {
				t.Errorf("%s has section %s", name, s.Name)
			}
		}
		if !btf {
			t.Errorf("%s has no BTF", name)
		}
	}
}

func TestEachSpecIsTheCallersOwn(t *testing.T) {
	a, err := Spec(Preamble)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Spec(Preamble)
	if err != nil {
		t.Fatal(err)
	}
	a.Maps["cali_counters2"].MaxEntries = 1
	if b.Maps["cali_counters2"].MaxEntries == 1 {
		t.Error("two specifications share a map's")
	}
}

func TestAMissingObjectSaysHowToBuildIt(t *testing.T) {
	_, err := Spec("nothing")
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "nothing.o") || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v", err)
	}
}
