// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// mapped is an IPv4 address as an IPv6 socket names it.
func mapped(addr string, p uint16) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Port: int(p), Addr: netip.AddrFrom16(netip.MustParseAddr(addr).As16()).As16()}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func TestATCPSocketGetsABackendAndShowsTheService(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_TCP))
		tcp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		if asked, _ := n.records(1 - f); asked != 0 {
			t.Errorf("%d records in the other family", asked)
		}
	})
}

func TestAnIPv4MappedSocketUsesTheTablesOfIPv4(t *testing.T) {
	n := newNode(t)
	n.servers(layout.FamilyV4)
	n.attach(allFlags)
	n.serve(clusterIP(layout.FamilyV4, unix.IPPROTO_TCP), clusterIP(layout.FamilyV4, unix.IPPROTO_UDP))
	want := netip.AddrPortFrom(netip.AddrFrom16(netip.MustParseAddr(vip[0]).As16()), port)
	buf := make([]byte, 64)
	for kind, name := range map[int]string{unix.SOCK_STREAM: "tcp", unix.SOCK_DGRAM: "udp"} {
		fd := socket(t, layout.FamilyV6, kind)
		if err := unix.Connect(fd, mapped(vip[0], port)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if peer, err := unix.Getpeername(fd); err != nil || addrPort(peer) != want {
			t.Errorf("%s: peer %v, want %v (%v)", name, addrPort(peer), want, err)
		}
		if kind == unix.SOCK_DGRAM {
			if _, err := unix.Write(fd, []byte("x")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		k, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || string(buf[:k]) != backends[0][0] {
			t.Errorf("%s: answered by %q (%v)", name, buf[:k], err)
		}
		if kind == unix.SOCK_DGRAM && addrPort(from) != want {
			t.Errorf("%s: reply from %v, want %v", name, addrPort(from), want)
		}
	}
	fd := socket(t, layout.FamilyV6, unix.SOCK_DGRAM)
	if err := unix.Sendto(fd, []byte("x"), 0, mapped(vip[0], port)); err != nil {
		t.Fatal(err)
	}
	if k, from, err := unix.Recvfrom(fd, buf, 0); err != nil || string(buf[:k]) != backends[0][0] || addrPort(from) != want {
		t.Errorf("unconnected: answered by %q as %v (%v), want %v", buf[:k], addrPort(from), err, want)
	}
}

func TestWhatIsNoServiceIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_TCP))
		direct := target(backends[f][2], backendPort)
		tcp(direct).want(t, backends[f][2], direct)
		udp(direct).want(t, backends[f][2], direct)
		sendto(packetConn(t, "udp", netip.AddrPortFrom(netip.MustParseAddr(own[f]), 0).String()), direct).want(t, backends[f][2], direct)
		n.wantRecords(f, 0, 0)
	})
}

func TestAServiceMayBeLeftToOthersByItsFlag(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_TCP)
		s.addr, s.port, s.flags = backends[f][1], backendPort, layout.FENoSocketLB
		n.serve(s)
		at := target(backends[f][1], backendPort)
		tcp(at).want(t, backends[f][1], at)
	})
}

func TestAServiceWithoutBackendsRefusesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			s := clusterIP(f, proto)
			s.backends = nil
			n.serve(s)
		}
		start := time.Now()
		tcp(target(vip[f], port)).wantError(t, unix.ECONNREFUSED)
		udp(target(vip[f], port)).wantError(t, unix.ECONNREFUSED)
		sendto(packetConn(t, "udp", ""), target(vip[f], port)).wantError(t, unix.ECONNREFUSED)
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestWithoutSetRetvalAServiceWithoutBackendsIsLeftToTC(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.attach(allFlags &^ layout.CTLBSetRetval)
		s := clusterIP(f, unix.IPPROTO_UDP)
		s.backends = nil
		n.serve(s)
		testenv.Run(t, "ip", "route", "add", "local", vip[f], "dev", "lo")
		c, err := net.Dial("udp", target(vip[f], port).String())
		if err != nil {
			t.Fatalf("not left alone: %v", err)
		}
		c.Close()
	})
}

