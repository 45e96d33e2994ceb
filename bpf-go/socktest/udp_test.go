// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestAConnectedUDPSocketTalksToABackendAndShowsTheService(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_UDP))
		udp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		// recvmsg says so as well.
		fd := socket(t, f, unix.SOCK_DGRAM)
		if err := unix.Connect(fd, sockaddr(target(vip[f], port))); err != nil {
			t.Fatal(err)
		}
		// Naming the service once more means the same backend.
		for _, send := range []func() error{
			func() error { _, err := unix.Write(fd, []byte("x")); return err },
			func() error { return unix.Sendto(fd, []byte("x"), 0, sockaddr(target(vip[f], port))) },
		} {
			if err := send(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			k, from, err := unix.Recvfrom(fd, buf, 0)
			if err != nil || string(buf[:k]) != backends[f][0] || addrPort(from) != target(vip[f], port) {
				t.Errorf("answered by %q as %v (%v)", buf[:k], addrPort(from), err)
			}
		}
	})
}

func TestAnUnconnectedUDPSocketSeesRepliesFromTheServices(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		first, second := clusterIP(f, unix.IPPROTO_UDP), clusterIP(f, unix.IPPROTO_UDP)
		second.id, second.addr, second.backends = 9, otherVIP[f], backends[f][1:2]
		n.serve(first, second)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		for range 3 {
			sendto(p, target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
			sendto(p, target(otherVIP[f], port)).want(t, backends[f][1], target(otherVIP[f], port))
		}
		direct := target(backends[f][2], backendPort)
		sendto(p, direct).want(t, backends[f][2], direct)
	})
}

func TestServicesThatShareABackendAnswerEachInItsOwnName(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		first, second := clusterIP(f, unix.IPPROTO_UDP), clusterIP(f, unix.IPPROTO_UDP)
		first.backends = backends[f][:1]
		second.id, second.addr, second.backends = 9, otherVIP[f], backends[f][:1]
		n.serve(first, second)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		for _, addr := range []string{vip[f], otherVIP[f], vip[f], vip[f], otherVIP[f]} {
			sendto(p, target(addr, port)).want(t, backends[f][0], target(addr, port))
		}
		p.Close()
		n.wantRecords(f, 0, 0)
	})
}

func TestASocketThatConnectsAgainAndAgainLeavesNoRecords(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		first, second := clusterIP(f, unix.IPPROTO_UDP), clusterIP(f, unix.IPPROTO_UDP)
		second.id, second.addr, second.backends = 9, otherVIP[f], backends[f][1:2]
		n.serve(first, second)
		fd := socket(t, f, unix.SOCK_DGRAM)
		for _, addr := range []string{otherVIP[f], vip[f], vip[f], vip[f], vip[f]} {
			if err := unix.Connect(fd, sockaddr(target(addr, port))); err != nil {
				t.Fatal(err)
			}
		}
		n.wantRecords(f, 2, 2)
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		n.wantRecords(f, 0, 0)
	})
}

func TestAUDPSocketKeepsItsBackendWhileOthersComeAndGo(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_UDP)
		s.backends = backends[f]
		n.serve(s)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		kept := sendto(p, target(vip[f], port)).server
		var rest []string
		for _, b := range backends[f] {
			if b != kept {
				rest = append(rest, b)
			}
		}
		for i := range 30 {
			churned := s
			churned.backends = [][]string{{kept}, {rest[0], kept}, {rest[1], kept, rest[0]}}[i%3]
			n.serve(churned)
			sendto(p, target(vip[f], port)).want(t, kept, target(vip[f], port))
		}
		// Its backend goes: the next datagram has another one, and so has each after it.
		s.backends = rest
		n.serve(s)
		n.removeByID(s, kept)
		next := sendto(p, target(vip[f], port)).server
		if next == kept || next == "" {
			t.Fatalf("answered by %q, which is gone", next)
		}
		for range 10 {
			sendto(p, target(vip[f], port)).want(t, next, target(vip[f], port))
		}
		n.wantRecords(f, 1, 1)
	})
}

