// SPDX-License-Identifier: Apache-2.0

package features

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// probes is the one table of features. since is the first upstream release.
var probes = []struct {
	name  Feature
	since string
	use   string
	probe func() error
}{
	{TCX, "6.6", "attaches host interfaces by links; else by clsact filters", haveTCX},
	{RedirectPeer, "5.10", "hands packets straight into a local pod; else by its veth", helper(ebpf.SchedCLS, asm.FnRedirectPeer)},
	{RedirectNeigh, "5.10", "hands packets straight to the next hop; else by the stack", helper(ebpf.SchedCLS, asm.FnRedirectNeigh)},
	{FIBSkipNeigh, "6.3", "looks routes up without the neighbour; else with it", fibFlag(fibSkipNeigh)},
	{FIBTableID, "6.5", "looks routes up in another table", fibFlag(fibDirect | fibTableID)},
	{FIBSource, "6.7", "lets the kernel choose a source address", fibFlag(fibSource)},
	{FIBMark, "6.10", "looks routes up by mark", fibFlag(fibMark)},
	{CheckMTU, "5.12", "asks the kernel for the size of a packet's segments", helper(ebpf.SchedCLS, asm.FnCheckMtu)},
	{CoarseClock, "5.11", "a cheap clock in nanoseconds; jiffies serve without it", helper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs)},
	{BatchHash, "5.6", "writes hash tables by batches; else entry by entry", batch(ebpf.Hash, 0)},
	{BatchLPM, "5.16", "writes route tables by batches; else entry by entry", batch(ebpf.LPMTrie, unix.BPF_F_NO_PREALLOC)},
	{RingBuffer, "5.8", "events", func() error { return features.HaveMapType(ebpf.RingBuf) }},
	{Loop, "5.17", "loops of the program's own length", helper(ebpf.SchedCLS, asm.FnLoop)},
	{ForEachMapElem, "5.13", "walks a map in the kernel", helper(ebpf.SchedCLS, asm.FnForEachMapElem)},
	{Timer, "5.15", "timers in maps", helper(ebpf.SchedCLS, asm.FnTimerInit)},
	{NetnsCookieTC, "6.13", "tells pods apart at TC by namespace", helper(ebpf.SchedCLS, asm.FnGetNetnsCookie)},
	{CgroupSockAddr, "4.17", "balances at connect time", func() error { return features.HaveProgramType(ebpf.CGroupSockAddr) }},
	{CTLBConnect, "4.17", "balances sockets that connect; else by packet",
		cgroupHook(ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect)},
	{CTLBSendmsg, "4.18", "balances UDP sockets that do not connect; else by packet",
		cgroupHook(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP6Sendmsg)},
	{CTLBRecvmsg, "5.2", "shows balanced UDP sockets the service; UDP goes by packet without it",
		cgroupHook(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Recvmsg, ebpf.AttachCGroupUDP6Recvmsg)},
	{CTLBGetpeername, "5.8", "shows the service as the peer; else the backend is shown",
		cgroupHook(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername)},
	{CTLBSockRelease, "5.9", "removes what a closed socket leaves; else the oldest makes room",
		cgroupHook(ebpf.CGroupSock, ebpf.AttachCgroupInetSockRelease)},
	{CTLBPostBind, "4.17", "keeps host processes off NodePorts",
		cgroupHook(ebpf.CGroupSock, ebpf.AttachCGroupInet4PostBind, ebpf.AttachCGroupInet6PostBind)},
	// The helper is of 5.18, these hooks have it since 6.1.
	{SetRetval, "6.1", "refuses a connect with the right error; else packets are answered",
		helper(ebpf.CGroupSockAddr, asm.FnSetRetval)},
	{NetnsCookie, "5.7", "tells pods apart at connect time by namespace", helper(ebpf.CGroupSockAddr, asm.FnGetNetnsCookie)},
	{XDPLoadBytes, "5.18", "reads packets of several buffers at the driver", helper(ebpf.XDP, asm.FnXdpLoadBytes)},
	{OpenIterators, "6.4", "loops of the program's own length, checked better", kernelFunction("bpf_iter_num_new")},
	{SocketDestroy, "6.5", "ends connections to backends that are gone; else by netlink", kernelFunction("bpf_sock_destroy")},
	{SocketIterators, "5.9", "finds connections to backends that are gone", kernelFunction("bpf_iter_tcp")},
}