func TestOnlyTheBackendsOfTheListAreChosen(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_TCP)
		s.backends, s.local, s.flags = backends[f], backends[f][1:2], layout.FEITPLocal
		n.serve(s)
		for range 10 {
			tcp(target(vip[f], port)).want(t, backends[f][1], target(vip[f], port))
		}
		// From inside the cluster, externalTrafficPolicy Local is no limit.
		s.flags = layout.FEETPLocal | layout.FEExternal
		n.serve(s)
		seen := map[string]bool{}
		for range 60 {
			seen[tcp(target(vip[f], port)).server] = true
		}
		if len(seen) != 3 {
			t.Errorf("of three backends %v were chosen in 60 connections", seen)
		}
	})
}

func TestWithoutALocalBackendTheHostIsToldAndAPodIsLeftToTC(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			s := clusterIP(f, proto)
			s.flags = layout.FEITPLocal | layout.FEDropNoLocal
			n.serve(s)
		}
		tcp(target(vip[f], port)).wantError(t, unix.EHOSTUNREACH)
		udp(target(vip[f], port)).wantError(t, unix.EHOSTUNREACH)
		in(t, n.pod(), func() {
			c, err := net.Dial("udp", target(vip[f], port).String())
			if err != nil {
				t.Errorf("a pod's call is not left alone: %v", err)
				return
			}
			c.Close()
		})
	})
}

// affinity is the record of a network namespace for a service port.
func (n *node) affinity(f layout.Family, svc uint32, ns netns.NsHandle) (maps.AffinityKey, layout.AffValue, bool) {
	n.t.Helper()
	var client [16]byte
	binary.NativeEndian.PutUint32(client[:], uint32(cookieOf(n.t, ns)))
	key := maps.AffinityKey{Client: netip.AddrFrom16(client), SvcID: svc, Kind: 1}
	if f == layout.FamilyV4 {
		key.Client = netip.AddrFrom4([4]byte(client[:4]))
	}
	v, found, err := n.set.Affinity.Lookup(key)
	if err != nil {
		n.t.Fatal(err)
	}
	return key, v, found
}

func TestAffinityKeepsAClientsBackendByItsNetworkNamespace(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_TCP)
		s.backends, s.affinity = backends[f], 3600
		n.serve(s)
		first := tcp(target(vip[f], port)).server
		for range 20 {
			tcp(target(vip[f], port)).want(t, first, target(vip[f], port))
		}
		pod := n.pod()
		if _, _, found := n.affinity(f, s.id, pod); found {
			t.Error("a pod has a record before it has connected")
		}
		in(t, pod, func() {
			second := tcp(target(vip[f], port)).server
			for range 10 {
				tcp(target(vip[f], port)).want(t, second, target(vip[f], port))
			}
		})
		if _, v, found := n.affinity(f, s.id, pod); !found || v.BackendID == 0 {
			t.Errorf("the pod's record: %+v, %v", v, found)
		}
	})
}

func TestAnAffinityRecordCountsOnlyWhileItsBackendIsUsableAndItIsFresh(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_TCP)
		s.backends, s.affinity = backends[f], 3600
		n.serve(s)
		first := tcp(target(vip[f], port)).server
		key, fresh, _ := n.affinity(f, s.id, n.host)
		chosen := func(record layout.AffValue) map[string]bool {
			seen := map[string]bool{}
			for range 40 {
				if err := n.set.Affinity.Put(key, record); err != nil {
					t.Fatal(err)
				}
				seen[tcp(target(vip[f], port)).server] = true
			}
			return seen
		}
		if seen := chosen(fresh); len(seen) != 1 || !seen[first] {
			t.Errorf("with a fresh record: %v, want %s", seen, first)
		}
		if seen := chosen(layout.AffValue{LastUsed: fresh.LastUsed - 3601*250, BackendID: fresh.BackendID}); len(seen) != 3 {
			t.Errorf("with an old record: %v, want all", seen)
		}
		n.removeByID(s, first)
		if seen := chosen(fresh); len(seen) != 3 {
			t.Errorf("with a backend that has left the list: %v, want all", seen)
		}
	})
}