func TestASocketsBackendMustBeInTheListOfThePolicy(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_UDP)
		n.serve(s)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		sendto(p, target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		s.backends, s.local, s.flags = backends[f][:2], backends[f][1:2], layout.FEITPLocal
		n.serve(s)
		sendto(p, target(vip[f], port)).want(t, backends[f][1], target(vip[f], port))
	})
}

func TestARecordOfADeletedServiceIsGoneWithTheNextReply(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		s := clusterIP(f, unix.IPPROTO_UDP)
		n.serve(s)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		sendto(p, target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		n.wantRecords(f, 1, 1)
		n.withdraw(s)
		// The backend answers to a datagram that was sent to it: it is the backend's own now.
		direct := target(backends[f][0], backendPort)
		sendto(p, direct).want(t, backends[f][0], direct)
		n.wantRecords(f, 0, 0)
	})
}

func TestALostReplyRecordIsMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_UDP))
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		sendto(p, target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		n.forgetAsked(f)
		n.wantRecords(f, 0, 1)
		sendto(p, target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
	})
}

// forgetAsked empties a map, as the LRU may.
func (n *node) forgetAsked(f layout.Family) {
	n.t.Helper()
	var errs []error
	if f == layout.FamilyV4 {
		var keys []layout.SockKeyV4
		errs = append(errs, n.set.SocketsV4.Asked.All(func(k layout.SockKeyV4, _ layout.SockValueV4) bool { keys = append(keys, k); return true }))
		errs = append(errs, n.set.SocketsV4.Asked.RemoveAll(keys)...)
	} else {
		var keys []layout.SockKeyV6
		errs = append(errs, n.set.SocketsV6.Asked.All(func(k layout.SockKeyV6, _ layout.SockValueV6) bool { keys = append(keys, k); return true }))
		errs = append(errs, n.set.SocketsV6.Asked.RemoveAll(keys)...)
	}
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
}

func TestAClosedSocketLeavesNoRecords(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_TCP), clusterIP(f, unix.IPPROTO_UDP))
		c, err := net.Dial("tcp", target(vip[f], port).String())
		if err != nil {
			t.Fatal(err)
		}
		n.wantRecords(f, 1, 0)
		c.Close()
		n.wantRecords(f, 0, 0)
		if c, err = net.Dial("udp", target(vip[f], port).String()); err != nil {
			t.Fatal(err)
		}
		n.wantRecords(f, 1, 1)
		c.Close()
		n.wantRecords(f, 0, 0)
		second := clusterIP(f, unix.IPPROTO_UDP)
		second.id, second.addr, second.backends = 9, otherVIP[f], backends[f][1:2]
		n.serve(second)
		p := packetConn(t, []string{"udp4", "udp6"}[f], "")
		_ = sendto(p, target(vip[f], port))
		_ = sendto(p, target(otherVIP[f], port))
		n.wantRecords(f, 2, 2)
		p.Close()
		n.wantRecords(f, 0, 0)
	})
}

func TestAnIPv4MappedSocketLeavesNoRecordsEither(t *testing.T) {
	n := newNode(t)
	n.servers(layout.FamilyV4)
	n.attach(allFlags)
	n.serve(clusterIP(layout.FamilyV4, unix.IPPROTO_TCP), clusterIP(layout.FamilyV4, unix.IPPROTO_UDP))
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_INET6, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, mapped(vip[0], port)); err != nil {
			t.Fatal(err)
		}
		if asked, _ := n.records(layout.FamilyV4); asked != 1 {
			t.Errorf("%d records", asked)
		}
		unix.Close(fd)
		n.wantRecords(layout.FamilyV4, 0, 0)
	}
}

func TestWithTCPOnlyUDPIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.attach(allFlags &^ layout.CTLBUDP)
		n.serve(clusterIP(f, unix.IPPROTO_TCP), clusterIP(f, unix.IPPROTO_UDP))
		tcp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		c, err := net.Dial("udp", target(vip[f], port).String())
		if errors.Is(err, unix.ENETUNREACH) {
			return // nothing routes the service's address here
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("read: %v", err)
		}
	})
}
