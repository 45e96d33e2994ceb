// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// withProgram loads a program for the time of a probe.
func withProgram(spec *ebpf.ProgramSpec, f func(*ebpf.Program) error) error {
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return fmt.Errorf("load probe: %w", err)
	}
	defer prog.Close()
	return f(prog)
}

const loopback = 1 // ifindex of lo in every network namespace

// fibSkipNeigh is BPF_FIB_LOOKUP_SKIP_NEIGH.
const fibSkipNeigh = 1 << 2

// probeTCX attaches an empty program to lo.
func probeTCX() error {
	return withProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}}, func(prog *ebpf.Program) error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// fibFlag calls bpf_fib_lookup with a flag: a kernel that does not know it answers EINVAL before it
// looks at anything else.
func fibFlag(flag int32) func() error {
	const paramsSize = 64 // sizeof(struct bpf_fib_lookup)
	program := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R0, 0)}
	for off := int16(-paramsSize); off < 0; off += 8 {
		program = append(program, asm.StoreMem(asm.RFP, off, asm.R0, asm.DWord))
	}
	program = append(program,
		asm.StoreImm(asm.RFP, -paramsSize, unix.AF_INET, asm.Byte), // family
		asm.StoreImm(asm.RFP, -paramsSize+8, loopback, asm.Word),   // ifindex
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -paramsSize),
		asm.Mov.Imm(asm.R3, paramsSize),
		asm.Mov.Imm(asm.R4, flag),
		asm.FnFibLookup.Call(),
		asm.Return(),
	)
	return func() error {
		return withProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: program}, func(prog *ebpf.Program) error {
			answer, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
			if err != nil {
				return err
			}
			if int32(answer) == -int32(unix.EINVAL) {
				return fmt.Errorf("flag %#x: %w", flag, ebpf.ErrNotSupported)
			}
			return nil
		})
	}
}

// kernelFunc looks for a function in the kernel's BTF: kernel functions that programs may call, and
// the functions that iterators are attached to.
func kernelFunc(name string) func() error {
	return func() error {
		spec, err := btf.LoadKernelSpec()
		if err != nil {
			return err
		}
		var fn *btf.Func
		err = spec.TypeByName(name, &fn)
		if errors.Is(err, btf.ErrNotFound) {
			return fmt.Errorf("%s: %w", name, ebpf.ErrNotSupported)
		}
		return err
	}
}

// probeLPMBatch writes two prefixes by one call.
func probeLPMBatch() error {
	type key struct {
		Prefixlen uint32
		Addr      [4]byte
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 4, MaxEntries: 4, Flags: unix.BPF_F_NO_PREALLOC,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	keys := []key{{32, [4]byte{10, 0, 0, 1}}, {8, [4]byte{10}}}
	if _, err := m.BatchUpdate(keys, []uint32{1, math.MaxUint32}, nil); err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	got, values := make([]key, 4), make([]uint32, 4)
	n, err := m.BatchLookup(&cursor, got, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if n != len(keys) {
		return fmt.Errorf("batch lookup returned %d of %d entries", n, len(keys))
	}
	return nil
}
