// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// carryLimit puts a program on each pod's veth that hands every packet to the other pod by
// redirect_peer and does nothing else: no parsing, no flow, no translation. No TC dataplane can be
// faster; what ours loses against it is the price of its work.
func carryLimit(_ context.Context, s *site, _ int) (func() error, error) { return limit(s, false) }

// carryLimitTCX is carryLimit attached by TCX links: what the attachment costs.
func carryLimitTCX(_ context.Context, s *site, _ int) (func() error, error) { return limit(s, true) }

// carryConnectLimit is carryLimit with the least that finds services at connect time: one look-up and a
// new address, for destinations of the hooks that connect and send. No flow, no policy, no record of what
// was asked for, so replies are not translated: no dataplane at connect time can be faster.
func carryConnectLimit(_ context.Context, s *site, services int) (func() error, error) {
	closeLimit, err := limit(s, false)
	links, connectErr := connectLimit(s, services)
	return func() error {
		errs := []error{closeLimit()}
		for _, l := range links {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}, errors.Join(err, connectErr)
}

func connectLimit(s *site, services int) (links []link.Link, err error) {
	for _, f := range []family{4, 6} {
		size := uint32(zeroAddr(f).BitLen()/8 + 4)
		table, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bench_limit", Type: ebpf.Hash, KeySize: size, ValueSize: size, MaxEntries: uint32(4 * services)})
		if err != nil {
			return links, fmt.Errorf("create map: %w", err)
		}
		defer table.Close()
		for _, p := range fleet(services, f) {
			if err := table.Put(limitEntry(p.addr, p.port), limitEntry(p.backends[0].addr, p.backends[0].port)); err != nil {
				return links, fmt.Errorf("fill map: %w", err)
			}
		}
		for _, hook := range map[family][]ebpf.AttachType{
			4: {ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupUDP4Sendmsg},
			6: {ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupUDP6Sendmsg},
		}[f] {
			program, err := ebpf.NewProgram(translate(f, hook, table))
			if err != nil {
				return links, fmt.Errorf("load program: %w", err)
			}
			defer program.Close()
			l, err := link.AttachCgroup(link.CgroupOptions{Path: string(s.cgroup), Attach: hook, Program: program})
			if err != nil {
				return links, fmt.Errorf("attach to %s: %w", s.cgroup, err)
			}
			links = append(links, l)
		}
	}
	return links, nil
}

// limitEntry is an address and a port as the hook's context has them.
func limitEntry(a netip.Addr, port uint16) []byte {
	return append(a.AsSlice(), byte(port>>8), byte(port), 0, 0)
}

// translate is the program: if the destination is in the table it becomes what stands there.
func translate(f family, hook ebpf.AttachType, table *ebpf.Map) *ebpf.ProgramSpec {
	// Offsets in struct bpf_sock_addr: user_ip4, or the words of user_ip6; then user_port.
	offsets := []int16{4, 24}
	if f == 6 {
		offsets = []int16{8, 12, 16, 20, 24}
	}
	key := -4 * int16(len(offsets)) // on the stack
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for i, offset := range offsets {
		ins = append(ins, asm.LoadMem(asm.R2, asm.R6, offset, asm.Word), asm.StoreMem(asm.RFP, key+4*int16(i), asm.R2, asm.Word))
	}
	ins = append(ins,
		asm.LoadMapPtr(asm.R1, table.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"))
	for i, offset := range offsets {
		ins = append(ins, asm.LoadMem(asm.R2, asm.R0, 4*int16(i), asm.Word), asm.StoreMem(asm.R6, offset, asm.R2, asm.Word))
	}
	ins = append(ins, asm.Mov.Imm(asm.R0, 1).WithSymbol("out"), asm.Return())
	return &ebpf.ProgramSpec{Name: "bench_limit", Type: ebpf.CGroupSockAddr, AttachType: hook, License: "GPL", Instructions: ins}
}

func limit(s *site, tcx bool) (func() error, error) {
	var links []link.Link
	closer := func() error {
		var errs []error
		for _, l := range links {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}
	if err := s.addRoutes(); err != nil { // for what comes before there is a flow
		return closer, err
	}
	pods := s.pods()
	for i, p := range pods {
		from, err := s.node.nl.LinkByName(p.host)
		if err != nil {
			return closer, err
		}
		to, err := s.node.nl.LinkByName(pods[1-i].host)
		if err != nil {
			return closer, err
		}
		program, err := ebpf.NewProgram(redirectTo(to.Attrs().Index))
		if err != nil {
			return closer, fmt.Errorf("load program: %w", err)
		}
		defer program.Close()
		if !tcx {
			if err := s.node.filter(from.Attrs().Index, program); err != nil {
				return closer, err
			}
			continue
		}
		err = inNamespace(s.node.handle, func() error {
			l, err := link.AttachTCX(link.TCXOptions{Interface: from.Attrs().Index, Program: program, Attach: ebpf.AttachTCXIngress})
			if err == nil {
				links = append(links, l)
			}
			return err
		})
		if err != nil {
			return closer, fmt.Errorf("attach to %s: %w", p.host, err)
		}
	}
	return closer, nil
}

// redirectTo is the program: return bpf_redirect_peer(ifindex, 0).
func redirectTo(ifindex int) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "bench_limit", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(ifindex)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirectPeer.Call(),
			asm.Return(),
		},
	}
}

// filter attaches a program to the ingress hook of an interface by clsact.
func (n *namespace) filter(ifindex int, program *ebpf.Program) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := n.nl.QdiscReplace(qdisc); err != nil {
		return fmt.Errorf("add clsact: %w", err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: "bench_limit", DirectAction: true,
	}
	if err := n.nl.FilterReplace(filter); err != nil {
		return fmt.Errorf("add filter: %w", err)
	}
	return nil
}
