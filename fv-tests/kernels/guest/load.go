// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

// verifierLogTail is how much of a refused program's log is shown.
const verifierLogTail = 25

// runLoad hands every program of every object to this kernel's verifier, one by one, so that a
// refused one hides no other. All share one set of maps, as on a node: a prog_array that does not
// take every program shows here.
func runLoad(r *reporter) {
	names := objects.Names()
	r.note("%-14s %-16s %8s %9s %7s %7s %7s %6s %8s", "object", "program", "insns", "verified",
		"states", "peak", "per-insn", "stack", "ms")
	maps := sharedMaps{}
	defer maps.close()
	programs := 0
	for _, name := range names {
		spec, err := objects.Spec(name)
		if err == nil {
			err = maps.add(spec)
		}
		r.verdict(name+" maps", err)
		if err != nil {
			continue
		}
		for _, program := range sortedPrograms(spec) {
			programs++
			loadOne(r, maps, spec, name, program)
		}
	}
	if programs == 0 {
		r.verdict("objects", errors.New("the guest was built without BPF objects: run `make build` first"))
	}
}

// loadOne loads a single program of an object, prints its row and judges it.
func loadOne(r *reporter, maps sharedMaps, spec *ebpf.CollectionSpec, object, program string) {
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	start := time.Now()
	coll, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{
		Programs:        ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
		MapReplacements: maps.replacements(one),
	})
	took := time.Since(start)
	check := object + " " + program
	if err != nil {
		r.note("%s", refusal(err))
		r.verdict(check, err)
		return
	}
	defer coll.Close()
	stats, err := parseStats(coll.Programs[program].VerifierLog)
	if err != nil {
		r.verdict(check, err)
		return
	}
	stats.instructions = int(one.Programs[program].Instructions.Size() / 8)
	r.note("%-14s %-16s %8d %9d %7d %7d %7d %6s %8.1f", object, program, stats.instructions, stats.verified,
		stats.totalStates, stats.peakStates, stats.statesPerInsn, stats.stack, float64(took.Microseconds())/1000)
	r.verdict(check, stats.judge())
}

// refusal is the end of the verifier's log, where the reason stands, for a person to read.
func refusal(err error) string {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err.Error()
	}
	tail := ve.Log[max(0, len(ve.Log)-verifierLogTail):]
	return fmt.Sprintf("refused: %v; the verifier's last %d of %d lines:\n  %s",
		ve.Cause, len(tail), len(ve.Log), strings.Join(tail, "\n  "))
}

func sortedPrograms(spec *ebpf.CollectionSpec) []string {
	var names []string
	for name := range spec.Programs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// smallMap is the size that maps are made with here: the verifier does not care, and the machine
// has little memory.
const smallMap = 1024

// sharedMaps are the pinned maps of all objects, by name, made once.
type sharedMaps map[string]*ebpf.Map

// add creates what an object needs and is not there yet, and prepares the object to use it.
func (m sharedMaps) add(spec *ebpf.CollectionSpec) error {
	for name, ms := range spec.Maps {
		if ms.Pinning != ebpf.PinByName {
			continue
		}
		ms.Pinning = ebpf.PinNone
		if ms.Type != ebpf.ProgramArray && ms.Type != ebpf.Array && ms.Type != ebpf.PerCPUArray {
			ms.MaxEntries = min(ms.MaxEntries, smallMap)
		}
		if m[name] != nil {
			continue
		}
		created, err := ebpf.NewMap(ms)
		if err != nil {
			return fmt.Errorf("create map %s: %w", name, err)
		}
		m[name] = created
	}
	return nil
}

// replacements are the shared maps that an object uses.
func (m sharedMaps) replacements(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	used := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if shared := m[name]; shared != nil {
			used[name] = shared
		}
	}
	return used
}

func (m sharedMaps) close() {
	for _, shared := range m {
		shared.Close()
	}
}