func helper(t ebpf.ProgramType, f asm.BuiltinFunc) func() error {
	return func() error {
		err := features.HaveProgramHelper(t, f)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("helper %v: %w", f, ebpf.ErrNotSupported)
		}
		return err
	}
}

// haveTCX attaches to an interface that does not exist: a kernel that knows TCX says so.
func haveTCX() error {
	program, err := returning(0)
	if err != nil {
		return err
	}
	defer program.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1<<31 - 1, Program: program, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// cgroupHook loads an empty program for each of some hooks: a kernel that does not know one refuses it.
func cgroupHook(t ebpf.ProgramType, hooks ...ebpf.AttachType) func() error {
	return func() error {
		for _, hook := range hooks {
			program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: t, AttachType: hook, License: "Dual BSD/GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
			if errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("hook %v: %w", hook, ebpf.ErrNotSupported)
			}
			if err != nil {
				return err
			}
			program.Close()
		}
		return nil
	}
}

func returning(value int32) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, value), asm.Return()},
	})
}

// batch tries one batch update on a map of the type.
func batch(t ebpf.MapType, flags uint32) func() error {
	return func() error {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: t, KeySize: 8, ValueSize: 4, MaxEntries: 1, Flags: flags})
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = m.BatchUpdate(make([][8]byte, 1), make([]uint32, 1), nil)
		return err
	}
}

// Flags of bpf_fib_lookup, BPF_FIB_LOOKUP_* of linux/bpf.h.
const (
	fibDirect    = 1 << 0
	fibSkipNeigh = 1 << 2
	fibTableID   = 1 << 3
	fibSource    = 1 << 4
	fibMark      = 1 << 5
)

// fibParams is the size of struct bpf_fib_lookup.
const fibParams = 64

// fibFlag runs a route lookup with the flags: a kernel that does not know one answers EINVAL.
func fibFlag(flags int32) func() error {
	return func() error {
		instructions := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R2, 0)}
		for offset := int16(-fibParams); offset < 0; offset += 8 {
			instructions = append(instructions, asm.StoreMem(asm.RFP, offset, asm.R2, asm.DWord))
		}
		instructions = append(instructions,
			asm.StoreImm(asm.RFP, -fibParams, unix.AF_INET, asm.Byte),
			asm.StoreImm(asm.RFP, -fibParams+8, 1, asm.Word), // ifindex of the loopback
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -fibParams),
			asm.Mov.Imm(asm.R3, fibParams),
			asm.Mov.Imm(asm.R4, flags),
			asm.FnFibLookup.Call(),
			asm.Return(),
		)
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: instructions})
		if err != nil {
			return err
		}
		defer program.Close()
		result, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		if err != nil {
			return err
		}
		if unix.Errno(-int32(result)) == unix.EINVAL {
			return fmt.Errorf("route lookup with flags %#x: %w", flags, ebpf.ErrNotSupported)
		}
		return nil
	}
}

// Functions of the kernel that are looked for by name.
var kernelFunctions = []string{"bpf_iter_num_new", "bpf_sock_destroy", "bpf_iter_tcp"}

// kernelFunction says whether the kernel has one of kernelFunctions.
func kernelFunction(name string) func() error {
	return func() error {
		have, err := haveKernelFunctions()
		if err != nil {
			return err
		}
		if !have[name] {
			return fmt.Errorf("kernel function %s: %w", name, ebpf.ErrNotSupported)
		}
		return nil
	}
}

// haveKernelFunctions looks for the names in the kernel's BTF as bytes: enough to see whether they are
// there, and a hundred times cheaper than to parse it. Some megabytes are read, once, and not kept.
var haveKernelFunctions = sync.OnceValues(func() (map[string]bool, error) {
	names, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("kernel without BTF: %w", ebpf.ErrNotSupported)
	}
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, name := range kernelFunctions {
		have[name] = bytes.Contains(names, []byte("\x00"+name+"\x00"))
	}
	return have, nil
})
