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
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// A build mode carries services by objects from a directory, loaded without an agent. It answers
// "what does this change to the datapath cost?": builds stand side by side in one run.

// buildMode is given by -build name=directory. tcx:directory attaches by TCX instead of clsact;
// ctlb:directory finds services at connect time; both may stand before a directory.
type buildMode struct {
	dir  string // of the objects
	tcx  bool
	ctlb bool
}

func parseBuild(text string) buildMode {
	m := buildMode{dir: text}
	for {
		kind, rest, _ := strings.Cut(m.dir, ":")
		switch kind {
		case "tcx":
			m.tcx = true
		case "ctlb":
			m.ctlb = true
		default:
			return m
		}
		m.dir = rest
	}
}

func (m buildMode) by() mechanism {
	if m.ctlb {
		return byConnect
	}
	return byPacket
}

// hand is a datapath that was put in place by hand.
type hand struct {
	buildMode
	bpffs   string
	set     *maps.Set
	clock   *features.Clock
	closers []func() error
}

func (m buildMode) carry(_ context.Context, s *site, services int) (func() error, error) {
	h := &hand{buildMode: m}
	err := errors.Join(s.addRoutes(), h.open())
	s.bpffs = h.bpffs
	return h.close, errors.Join(err, h.install(), h.fill(s, services), h.attach(s), h.attachConnect(s))
}

// open mounts a bpffs and makes the maps.
func (h *hand) open() (err error) {
	if h.bpffs, err = makeDir("build"); err != nil {
		return err
	}
	if err := unix.Mount("bpf", h.bpffs, "bpf", 0, ""); err != nil {
		return fmt.Errorf("mount bpffs: %w", err)
	}
	if h.set, err = maps.Open(h.bpffs, maps.Options{Sizes: maps.Sizes{Conntrack: conntrackSize}}); err != nil {
		return err
	}
	h.clock, err = features.OpenClock()
	return err
}

func (h *hand) close() error {
	for _, c := range h.closers {
		_ = c()
	}
	if h.clock != nil {
		h.clock.Close()
	}
	if h.set != nil {
		h.set.Close()
	}
	if h.bpffs == "" {
		return nil
	}
	return errors.Join(unix.Unmount(h.bpffs, unix.MNT_DETACH), os.Remove(h.bpffs))
}

func (h *hand) load(name string, constants any) (*load.Object, error) {
	spec, err := ebpf.LoadCollectionSpec(filepath.Join(h.dir, name+".o"))
	if err != nil {
		return nil, err
	}
	return load.Spec(name, spec, constants, h.set.Raw())
}

// slots are the programs of a variant and where they stand, by the programs' names.
var slots = func() map[string]layout.Slot {
	all := map[string]layout.Slot{}
	for slot := layout.SlotMain; slot < layout.SlotStride; slot++ {
		all[programPrefix+strings.ReplaceAll(slot.String(), "-", "_")] = slot
	}
	return all
}()

// install loads the programs of workloads, the only ones that the measured packets meet.
func (h *hand) install() error {
	if h.set == nil || h.clock == nil {
		return nil // open has said why
	}
	hz := h.clock.HZ
	cfg := layout.Config{
		MarkShift: 20, HZ: hz, ToSYNSent: 20 * hz, ToEstablished: 3600 * hz, ToFINs: 30 * hz, ToReset: 40 * hz,
		ToUDP: 60 * hz, ToGeneric: 600 * hz, ToICMP: 5 * hz, ToTicksShift: 8,
		Features: uint32(layout.FeatRedirectPeer | layout.FeatRedirectNeigh | layout.FeatFIBSkipNeigh),
	}
	policies, err := h.load(objects.Policy, cfg)
	if err != nil {
		return err
	}
	defer policies.Close()
	err = errors.Join(
		h.set.Policy.Set(uint32(layout.PolicyDeny), policies.Programs[load.PolicyDenyProgram]),
		h.set.Policy.Set(uint32(layout.PolicyAllow), policies.Programs[load.PolicyAllowProgram]),
	)
	for _, v := range variants.All() {
		if v.Class != layout.ClassWEP || err != nil {
			continue
		}
		o, loadErr := h.load(v.Name(), cfg)
		if loadErr != nil {
			return loadErr
		}
		for name, p := range o.Programs {
			slot, known := slots[name]
			if !known {
				err = errors.Join(err, fmt.Errorf("%s: program %s has no slot", v, name))
				continue
			}
			err = errors.Join(err, h.set.Jump.Set(v.Slot(slot), p))
		}
		o.Close()
	}
	return err
}

const wepFlags = uint32(layout.IFFReady | layout.IFFManaged | layout.IFFV4 | layout.IFFV6)

