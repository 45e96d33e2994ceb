// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// originalDestination is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const originalDestination = 80

// dialMapped connects an IPv6 socket to an IPv4 address in its v4-mapped form, as programs do that know
// IPv6 sockets only. Go's own dialer would make an IPv4 socket of it.
func dialMapped(socketType int, to netip.AddrPort, sourcePort int, timeout time.Duration) (net.Conn, error) {
	fail := func(call string, err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "v4-mapped", Addr: net.TCPAddrFromAddrPort(to), Err: os.NewSyscallError(call, err)}
	}
	fd, err := unix.Socket(unix.AF_INET6, socketType|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail("socket", err)
	}
	f := os.NewFile(uintptr(fd), "v4-mapped")
	defer f.Close()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		return fail("setsockopt", err)
	}
	if sourcePort != 0 {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if err := unix.Bind(fd, &unix.SockaddrInet6{Port: sourcePort}); err != nil {
			return fail("bind", err)
		}
	}
	mapped := netip.AddrFrom16(to.Addr().As16())
	err = unix.Connect(fd, &unix.SockaddrInet6{Addr: mapped.As16(), Port: int(to.Port())})
	if err == unix.EINPROGRESS {
		err = connected(fd, timeout)
	}
	if err != nil {
		return fail("connect", err)
	}
	return net.FileConn(f)
}

// connected waits for the end of a connect that is under way.
func connected(fd int, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && code != 0 {
				err = syscall.Errno(code)
			}
			return err
		}
	}
}

// peerName is what getpeername says of a socket; "" where it is not connected.
func peerName(conn syscall.Conn) string {
	var name string
	_ = control(conn, func(fd int) {
		sa, err := unix.Getpeername(fd)
		if err != nil {
			return
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			name = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
		case *unix.SockaddrInet6:
			name = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)).String()
		}
	})
	return name
}

// redirectedFrom is where a connection that netfilter redirected to this server was bound for; "" where
// it was not redirected.
func redirectedFrom(conn *net.TCPConn) string {
	var name string
	_ = control(conn, func(fd int) {
		if local, ok := conn.LocalAddr().(*net.TCPAddr); ok && local.IP.To4() != nil {
			// A sockaddr_in fits into the 20 bytes of this structure.
			raw, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, originalDestination)
			if err == nil {
				b := raw.Multiaddr
				addr := netip.AddrFrom4([4]byte(b[4:8]))
				name = netip.AddrPortFrom(addr, uint16(b[2])<<8|uint16(b[3])).String()
			}
			return
		}
		raw, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, originalDestination)
		if err == nil {
			port := raw.Addr.Port<<8 | raw.Addr.Port>>8
			name = netip.AddrPortFrom(netip.AddrFrom16(raw.Addr.Addr), port).String()
		}
	})
	return name
}

// askForDestination makes a UDP socket say which of the host's addresses a datagram was sent to.
func askForDestination(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// sourceFor turns what came with a datagram into what makes the answer come from where it was sent to, by
// whatever interface the route says.
func sourceFor(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := &unix.Inet4Pktinfo{}
			copy(info.Spec_dst[:], m.Data[8:12])
			return unix.PktInfo4(info)
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := &unix.Inet6Pktinfo{}
			copy(info.Addr[:], m.Data[:16])
			return unix.PktInfo6(info)
		}
	}
	return nil
}

func control(conn syscall.Conn, fn func(fd int)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { fn(int(fd)) })
	}
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}
