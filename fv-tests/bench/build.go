// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// A build mode carries services by objects from a directory, loaded by hand and without an agent. It
// answers "what does this change to the datapath cost?": two builds stand side by side in one run.

// buildMode is given by -build name=directory.
type buildMode struct {
	dir string
}

// hand is a datapath that was put in place by hand.
type hand struct {
	dir     string // of the objects
	bpffs   string
	maps    map[string]*ebpf.Map
	closers []func() error
}

func (m buildMode) carry(_ context.Context, s *site, services int) (func() error, error) {
	h := &hand{dir: m.dir, maps: map[string]*ebpf.Map{}}
	if err := s.addRoutes(); err != nil {
		return h.close, err
	}
	var err error
	if h.bpffs, err = makeDir("build"); err != nil {
		return h.close, err
	}
	if err := unix.Mount("bpf", h.bpffs, "bpf", 0, ""); err != nil {
		return h.close, fmt.Errorf("mount bpffs: %w", err)
	}
	for _, v := range variants.All() {
		if v.Class == layout.ClassWEP {
			if err := h.variant(v); err != nil {
				return h.close, fmt.Errorf("variant %s: %w", v, err)
			}
		}
	}
	if err := h.policies(); err != nil {
		return h.close, fmt.Errorf("policies: %w", err)
	}
	if err := h.fill(s, services); err != nil {
		return h.close, fmt.Errorf("fill maps: %w", err)
	}
	for slot, host := range []string{clientVeth, serverVeth} {
		if err := h.attach(s.node, host, uint32(slot+1)); err != nil {
			return h.close, fmt.Errorf("attach to %s: %w", host, err)
		}
	}
	return h.close, nil
}

func (h *hand) close() error {
	var errs []error
	for _, c := range h.closers {
		errs = append(errs, c())
	}
	for _, m := range h.maps {
		errs = append(errs, m.Close())
	}
	if h.bpffs != "" {
		errs = append(errs, unix.Unmount(h.bpffs, unix.MNT_DETACH), os.Remove(h.bpffs))
	}
	return errors.Join(errs...)
}

// load loads one object; its maps are shared with the others by their pins.
func (h *hand) load(name string, constants any) (*ebpf.Collection, error) {
	spec, err := ebpf.LoadCollectionSpec(filepath.Join(h.dir, name+".o"))
	if err != nil {
		return nil, err
	}
	for name, m := range spec.Maps {
		if strings.HasSuffix(name, "_ct3") {
			m.MaxEntries = conntrackSize
		}
	}
	if v := spec.Variables["CFG"]; v != nil && constants != nil {
		if err := v.Set(constants); err != nil {
			return nil, fmt.Errorf("set constants: %w", err)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: h.bpffs}})
	if err != nil {
		return nil, err
	}
	for name, m := range c.Maps {
		if h.maps[name] == nil && strings.HasPrefix(name, "cali_") {
			h.maps[name] = m
			delete(c.Maps, name)
		}
	}
	h.closers = append(h.closers, func() error { c.Close(); return nil })
	return c, nil
}

// slots are the programs of a variant and where they stand.
var slots = map[string]layout.Slot{
	"cali_main": layout.SlotMain, "cali_new_flow": layout.SlotNewFlow, "cali_accepted": layout.SlotAccepted,
	"cali_icmp": layout.SlotICMP, "cali_icmp_inner": layout.SlotICMPInner, "cali_rst": layout.SlotRST,
	"cali_drop": layout.SlotDrop,
}

const kernelHZ = 250 // builds are compared on one machine; the agent finds the rate out

func (h *hand) variant(v variants.Variant) error {
	c, err := h.load(v.Name(), layout.Config{
		MarkShift: 20, HZ: kernelHZ, ToSYNSent: 20 * kernelHZ, ToEstablished: 3600 * kernelHZ, ToFINs: 30 * kernelHZ,
		ToReset: 40 * kernelHZ, ToUDP: 60 * kernelHZ, ToGeneric: 600 * kernelHZ, ToICMP: 5 * kernelHZ, ToTicksShift: 8,
		Features: 7,
	})
	if err != nil {
		return err
	}
	for name, slot := range slots {
		p := c.Programs[name]
		if p == nil {
			return fmt.Errorf("no program %s", name)
		}
		if err := h.maps["cali_jump2"].Put(v.Slot(slot), p); err != nil {
			return err
		}
	}
	return nil
}

func (h *hand) policies() error {
	c, err := h.load("policy", nil)
	if err != nil {
		return err
	}
	return errors.Join(
		h.maps["cali_policy2"].Put(uint32(layout.PolicyDeny), c.Programs["cali_policy_deny"]),
		h.maps["cali_policy2"].Put(uint32(layout.PolicyAllow), c.Programs["cali_policy_allow"]),
	)
}

const wepFlags = uint32(layout.IFFReady | layout.IFFManaged | layout.IFFV4 | layout.IFFV6)

