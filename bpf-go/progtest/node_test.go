// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/jump"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// iface is an interface of the node under test.
type iface struct {
	device string // in the namespace
	slot   uint32 // of the counters
	ep     uint32 // endpoint slot
}

// ifaces are the node's interfaces, by the names that fixtures use.
var ifaces = map[string]iface{
	"podA":   {"calia", 1, 11},
	"podB":   {"calib", 2, 12},
	"eth0":   {"eth0", 3, 0},
	"vxlan":  {"vxlan0", 4, 0},
	"lo":     {"lo", 5, 0},
	"bpfout": {"bpfout", 6, 0},
	"tun":    {"tun0", 7, 0},
}

// ifaceOf is the interface of a class where a fixture names none.
var ifaceOf = map[layout.Class]string{
	layout.ClassHEP: "eth0", layout.ClassTunnel: "vxlan", layout.ClassLo: "lo", layout.ClassNAT: "bpfout",
	layout.ClassL3Dev: "tun",
}

const (
	confirmedSize = 64 // small, so that a fixture can fill it
	podMTU        = 1450
	tunnelMTU     = 1450
	narrowMTU     = 1300
	vxlanPort     = 4789
	// collisionPort is the only source port that colliding flows can get.
	collisionPort = 33000
)

// node is the node under test: its maps, with all programs loaded into them, and a network namespace with its
// interfaces. There is one for the whole package; fixtures give it fresh content.
type node struct {
	set      *maps.Set
	clock    *features.Clock
	config   layout.Config
	programs map[string]map[layout.Slot]*ebpf.Program // by variant
	ifindex  map[string]uint32
	jobs     chan func() // run on a thread in the namespace
}

var oneNode struct {
	once sync.Once
	node *node
}

// theNode loads everything at the first call. Maps and programs live as long as the process; their pins, the mount and
// the namespace have no name that could be left behind.
func theNode(t *testing.T) *node {
	t.Helper()
	testenv.RequireRoot(t)
	oneNode.once.Do(func() { oneNode.node = newNode(t) })
	if oneNode.node == nil {
		t.Fatal("the node could not be set up: see the first failed test")
	}
	return oneNode.node
}

func newNode(t *testing.T) *node {
	n := &node{programs: map[string]map[layout.Slot]*ebpf.Program{}, ifindex: map[string]uint32{}, jobs: make(chan func())}
	var err error
	if n.set, err = maps.Open(testenv.BPFFS(t), maps.Options{Sizes: maps.Sizes{
		Conntrack: confirmedSize, ConntrackHalfOpen: 1024, NATFrontend: 64, NATBackend: 64, NATAffinity: 1024,
		Routes: 64, Interfaces: 16,
	}}); err != nil {
		t.Fatal(err)
	}
	if n.clock, err = features.OpenClock(); err != nil {
		t.Fatal(err)
	}
	hz := n.clock.HZ
	n.config = layout.Config{
		MarkShift: 20, HZ: hz, ToSYNSent: 20 * hz, ToEstablished: 3600 * hz, ToFINs: 30 * hz, ToReset: 40 * hz,
		ToUDP: 60 * hz, ToGeneric: 600 * hz, ToICMP: 5 * hz, ToTicksShift: twinShift,
		Features: uint32(layout.FeatRedirectPeer | layout.FeatRedirectNeigh),
	}
	generation, err := load.All(t.Context(), n.config, n.set.Raw())
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, o := range generation {
		n.programs[o.Name] = map[layout.Slot]*ebpf.Program{}
		for slot := range layout.SlotStride {
			name := "cali_" + strings.ReplaceAll(slot.String(), "-", "_")
			n.programs[o.Name][slot] = o.Programs[name]
		}
	}
	if err := jump.Install(n.set, 0, generation); err != nil {
		t.Fatal(err)
	}
	policies, err := load.Policies(n.config, n.set.Raw())
	if err != nil {
		t.Fatal(err)
	}
	if err := jump.InstallPolicies(n.set, policies); err != nil {
		t.Fatal(err)
	}
	if err := n.set.Policy.Set(uint32(allowing), policies.Programs[load.PolicyAllowProgram]); err != nil {
		t.Fatal(err)
	}
	ready := make(chan error)
	go n.live(ready)
	if err := <-ready; err != nil {
		t.Fatalf("namespace of the node: %v", err)
	}
	return n
}

// live makes the namespace and does the jobs that need it, until the process ends.
func (n *node) live(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	if _, err := netns.New(); err != nil {
		ready <- err
		return
	}
	ready <- n.wire()
	for job := range n.jobs {
		job()
	}
}

// inside runs f in the node's namespace.
func (n *node) inside(f func()) {
	done := make(chan struct{})
	n.jobs <- func() {
		defer close(done)
		f()
	}
	<-done
}

