// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
)

// Promote moves a workload's ingress hook, where every packet of the pod enters, from clsact to TCX:
// the kernel spends less before the program runs, 2 to 3 % of an established round trip. To attach to
// TCX waits for an RCU grace period under rtnl, some 10 ms, which is why workloads start on clsact and
// are promoted one by one when nothing else is to be done. It reports whether anything was changed.
//
// The program is attached without a link: like a clsact filter it needs no pin and stays when pins are
// lost. For a moment both run; the second sees what the first has judged.
func (a *Attacher) Promote(i Interface) (bool, error) {
	if !a.CanPromote(i.Class) {
		return false, nil
	}
	const hook = layout.HookIngress
	filter, err := a.ourFilter(i, hook)
	if err != nil || filter == nil {
		return false, gone(err)
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(filter.Id))
	if err != nil {
		return false, fmt.Errorf("promote %s of %v: open its program: %w", hook, i, err)
	}
	defer program.Close()
	if err := a.attachRaw(i, hook, program); err != nil {
		return false, fmt.Errorf("promote %s of %v: %w", hook, i, gone(err))
	}
	if err := a.detachFilter(i, hook); err != nil {
		return true, fmt.Errorf("promote %s of %v: %w", hook, i, gone(err))
	}
	return true, nil
}

// CanPromote reports whether interfaces of a class have a hook that Promote would move.
func (a *Attacher) CanPromote(class layout.Class) bool { return a.tcx && class == layout.ClassWEP }

// attachRaw attaches a program to TCX without a link, first of all, or in place of ours.
func (a *Attacher) attachRaw(i Interface, hook layout.Hook, program *ebpf.Program) error {
	anchor := link.Head()
	current, found, err := a.rawProgram(i, hook)
	if err != nil {
		return err
	}
	if found {
		old, err := ebpf.NewProgramFromID(current)
		if err != nil {
			return fmt.Errorf("open tcx program %d: %w", current, err)
		}
		defer old.Close()
		anchor = link.ReplaceProgram(old)
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: i.Ifindex, Program: program, Attach: attachType(hook), Anchor: anchor,
	})
	if err != nil {
		return fmt.Errorf("tcx: %w", err)
	}
	return nil
}

// rawProgram is our preamble on a TCX hook that was attached without a link. It is looked for also
// where TCX is not to be used: it may be left from when it was.
func (a *Attacher) rawProgram(i Interface, hook layout.Hook) (ebpf.ProgramID, bool, error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: i.Ifindex, Attach: attachType(hook)})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return 0, false, nil // a kernel without TCX
	}
	if err != nil {
		return 0, false, fmt.Errorf("query tcx: %w", err)
	}
	for _, p := range attached.Programs {
		if id, linked := p.LinkID(); linked && id != 0 {
			continue
		}
		program, err := ebpf.NewProgramFromID(p.ID)
		if errors.Is(err, os.ErrNotExist) {
			continue // another's, gone by now
		}
		if err != nil {
			return 0, false, fmt.Errorf("open tcx program %d: %w", p.ID, err)
		}
		info, err := program.Info()
		program.Close()
		if err != nil {
			return 0, false, fmt.Errorf("tcx program %d: %w", p.ID, err)
		}
		if info.Name == load.PreambleProgram {
			return p.ID, true, nil
		}
	}
	return 0, false, nil
}

// detachRaw takes our linkless program off a TCX hook; that there is none is no error.
func (a *Attacher) detachRaw(i Interface, hook layout.Hook) error {
	id, found, err := a.rawProgram(i, hook)
	if err != nil || !found {
		return err
	}
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return fmt.Errorf("open tcx program %d: %w", id, err)
	}
	defer program.Close()
	err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: i.Ifindex, Program: program, Attach: attachType(hook)})
	if err != nil {
		return fmt.Errorf("detach from tcx: %w", err)
	}
	return nil
}