// attach puts preambles on both hooks of the workloads' interfaces.
func (h *hand) attach(s *site) error {
	if h.clock == nil {
		return nil
	}
	return inNamespace(s.node.handle, func() error {
		a, err := attach.New(attach.Options{Root: h.bpffs, Maps: h.set.Raw, Type: attach.TC})
		if err != nil {
			return err
		}
		defer a.Close()
		for i, pod := range s.pods() {
			link, err := s.node.nl.LinkByName(pod.host)
			if err != nil {
				return err
			}
			where := attach.Interface{Ifindex: link.Attrs().Index, Name: pod.host, Class: layout.ClassWEP}
			for _, hook := range variants.Hooks {
				cfg := layout.PreambleCfg{
					IfaceSlot: uint32(i + 1), Flags: wepFlags, EPSlot: uint32(i + 1), Hook: uint32(hook), FailClosed: 1,
					Policy: [2]uint32{uint32(layout.PolicyAllow), uint32(layout.PolicyAllow)},
				}
				for j, f := range variants.Families {
					cfg.Main[j] = variants.Variant{Hook: hook, Class: layout.ClassWEP, Family: f}.Slot(layout.SlotMain)
				}
				o, err := h.load(objects.Preamble, cfg)
				if err != nil {
					return err
				}
				defer o.Close()
				if h.tcx && hook == layout.HookIngress {
					err = h.attachTCX(where.Ifindex, o.Programs[load.PreambleProgram])
				} else {
					err = a.AttachProgram(where, hook, o.Programs[load.PreambleProgram])
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (h *hand) attachTCX(ifindex int, program *ebpf.Program) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("attach by tcx: %w", err)
	}
	h.closers = append(h.closers, l.Close)
	return nil
}

// fill writes what an agent would: globals, the pods' routes, the services.
func (h *hand) fill(s *site, services int) error {
	if h.clock == nil {
		return nil
	}
	err := h.set.Globals.Change(func(g *layout.Globals) {
		g.RouteEpoch, g.PodMTU, g.TunnelMTU, g.VNI, g.VXLANPortBE = 1, 1500, 1450, 4096, layout.PortBE(4789)
		g.PSNATStart, g.PSNATCount = 20000, 10000
		g.HostIP4, g.HostIP6 = layout.AnyFrom(nodeAddr[4]).W[0], layout.AnyFrom(nodeAddr[6]).W
		g.Flags = uint32(layout.GFV4 | layout.GFV6)
		if h.ctlb {
			g.Flags |= uint32(layout.GFCTLB)
		}
	})
	if err != nil {
		return err
	}
	for i, pod := range s.pods() {
		link, err := s.node.nl.LinkByName(pod.host)
		if err != nil {
			return err
		}
		index, slot := uint32(link.Attrs().Index), uint32(i+1)
		iface := layout.IfaceValue{Flags: wepFlags, IfaceSlot: slot, EPSlot: slot, Policy: [4]uint32{1, 1, 1, 1}}
		copy(iface.Name[:], pod.host)
		if err := h.set.Interfaces.Put(index, iface); err != nil {
			return err
		}
		route := maps.Route{Flags: layout.RTLocal | layout.RTWorkload | layout.RTPool, Ifindex: index, EPSlot: slot}
		for _, a := range pod.addrs {
			if err := h.set.Routes.Put(netip.PrefixFrom(a, a.BitLen()), route); err != nil {
				return err
			}
		}
	}
	return fillServices(h.set, services, 1, nil)
}

// attachConnect puts the programs at connect time on the site's cgroup.
func (h *hand) attachConnect(s *site) error {
	if h.clock == nil || !h.ctlb {
		return nil
	}
	cookie, err := s.node.cookie()
	if err != nil {
		return err
	}
	cg, err := attach.NewCgroup(string(s.cgroup), h.bpffs)
	if err != nil {
		return err
	}
	cfg := layout.CTLBConfig{
		HostNetNS: cookie, HZ: h.clock.HZ, Flags: uint32(layout.CTLBUDP | layout.CTLBSetRetval | layout.CTLBNetNSCookie),
	}
	loaded := map[string]*load.Object{}
	for _, hook := range load.CgroupHooks() {
		if loaded[hook.Object] == nil {
			o, err := h.load(hook.Object, cfg)
			if err != nil {
				return err
			}
			defer o.Close()
			loaded[hook.Object] = o
		}
		program := loaded[hook.Object].Programs[hook.Program]
		if program == nil {
			return fmt.Errorf("%s: it has no program %s", hook.Object, hook.Program)
		}
		if _, err := cg.Attach(hook, program); err != nil {
			return err
		}
	}
	return nil
}

// cookie is what BPF programs know the namespace by.
func (n *namespace) cookie() (cookie uint64, err error) {
	err = inNamespace(n.handle, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cookie of network namespace %s: %w", n.name, err)
	}
	return cookie, nil
}
