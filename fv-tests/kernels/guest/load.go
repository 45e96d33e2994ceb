// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

// verifierLogTail is how much of a refused program's log is shown.
const verifierLogTail = 25

// runLoad hands every program of every object to this kernel's verifier, one by one, so that a
// refused one hides no other. All share one set of maps, as on a node: a prog_array that does not
// take every program shows here.
func runLoad(r *reporter) {
	r.note("%-15s %-16s %6s %9s %7s %6s %9s %6s %7s", "object", "program", "insns", "verified",
		"states", "peak", "per insn", "stack", "ms")
	wanted, err := regexp.Compile(r.match)
	if err != nil {
		r.verdict("match", err)
		return
	}
	maps := sharedMaps{}
	defer maps.close()
	programs, most := 0, verifierStats{}
	for _, name := range objects.Names() {
		spec, err := objects.Spec(name)
		if err == nil {
			err = maps.add(spec)
		}
		r.verdict(name+" maps", err)
		if err != nil {
			continue
		}
		for _, program := range sortedPrograms(spec) {
			if !wanted.MatchString(name + "/" + program) {
				continue
			}
			programs++
			r.check(name+" "+program, func() error {
				stats, err := loadProgram(r, maps, spec, name, program)
				most.raise(stats)
				return err
			})
		}
	}
	r.note("%d programs; the most that one takes: %d of %d instructions walked (%d %%), %d of %d long (%d %%)", programs,
		most.verified, maxVerified, 100*most.verified/maxVerified,
		most.instructions, maxJumpDistance, 100*most.instructions/maxJumpDistance)
	if programs == 0 {
		r.verdict("objects", errors.New("the guest was built without BPF objects: run `make build` first"))
	}
}

// loadProgram loads one program of an object with the constants that an agent sets on this kernel:
// the verifier sees only the code that they leave.
func loadProgram(r *reporter, maps sharedMaps, spec *ebpf.CollectionSpec, object, program string) (verifierStats, error) {
	stats, took, err := loadWith(maps, spec, object, program, ebpf.LogLevelStats)
	if err != nil {
		// Once more, for the instructions that led there.
		if _, _, again := loadWith(maps, spec, object, program, ebpf.LogLevelBranch); again != nil {
			err = again
		}
		r.note("%s", refusal(err))
		return stats, errors.New(reasonOf(err))
	}
	r.note("%-15s %-16s %6d %9d %7d %6d %9d %6s %7.1f", object, program, stats.instructions,
		stats.verified, stats.totalStates, stats.peakStates, stats.statesPerInsn, stats.stack,
		float64(took.Microseconds())/1000)
	return stats, stats.judge()
}

// loadWith loads a single program with its constants set.
func loadWith(maps sharedMaps, spec *ebpf.CollectionSpec, object, program string, log ebpf.LogLevel) (verifierStats, time.Duration, error) {
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	if err := load.SetConstants(one, constantsOf(object)); err != nil {
		return verifierStats{}, 0, err
	}
	start := time.Now()
	coll, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{
		Programs:        ebpf.ProgramOptions{LogLevel: log},
		MapReplacements: maps.replacements(one),
	})
	took := time.Since(start)
	if err != nil {
		return verifierStats{}, took, err
	}
	defer coll.Close()
	stats, err := parseStats(coll.Programs[program].VerifierLog)
	stats.instructions = int(one.Programs[program].Instructions.Size() / asm.InstructionSize)
	return stats, took, err
}

// constantsOf are an object's constants as an agent sets them.
func constantsOf(object string) any {
	switch object {
	case objects.Preamble:
		return layout.PreambleCfg{Main: [2]uint32{0, uint32(layout.SlotStride)}, FailClosed: 1}
	case objects.CTLBV4, objects.CTLBV6, objects.CTLBV46:
		return layout.CTLBConfig{HZ: 250} // without what only newer kernels have
	}
	return loadConfig(kernelFeatures())
}

// loadConfig are the constants as an agent sets them, with logging on: the most code there is.
func loadConfig(features layout.Feature) layout.Config {
	const hz = 250
	return layout.Config{
		JumpBank: uint32(layout.BankStride), MarkShift: 20, HZ: hz,
		ToSYNSent: 20 * hz, ToEstablished: 3600 * hz, ToFINs: 30 * hz, ToReset: 40 * hz,
		ToUDP: 60 * hz, ToGeneric: 600 * hz, ToICMP: 5 * hz, ToTicksShift: 8,
		Features: uint32(features), LogLevel: 1,
	}
}

// kernelFeatures are the features that this kernel has, as the programs know them.
func kernelFeatures() layout.Feature {
	features := layout.FeatRedirectPeer | layout.FeatRedirectNeigh
	if fibFlag(fibSkipNeigh)() == nil {
		features |= layout.FeatFIBSkipNeigh
	}
	return features
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

// closingLines are what the verifier writes after its reason.
var closingLines = regexp.MustCompile(`^(verification time|stack depth|processed) \d`)

// reasonOf is the line of the verifier's log that says why.
func reasonOf(err error) string {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err.Error()
	}
	for i := len(ve.Log) - 1; i >= 0; i-- {
		if !closingLines.MatchString(strings.TrimSpace(ve.Log[i])) {
			return strings.TrimSpace(ve.Log[i])
		}
	}
	return ve.Cause.Error()
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