// attach puts preambles on both hooks of a workload's interface.
func (h *hand) attach(node *namespace, host string, slot uint32) error {
	link, err := node.nl.LinkByName(host)
	if err != nil {
		return err
	}
	attrs := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := node.nl.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil {
		return fmt.Errorf("clsact: %w", err)
	}
	for hook, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		cfg := layout.PreambleCfg{
			IfaceSlot: slot, Flags: wepFlags, EPSlot: slot, Hook: uint32(hook), FailClosed: 1,
			Policy: [2]uint32{uint32(layout.PolicyAllow), uint32(layout.PolicyAllow)},
		}
		for i, f := range variants.Families {
			cfg.Main[i] = variants.Variant{Hook: layout.Hook(hook), Class: layout.ClassWEP, Family: f}.Slot(layout.SlotMain)
		}
		c, err := h.load("preamble", cfg)
		if err != nil {
			return err
		}
		filter := &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: parent, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:          c.Programs["cali_preamble"].FD(), Name: "cali_preamble", DirectAction: true,
		}
		if err := node.nl.FilterReplace(filter); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	return nil
}

// fill writes what an agent would: globals, the pods' routes, the services.
func (h *hand) fill(s *site, services int) error {
	g := layout.Globals{
		RouteEpoch: 1, PodMTU: 1500, TunnelMTU: 1450, VNI: 4096, VXLANPortBE: layout.PortBE(4789),
		PSNATStart: 20000, PSNATCount: 10000, HostIP4: layout.AnyFrom(nodeAddr[4]).W[0], HostIP6: layout.AnyFrom(nodeAddr[6]).W,
		Flags: uint32(layout.GFV4 | layout.GFV6),
	}
	if err := h.maps["cali_globals2"].Put(uint32(0), g); err != nil {
		return err
	}
	for slot, pod := range []struct {
		host  string
		addrs []netip.Addr
	}{
		{clientVeth, append(clientSources(4), clientSources(6)...)},
		{serverVeth, []netip.Addr{serverAddr[4], serverAddr[6]}},
	} {
		link, err := s.node.nl.LinkByName(pod.host)
		if err != nil {
			return err
		}
		value := layout.RouteValue{
			Flags:   uint32(layout.RTLocal | layout.RTWorkload | layout.RTPool),
			Ifindex: uint32(link.Attrs().Index), EPSlot: uint32(slot + 1),
		}
		for _, a := range pod.addrs {
			if err := h.route(netip.PrefixFrom(a, a.BitLen()), value); err != nil {
				return err
			}
		}
		iface := layout.IfaceValue{Flags: wepFlags, IfaceSlot: uint32(slot + 1), EPSlot: uint32(slot + 1), Policy: [4]uint32{1, 1, 1, 1}}
		copy(iface.Name[:], pod.host)
		if err := h.maps["cali_iface2"].Put(uint32(link.Attrs().Index), iface); err != nil {
			return err
		}
	}
	if err := fillServices[layout.AddrV4](h, fleet(services, 4)); err != nil {
		return err
	}
	return fillServices[layout.AddrV6](h, fleet(services, 6))
}

func (h *hand) route(p netip.Prefix, v layout.RouteValue) error {
	if p.Addr().Is4() {
		a, err := layout.AddrFrom[layout.AddrV4](p.Addr())
		if err != nil {
			return err
		}
		return h.maps["cali_v4_routes"].Put(layout.RouteKeyV4{Prefixlen: uint32(p.Bits()), Addr: a}, v)
	}
	a, err := layout.AddrFrom[layout.AddrV6](p.Addr())
	if err != nil {
		return err
	}
	return h.maps["cali_v6_routes"].Put(layout.RouteKeyV6{Prefixlen: uint32(p.Bits()), Addr: a}, v)
}

func fillServices[A layout.Address](h *hand, ports []servicePort) error {
	var a A
	prefix := "cali_" + a.Family().String() + "_"
	for i, p := range ports {
		id := uint32(i + 1)
		for j, be := range p.backends {
			addr, err := layout.AddrFrom[A](be.addr)
			if err != nil {
				return err
			}
			value := layout.BEValue[A]{Addr: addr, PortBE: layout.PortBE(be.port), ID: uint32(j + 1), Weight: 1}
			if err := h.maps[prefix+"nat_be"].Put(layout.BEKey{SvcID: id, Ordinal: uint32(j)}, value); err != nil {
				return err
			}
		}
		addr, err := layout.AddrFrom[A](p.addr)
		if err != nil {
			return err
		}
		key := layout.FEKey[A]{Addr: addr, PortBE: layout.PortBE(p.port), Proto: p.proto}
		if err := h.maps[prefix+"nat_fe3"].Put(key, layout.FEValue{SvcID: id, ClusterCount: uint32(len(p.backends))}); err != nil {
			return err
		}
	}
	return nil
}

