// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// servers starts a TCP and a UDP server on each backend that answers with its own address.
func (n *node) servers(f layout.Family) {
	n.t.Helper()
	for _, addr := range backends[f] {
		n.server(netip.AddrPortFrom(netip.MustParseAddr(addr), backendPort), addr)
	}
}

func (n *node) server(at netip.AddrPort, name string) {
	n.t.Helper()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(name))
			c.Close()
		}
	}()
	p, err := net.ListenPacket("udp", at.String())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { p.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte(name), from)
		}
	}()
}

func target(addr string, p uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), p)
}

// answer is who answered and whom the socket says it talks to.
type answer struct {
	server, peer string
	err          error
}

const patience = 2 * time.Second

// tcp connects and reads.
func tcp(to netip.AddrPort) answer { return talk(to, unix.SOCK_STREAM) }

// udp sends from a connected socket.
func udp(to netip.AddrPort) answer { return talk(to, unix.SOCK_DGRAM) }

// talk uses system calls: Go's own dialling gives unspecified addresses a meaning of its own.
func talk(to netip.AddrPort, kind int) answer {
	fd, err := openSocket(layout.FamilyOf(to.Addr()), kind)
	if err != nil {
		return answer{err: err}
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return answer{err: err}
	}
	if kind == unix.SOCK_DGRAM {
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			return answer{err: err}
		}
	}
	buf := make([]byte, 64)
	k, err := unix.Read(fd, buf)
	if err != nil {
		return answer{err: err}
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return answer{err: err}
	}
	return answer{server: string(buf[:k]), peer: addrPort(peer).String()}
}

// openSocket's calls wait for two seconds at most.
func openSocket(f layout.Family, kind int) (int, error) {
	fd, err := unix.Socket([]int{unix.AF_INET, unix.AF_INET6}[f], kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	tv := unix.NsecToTimeval(patience.Nanoseconds())
	for _, o := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, o, &tv); err != nil {
			unix.Close(fd)
			return 0, err
		}
	}
	return fd, nil
}

// socket opens one that is closed when the test ends, if not before.
func socket(t *testing.T, f layout.Family, kind int) int {
	t.Helper()
	fd, err := openSocket(f, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// sendto sends from an unconnected socket; peer is the source of the reply.
func sendto(p net.PacketConn, to netip.AddrPort) answer {
	if _, err := p.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(to)); err != nil {
		return answer{err: err}
	}
	_ = p.SetDeadline(time.Now().Add(patience))
	buf := make([]byte, 64)
	k, from, err := p.ReadFrom(buf)
	if err != nil {
		return answer{err: err}
	}
	return answer{server: string(buf[:k]), peer: from.String()}
}

func packetConn(t testing.TB, network, addr string) net.PacketConn {
	t.Helper()
	p, err := net.ListenPacket(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func (a answer) want(t *testing.T, server string, peer netip.AddrPort) {
	t.Helper()
	if a.err != nil || a.server != server || a.peer != peer.String() {
		t.Errorf("answered by %q as %q (%v), want %q as %q", a.server, a.peer, a.err, server, peer)
	}
}

func (a answer) wantError(t *testing.T, want error) {
	t.Helper()
	if !errors.Is(a.err, want) {
		t.Errorf("answered by %q as %q (%v), want the error %v", a.server, a.peer, a.err, want)
	}
}

// each runs a test for both families.
func each(t *testing.T, f func(t *testing.T, n *node, family layout.Family)) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			n := newNode(t)
			n.servers(family)
			n.attach(allFlags)
			f(t, n, family)
		})
	}
}
