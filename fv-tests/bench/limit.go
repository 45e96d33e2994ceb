// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

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
