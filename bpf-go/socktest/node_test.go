// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// Addresses of the tests, of both families. Backends listen on addresses of the host's loopback device.
var (
	vip      = [2]string{"10.96.0.1", "fd96::1"}
	otherVIP = [2]string{"10.96.0.2", "fd96::2"}
	backends = [2][]string{{"10.65.0.1", "10.65.0.2", "10.65.0.3"}, {"fd00:65::1", "fd00:65::2", "fd00:65::3"}}
	own      = [2]string{"192.0.2.1", "2001:db8::1"} // this node
	other    = [2]string{"192.0.2.2", "2001:db8::2"} // another one
	podAddr  = [2]string{"10.65.9.9", "fd00:65::99"}
	gateway  = [2]string{"10.65.9.1", "fd00:65::9:1"}
)

const (
	port        = 80 // of the service
	nodePort    = 30080
	backendPort = 8080
)

var families = []layout.Family{layout.FamilyV4, layout.FamilyV6}

// allFlags are the constants of mode Enabled on a kernel that can do everything.
const allFlags = layout.CTLBUDP | layout.CTLBSetRetval | layout.CTLBNetNSCookie | layout.CTLBOptOuts

// node is a host with maps, and programs on the cgroup that this process is in.
type node struct {
	t      testing.TB
	root   string // bpffs
	path   string // cgroup
	set    *maps.Set
	cgroup *attach.Cgroup
	host   netns.NsHandle
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, host: testenv.NetNS(t), root: testenv.BPFFS(t), path: testenv.InCgroup(t)}
	var err error
	if n.set, err = maps.Open(n.root, maps.Options{Sizes: maps.Sizes{Conntrack: 1000, ConntrackHalfOpen: 1000, NATFrontend: 1000,
		NATBackend: 1000, NATAffinity: 1000, Routes: 1000, Interfaces: 64}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.set.Close() })
	if n.cgroup, err = attach.NewCgroup(n.path, n.root); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, a := range append(slices.Clone(backends[f]), own[f]) {
			addAddress(t, "lo", a)
		}
	}
	t.Cleanup(n.detach)
	return n
}

func addAddress(t testing.TB, device, addr string) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	args := []string{"ip", "addr", "add", fmt.Sprintf("%s/%d", a, a.BitLen()), "dev", device}
	if a.Is6() {
		args = append(args, "nodad")
	}
	testenv.Run(t, args...)
}

// attach loads the programs with flags and puts all of them on their hooks, in place of what is there.
func (n *node) attach(flags layout.CTLBFlag) {
	n.t.Helper()
	programs, err := load.Cgroup(load.CgroupHooks(), layout.CTLBConfig{HostNetNS: cookieOf(n.t, n.host), HZ: 250, Flags: uint32(flags)},
		n.set.Raw())
	if err != nil {
		n.t.Fatalf("%+v", err)
	}
	for _, h := range load.CgroupHooks() {
		if _, err := n.cgroup.Attach(h, programs[h.Name]); err != nil {
			n.t.Fatal(err)
		}
		programs[h.Name].Close()
	}
}

func (n *node) detach() {
	for _, h := range load.CgroupHooks() {
		if err := attach.DetachCgroup(n.root, h.Name); err != nil {
			n.t.Error(err)
		}
	}
}

// pod is another network namespace, routed to the host's.
func (n *node) pod() netns.NsHandle {
	n.t.Helper()
	ns := testenv.NewNetNS(n.t)
	testenv.Veth(n.t, "cali1", "eth0", ns)
	for _, f := range families {
		addAddress(n.t, "cali1", gateway[f])
		testenv.Run(n.t, "ip", "route", "add", podAddr[f], "dev", "cali1")
	}
	if err := testenv.Enter(ns, func() error {
		testenv.Run(n.t, "ip", "link", "set", "lo", "up")
		for _, f := range families {
			addAddress(n.t, "eth0", podAddr[f])
			testenv.Run(n.t, "ip", "route", "add", gateway[f], "dev", "eth0")
			testenv.Run(n.t, "ip", "route", "add", "default", "via", gateway[f], "dev", "eth0")
		}
		return nil
	}); err != nil {
		n.t.Fatal(err)
	}
	return ns
}

// in runs f inside a network namespace.
func in(t testing.TB, ns netns.NsHandle, f func()) {
	t.Helper()
	if err := testenv.Enter(ns, func() error { f(); return nil }); err != nil {
		t.Fatal(err)
	}
}

