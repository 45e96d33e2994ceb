// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/jump"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// dataplane is one node's maps and programs, set up as an agent does it but from the smoke test's
// own plan: what fails here is the datapath or the kernel, not the agent's calculations.
type dataplane struct {
	set   *maps.Set
	feats *features.Set
	hz    uint32
}

// startDataplane makes the node's maps, loads and installs a generation of programs, fills the maps
// and attaches a preamble to both hooks of every interface.
func (n *node) startDataplane(w *world) error {
	root := filepath.Join(bpffsPath, n.name)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	set, err := maps.Open(root, maps.Options{Sizes: smallMaps, Log: logrus.StandardLogger()})
	if err != nil {
		return err
	}
	n.dp = &dataplane{set: set}
	if n.dp.feats, err = features.Probe(nil); err != nil {
		return err
	}
	if err := n.dp.install(); err != nil {
		return err
	}
	if err := n.fill(w); err != nil {
		return err
	}
	return n.ns.do(func() error { return n.attach(n.interfaces()) })
}

func (d *dataplane) close() {
	if d != nil {
		d.set.Close()
	}
}

// smallMaps keeps preallocated tables from taking the machine's memory.
var smallMaps = maps.Sizes{
	Conntrack: smallMap, ConntrackHalfOpen: smallMap, NATFrontend: smallMap,
	NATBackend: smallMap, NATAffinity: smallMap, Routes: smallMap, Interfaces: 64,
}

// install loads all variants and both policies, and switches the preambles to them.
func (d *dataplane) install() error {
	clock, err := features.OpenClock()
	if err != nil {
		return err
	}
	defer clock.Close()
	d.hz = clock.HZ
	cfg := loadConfig(d.feats.Flags())
	cfg.LogLevel = 0
	cfg.HZ = clock.HZ
	cfg.ToTicksShift = uint32(bits.Len32(clock.HZ)) - 1
	if cfg.JumpBank, err = jump.NextBank(d.set); err != nil {
		return err
	}
	policies, err := load.Policies(cfg, d.set.Raw())
	if err != nil {
		return err
	}
	defer policies.Close()
	if err := jump.InstallPolicies(d.set, policies); err != nil {
		return err
	}
	generation, err := load.All(context.Background(), cfg, d.set.Raw())
	if err != nil {
		return err
	}
	defer load.CloseAll(generation)
	return jump.Install(d.set, cfg.JumpBank, generation)
}

// attach puts preambles on interfaces of the node, inside its namespace.
func (n *node) attach(interfaces []slotted) error {
	attacher, err := attach.New(attach.Options{
		Root: filepath.Join(bpffsPath, n.name), Maps: n.dp.set.Raw, Type: attach.Auto, Features: n.dp.feats, Log: logrus.StandardLogger(),
	})
	if err != nil {
		return err
	}
	defer attacher.Close()
	for _, i := range interfaces {
		for _, hook := range variants.Hooks {
			cfg := layout.PreambleCfg{IfaceSlot: i.slot, Flags: uint32(ifaceFlags), EPSlot: i.endpoint, Hook: uint32(hook)}
			for _, family := range variants.Families {
				cfg.Policy[family] = uint32(layout.PolicyAllow)
				cfg.Main[family] = variants.Variant{Hook: hook, Class: i.at.Class, Family: family}.Slot(layout.SlotMain)
			}
			if i.at.Class == layout.ClassWEP {
				cfg.FailClosed = 1
			}
			if err := attacher.Attach(i.at, hook, cfg); err != nil {
				return fmt.Errorf("attach to %s: %w", i.at.Name, err)
			}
		}
	}
	return nil
}

const ifaceFlags = layout.IFFReady | layout.IFFManaged | layout.IFFV4 | layout.IFFV6

// slotted is an interface with its row of counters and, of a pod, its endpoint slot.
type slotted struct {
	at       attach.Interface
	slot     uint32
	endpoint uint32
}

func (n *node) interfaces() []slotted {
	all := []slotted{
		{attach.Interface{Ifindex: n.uplinkIndex, Name: uplink, Class: layout.ClassHEP}, uplinkSlot, 0},
		{attach.Interface{Ifindex: n.tunnelIndex, Name: tunnel, Class: layout.ClassTunnel}, tunnelSlot, 0},
	}
	for _, p := range n.pods {
		all = append(all, slotted{attach.Interface{Ifindex: p.index, Name: p.host, Class: layout.ClassWEP}, p.slot, p.slot})
	}
	return append(all, n.extra...)
}

