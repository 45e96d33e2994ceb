// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ForeignProgram is a BPF program of somebody else on one of the agent's hooks: it counts its runs and
// passes everything on.
type ForeignProgram struct {
	runs    *ebpf.Map
	program *ebpf.Program
	links   []link.Link
	filters []netlink.Filter
	ns      Namespace
}

// newForeignProgram loads a program that counts and returns a verdict.
func newForeignProgram(typ ebpf.ProgramType, attach ebpf.AttachType, verdict int32) (*ForeignProgram, error) {
	runs, err := ebpf.NewMap(&ebpf.MapSpec{Name: "foreign_runs", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("foreign program: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: typ, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, runs.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "pass"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("pass"),
			asm.Return(),
		},
	})
	if err != nil {
		runs.Close()
		return nil, fmt.Errorf("foreign program: %w", err)
	}
	return &ForeignProgram{runs: runs, program: program}, nil
}

// Runs is how often the program has run.
func (f *ForeignProgram) Runs() (uint64, error) {
	var n uint64
	if err := f.runs.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("foreign program: %w", err)
	}
	return n, nil
}

// Close detaches the program.
func (f *ForeignProgram) Close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	if f.filters != nil {
		errs = append(errs, f.withHandle(func(h *netlink.Handle) error {
			var errs []error
			for _, filter := range f.filters {
				errs = append(errs, h.FilterDel(filter))
			}
			return errors.Join(errs...)
		}))
	}
	return errors.Join(append(errs, f.program.Close(), f.runs.Close())...)
}

func (f *ForeignProgram) withHandle(fn func(*netlink.Handle) error) error {
	h, err := f.ns.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

// ForeignTCX attaches a foreign program to both TCX hooks of an interface of the node, in front of all
// others or behind them.
func (n *Node) ForeignTCX(dev string, first bool) (*ForeignProgram, error) {
	f, err := newForeignProgram(ebpf.SchedCLS, ebpf.AttachNone, -1)
	if err != nil {
		return nil, err
	}
	err = n.Namespace.Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			anchor := link.Tail()
			if first {
				anchor = link.Head()
			}
			l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: f.program, Attach: hook, Anchor: anchor})
			if err != nil {
				return err
			}
			f.links = append(f.links, l)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("foreign TCX program on %s: %w", dev, err), f.Close())
	}
	return f, nil
}

// ForeignFilter attaches a foreign program as a clsact filter to both hooks of an interface of the node,
// with a priority of its own.
func (n *Node) ForeignFilter(dev string, priority uint16) (*ForeignProgram, error) {
	f, err := newForeignProgram(ebpf.SchedCLS, ebpf.AttachNone, -1)
	if err != nil {
		return nil, err
	}
	f.ns = n.Namespace
	err = f.withHandle(func(h *netlink.Handle) error {
		dev, err := h.LinkByName(dev)
		if err != nil {
			return err
		}
		index := dev.Attrs().Index
		err = h.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(math.MaxUint16, 0), Parent: netlink.HANDLE_CLSACT,
		}})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filter := &netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{
					LinkIndex: index, Parent: parent, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL,
				},
				Fd: f.program.FD(), Name: "foreign", DirectAction: true,
			}
			if err := h.FilterAdd(filter); err != nil {
				return err
			}
			f.filters = append(f.filters, filter)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("foreign filter on %s: %w", dev, err), f.Close())
	}
	return f, nil
}

// ForeignConnect attaches a foreign program to the connect hook of the node's cgroup, beside the agent's.
func (n *Node) ForeignConnect(ipv6 bool) (*ForeignProgram, error) {
	hook := ebpf.AttachCGroupInet4Connect
	if ipv6 {
		hook = ebpf.AttachCGroupInet6Connect
	}
	f, err := newForeignProgram(ebpf.CGroupSockAddr, hook, 1)
	if err != nil {
		return nil, err
	}
	cg, err := n.cgroup()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: string(cg), Attach: hook, Program: f.program})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("foreign cgroup program on %s: %w", n.Name, err), f.Close())
	}
	f.links = append(f.links, l)
	return f, nil
}
