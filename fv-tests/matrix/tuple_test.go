// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// The host talks to a pod directly, and by the same port of its own to a service that has this pod behind it: to the pod
// that must be two connections.
func TestOnePortOfTheHostLeadsToAPodDirectlyAndByAService(t *testing.T) {
	t.Parallel()
	l := up(t, Options(Site{Overlay: "VXLAN", Mode: Disabled}, "Auto"))
	port := 23000
	for _, ipv6 := range []bool{false, true} {
		for role, backend := range map[string]Backend{"near": SameNode, "far": OtherNode} {
			port++
			pod, service := podPort(l, role, ipv6), serviceFor(backend, ipv6).address(l, ClusterIP)
			direct := dialShared(t, &l.Nodes[0].Place, pod, port)
			byService := dialShared(t, &l.Nodes[0].Place, service, port)
			for to, conn := range map[netip.AddrPort]net.Conn{pod: direct, service: byService} {
				if conn == nil {
					continue // said already
				}
				answer := make([]byte, 8) // an empty frame: its length and its checksum
				if _, err := conn.Write(answer); err != nil {
					t.Errorf("%s, port %d: %v", to, port, err)
				} else if _, err := bufio.NewReader(conn).Discard(len(answer)); err != nil {
					t.Errorf("%s, port %d: no answer: %v", to, port, err)
				}
				conn.Close()
			}
		}
	}
}

// dialShared connects from a port that other connections may have, and reads the hello; nil where that failed.
func dialShared(t *testing.T, from *lab.Place, to netip.AddrPort, port int) (conn net.Conn) {
	t.Helper()
	const limit = 5 * time.Second
	share := func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
			return e
		}
		return err
	}
	err := from.Namespace.Do(func() (err error) {
		d := net.Dialer{Timeout: limit, LocalAddr: &net.TCPAddr{Port: port}, Control: share}
		conn, err = d.Dial("tcp", to.String())
		return err
	})
	if err == nil {
		if err = conn.SetDeadline(time.Now().Add(limit)); err == nil {
			err = readHello(conn)
		}
	}
	if err != nil {
		t.Errorf("from port %d to %s: %v", port, to, err)
		return nil
	}
	return conn
}

// readHello reads the line that a server sends first, and no more.
func readHello(conn net.Conn) error {
	for one := make([]byte, 1); one[0] != '\n'; {
		if _, err := conn.Read(one); err != nil {
			return err
		}
	}
	return nil
}