// fill writes the node's view of the cluster.
func (n *node) fill(w *world) error {
	return errors.Join(n.fillGlobals(), n.fillInterfaces(), n.fillRoutes(w), n.fillServices(w))
}

func (n *node) fillGlobals() error {
	return n.dp.set.Globals.Change(func(g *layout.Globals) {
		g.TunnelIfindex = uint32(n.tunnelIndex)
		g.TunnelMTU = podMTU
		g.PodMTU = podMTU
		g.VNI = vni
		g.VXLANPortBE = layout.PortBE(vxlanPort)
		g.Flags = uint32(layout.GFV4 | layout.GFV6)
		v4, v6 := n.addrs.v4.As4(), n.addrs.v6.As16()
		g.HostIP4 = binary.NativeEndian.Uint32(v4[:])
		for i := range g.HostIP6 {
			g.HostIP6[i] = binary.NativeEndian.Uint32(v6[4*i:])
		}
		g.PSNATStart, g.PSNATCount = 20000, 1000
	})
}

func (n *node) fillInterfaces() error {
	for _, i := range n.interfaces() {
		allow := uint32(layout.PolicyAllow)
		value := layout.IfaceValue{Flags: uint32(ifaceFlags), IfaceSlot: i.slot, EPSlot: i.endpoint,
			Class: uint8(i.at.Class), Policy: [4]uint32{allow, allow, allow, allow}}
		copy(value.Name[:], i.at.Name)
		if err := n.dp.set.Interfaces.Put(uint32(i.at.Ifindex), value); err != nil {
			return err
		}
	}
	return nil
}

// fillRoutes writes pods and nodes; all traffic between nodes goes by the tunnel.
func (n *node) fillRoutes(w *world) error {
	routes := map[netip.Prefix]maps.Route{}
	for _, other := range w.nodes {
		for _, a := range other.addrs.both() {
			route := maps.Route{Flags: layout.RTHost, NodeID: other.id}
			if other == n {
				route.Flags |= layout.RTLocal
			}
			routes[hostPrefix(a)] = route
		}
		for _, cidr := range other.cidrs {
			route := maps.Route{Flags: layout.RTPool, NodeID: other.id}
			if other != n {
				route.Flags |= layout.RTWorkload | layout.RTTunneled
				route.NextHop = other.addrs.v4 // the underlay
			}
			routes[cidr] = route
		}
	}
	for _, p := range n.pods {
		for _, a := range p.addrs.both() {
			routes[hostPrefix(a)] = maps.Route{Flags: layout.RTLocal | layout.RTWorkload | layout.RTPool,
				Ifindex: uint32(p.index), NodeID: n.id, EPSlot: p.slot}
		}
	}
	for prefix, route := range routes {
		if err := n.dp.set.Routes.Put(prefix, route); err != nil {
			return fmt.Errorf("route %s: %w", prefix, err)
		}
	}
	return nil
}

// fillServices writes every service's backends, then its frontends.
func (n *node) fillServices(w *world) error {
	for _, s := range smokeServices {
		for _, family := range variants.Families {
			for _, proto := range protocols {
				if err := n.fillService(w, s, family, proto); err != nil {
					return fmt.Errorf("service %d: %w", s.id, err)
				}
			}
		}
	}
	return nil
}

func (n *node) fillService(w *world, s smokeService, family layout.Family, proto protocol) error {
	value := layout.FEValue{SvcID: s.id}
	if s.backend != "" {
		value.ClusterCount = 1
		_, backend := w.client(s.backend)
		lists := []uint32{uint32(layout.BECluster)}
		if n.hosts(s.backend) {
			value.LocalCount = 1
			lists = append(lists, uint32(layout.BELocal))
		}
		for _, list := range lists {
			err := n.dp.set.Backends.Put(maps.BackendKey{Family: family, SvcID: s.id, Ordinal: list},
				maps.Backend{Addr: backend.of(family), Port: echoPort, Weight: 1, ID: s.id})
			if err != nil {
				return err
			}
		}
	}
	vips := []netip.Addr{serviceVIP.of(family)}
	if s.nodePort {
		value.Flags = uint32(layout.FEExternal | layout.FENodeport)
		vips = []netip.Addr{n.addrs.of(family), maps.AnyNode(family)}
	}
	for _, vip := range vips {
		if err := n.dp.set.Frontends.Put(maps.FrontendKey{Addr: vip, Port: s.port, Proto: proto.number}, value); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) hosts(backend string) bool {
	if backend == n.name {
		return true
	}
	for _, own := range n.pods {
		if own.name == backend {
			return true
		}
	}
	return false
}