func cookieOf(t testing.TB, ns netns.NsHandle) uint64 {
	t.Helper()
	var cookie uint64
	if err := testenv.Enter(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return cookie
}

// ---- what the node knows ----

// service is a frontend with backends in the cluster list, and in the local one those that are local.
type service struct {
	id       uint32
	addr     string // "*": the wildcard of NodePorts
	port     uint16
	proto    uint8
	flags    layout.FEFlag
	backends []string
	local    []string
	affinity uint32
	family   layout.Family
}

func wildcard(f layout.Family) netip.Addr {
	if f == layout.FamilyV4 {
		return netip.MustParseAddr("255.255.255.255")
	}
	return netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
}

// backendID is stable for an address.
func backendID(addr string) uint32 {
	for _, f := range families {
		if i := slices.Index(backends[f], addr); i >= 0 {
			return uint32(i + 1)
		}
	}
	return 99
}

func (s service) frontend() maps.FrontendKey {
	addr := wildcard(s.family)
	if s.addr != "*" {
		addr = netip.MustParseAddr(s.addr)
	}
	return maps.FrontendKey{Addr: addr, Port: s.port, Proto: s.proto}
}

// serve writes services as the agent does: backends first.
func (n *node) serve(services ...service) {
	n.t.Helper()
	for _, s := range services {
		put := func(ordinal uint32, addr string, flags layout.BEFlag) {
			if err := n.set.Backends.Put(maps.BackendKey{Family: s.family, SvcID: s.id, Ordinal: ordinal}, maps.Backend{
				Addr: netip.MustParseAddr(addr), Port: backendPort, Weight: 1, ID: backendID(addr), Flags: uint32(flags)}); err != nil {
				n.t.Fatal(err)
			}
		}
		for i, b := range s.backends {
			put(uint32(i), b, 0)
			flags := layout.BefCluster
			if slices.Contains(s.local, b) {
				flags |= layout.BefLocal
			}
			put(uint32(layout.BEByID)|backendID(b), b, flags)
		}
		for i, b := range s.local {
			put(uint32(layout.BELocal)|uint32(i), b, 0)
		}
		if err := n.set.Frontends.Put(s.frontend(), layout.FEValue{SvcID: s.id, Flags: uint32(s.flags),
			AffinityTimeout: s.affinity, ClusterCount: uint32(len(s.backends)), LocalCount: uint32(len(s.local))}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// withdraw deletes a service's frontend and its backends.
func (n *node) withdraw(s service) {
	n.t.Helper()
	if err := n.set.Frontends.Remove(s.frontend()); err != nil {
		n.t.Fatal(err)
	}
	for _, b := range s.backends {
		n.removeByID(s, b)
	}
}

func (n *node) removeByID(s service, addr string) {
	n.t.Helper()
	if err := n.set.Backends.Remove(maps.BackendKey{Family: s.family, SvcID: s.id,
		Ordinal: uint32(layout.BEByID) | backendID(addr)}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) route(prefix string, flags layout.RouteFlag) {
	n.t.Helper()
	if err := n.set.Routes.Put(netip.MustParsePrefix(prefix), maps.Route{Flags: flags}); err != nil {
		n.t.Fatal(err)
	}
}

func clusterIP(f layout.Family, proto uint8) service {
	return service{id: 1 + uint32(f), addr: vip[f], port: port, proto: proto, backends: backends[f][:1], family: f}
}

// records counts a family's records of sockets.
func (n *node) records(f layout.Family) (asked, chosen int) {
	n.t.Helper()
	count := func(err error) {
		if err != nil {
			n.t.Fatal(err)
		}
	}
	if f == layout.FamilyV4 {
		count(n.set.SocketsV4.Asked.All(func(layout.SockKeyV4, layout.SockValueV4) bool { asked++; return true }))
		count(n.set.SocketsV4.Chosen.All(func(layout.SockKeyV4, layout.SockValueV4) bool { chosen++; return true }))
	} else {
		count(n.set.SocketsV6.Asked.All(func(layout.SockKeyV6, layout.SockValueV6) bool { asked++; return true }))
		count(n.set.SocketsV6.Chosen.All(func(layout.SockKeyV6, layout.SockValueV6) bool { chosen++; return true }))
	}
	return asked, chosen
}

func (n *node) wantRecords(f layout.Family, asked, chosen int) {
	n.t.Helper()
	testenv.Eventually(n.t, fmt.Sprintf("%v: %d and %d records", f, asked, chosen), func() (bool, string) {
		a, c := n.records(f)
		return a == asked && c == chosen, fmt.Sprintf("%d and %d", a, c)
	})
}