// wire makes the interfaces and the kernel's own routes: the way out of the cluster, and the podCIDR of node2.
func (n *node) wire() error {
	for name, i := range ifaces {
		if i.device != "lo" {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: i.device, MTU: 1500}, PeerName: i.device + "-far"}
			if err := netlink.LinkAdd(pair); err != nil {
				return fmt.Errorf("add %s: %w", i.device, err)
			}
			far, err := netlink.LinkByName(pair.PeerName)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(far); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByName(i.device)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		n.ifindex[name] = uint32(link.Attrs().Index)
	}
	for _, path := range []string{"/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for f, bits := range []int{24, 64} {
		family := layout.Family(f)
		address := netlink.NewIPNet(addrOf("node1", family).AsSlice())
		address.Mask = mask(bits, family)
		if err := netlink.AddrAdd(eth0, &netlink.Addr{IPNet: address, Flags: 2 /* IFA_F_NODAD */}); err != nil {
			return fmt.Errorf("address %v: %w", address, err)
		}
		for _, route := range []struct {
			to  string
			via string
			mtu int
		}{{"client", "router", 0}, {"narrow", "router", narrowMTU}, {"podR", "node2", 0}} {
			if err := netlink.RouteAdd(&netlink.Route{
				LinkIndex: eth0.Attrs().Index, Dst: netlink.NewIPNet(addrOf(route.to, family).AsSlice()),
				Gw: addrOf(route.via, family).AsSlice(), MTU: route.mtu,
				MTULock: route.mtu != 0, // else IPv4 forwarding goes by the device's
			}); err != nil {
				return fmt.Errorf("route to %s: %w", route.to, err)
			}
		}
	}
	return nil
}

// reset gives the node the content that all fixtures start from.
func (n *node) reset() error {
	ctx := context.Background()
	if err := empty(ctx, n.set.Frontends); err != nil {
		return err
	}
	if err := empty(ctx, n.set.Backends); err != nil {
		return err
	}
	if err := empty(ctx, n.set.Affinity); err != nil {
		return err
	}
	if err := empty(ctx, n.set.Routes); err != nil {
		return err
	}
	if err := empty(ctx, n.set.Interfaces); err != nil {
		return err
	}
	for _, m := range n.conntrackMaps() {
		if err := m.clear(); err != nil {
			return err
		}
	}
	for f := range layout.Family(2) {
		for name, route := range n.routes() {
			if err := n.putRoute(name, f, route); err != nil {
				return err
			}
		}
	}
	return n.set.Globals.Put(0, n.globals())
}

// routes are what the cluster knows of addresses, by name.
func (n *node) routes() map[string]maps.Route {
	local, pod, host := layout.RTLocal, layout.RTWorkload, layout.RTHost
	return map[string]maps.Route{
		"podA":   {Flags: local | pod | layout.RTPool, Ifindex: n.ifindex["podA"], EPSlot: ifaces["podA"].ep},
		"podB":   {Flags: local | pod | layout.RTPool, Ifindex: n.ifindex["podB"], EPSlot: ifaces["podB"].ep},
		"podR":   {Flags: pod | layout.RTPool | layout.RTTunneled, NodeID: 2, NextHop: addrOf("node2", layout.FamilyV4)},
		"node1":  {Flags: local | host},
		"node2":  {Flags: host, NodeID: 2, NextHop: addrOf("node2", layout.FamilyV4)},
		"hole":   {Flags: layout.RTBlackhole},
		"reject": {Flags: layout.RTReject},
		"l3host": {Flags: local | host},
	}
}

func (n *node) putRoute(name string, f layout.Family, route maps.Route) error {
	addr := addrOf(name, f)
	return n.set.Routes.Put(netip.PrefixFrom(addr, addr.BitLen()), route)
}

func (n *node) globals() layout.Globals {
	g := layout.Globals{
		RouteEpoch: 1, TunnelIfindex: n.ifindex["vxlan"], TunnelMTU: tunnelMTU, VNI: 4096,
		Flags: uint32(layout.GFV4 | layout.GFV6), VXLANPortBE: layout.PortBE(vxlanPort), PodMTU: podMTU,
		PSNATStart: collisionPort, PSNATCount: 1,
	}
	v4, err := layout.AddrFrom[layout.AddrV4](addrOf("node1", layout.FamilyV4))
	must(err)
	v6, err := layout.AddrFrom[layout.AddrV6](addrOf("node1", layout.FamilyV6))
	must(err)
	g.HostIP4, g.HostIP6 = v4.W[0], v6.W
	return g
}

func mask(bits int, f layout.Family) []byte {
	m := make([]byte, addrOf("node1", f).BitLen()/8)
	for i := range bits {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// table is what empty needs of a map.
type table[K comparable, V any] interface {
	List(ctx context.Context, visit func(K, V)) error
	Remove(K) error
}

func empty[K comparable, V any](ctx context.Context, t table[K, V]) error {
	var keys []K
	if err := t.List(ctx, func(k K, _ V) { keys = append(keys, k) }); err != nil {
		return err
	}
	for _, k := range keys {
		if err := t.Remove(k); err != nil {
			return err
		}
	}
	return nil
}

// deviceName is the fixtures' name of an interface.
func (n *node) deviceName(ifindex uint32) string {
	for name, i := range n.ifindex {
		if i == ifindex {
			return name
		}
	}
	return fmt.Sprintf("if%d", ifindex)
}

// hookOf reads "from_wep podA": the variant, and the interface whose hook it is.
func hookOf(text string, f layout.Family) (variant string, i iface, name string) {
	words := strings.Fields(text)
	variant = words[0] + "_" + f.String()
	v, err := parseVariant(variant)
	must(err)
	name = ifaceOf[v.Class]
	if len(words) > 1 {
		name = words[1]
	}
	i, ok := ifaces[name]
	if !ok {
		panic(fmt.Sprintf("hook %q: no such interface", text))
	}
	return variant, i, name
}
