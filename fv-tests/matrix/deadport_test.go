// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// Clients that are balanced packet by packet lose their connections without a word, as when a machine is switched
// off, and half of the backends are gone: the ports that they had, used again, lead to the backend that is left.
func TestAPortThatLedToADeadBackendIsBalancedAnew(t *testing.T) {
	t.Parallel()
	const ports, first = 8, 21000
	l := up(t, Options(Site{Overlay: "VXLAN", Mode: Disabled}, "Auto"))
	ctx, cancel := deadline(t, programTimeout)
	defer cancel()
	type client struct {
		title  string
		from   *lab.Place
		target netip.AddrPort
		port   int // the first of its ports
	}
	var clients []client
	for _, ipv6 := range []bool{false, true} {
		s, port := serviceFor(spread, ipv6), first
		if ipv6 {
			port += ports
		}
		clients = append(clients,
			client{"pod to ClusterIP", &l.Pod(podName("client", ipv6)).Place, s.address(l, ClusterIP), port},
			client{"node to ClusterIP", &l.Nodes[0].Place, s.address(l, ClusterIP), port},
			client{"outside to NodePort", &l.Clients[0].Place, s.address(l, NodePort), port})
	}
	backends := map[string]int{}
	for _, c := range clients {
		for i := range ports {
			conn, backend, err := dialFrom(c.from, c.target, c.port+i)
			if err != nil {
				t.Fatalf("%s: %v", c.title, err)
			}
			backends[backend]++
			forgetConnection(t, conn)
		}
	}
	t.Logf("connections by backend: %v", backends)
	if len(backends) < 2 {
		t.Fatalf("all connections have one backend: %v", backends)
	}
	for _, ipv6 := range []bool{false, true} {
		far := l.Pod(podName("far", ipv6))
		if out, err := far.Run(ctx, "ip", "link", "set", "eth0", "down"); err != nil { // it says no farewell
			t.Fatalf("%v: %s", err, out)
		}
		if err := l.RemovePod(ctx, far); err != nil {
			t.Fatal(err)
		}
		for _, n := range l.Nodes {
			if err := n.WaitFrontend(ctx, serviceFor(spread, ipv6).address(l, ClusterIP), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range clients {
		for i := range ports {
			conn, _, err := dialFrom(c.from, c.target, c.port+i)
			if err != nil {
				t.Errorf("%s again: %v", c.title, err)
				continue
			}
			conn.Close()
		}
	}
}

// dialFrom connects to a probe's echo service from a place and a port, and returns the probe's name.
func dialFrom(from *lab.Place, to netip.AddrPort, port int) (conn net.Conn, server string, err error) {
	const limit = 3 * time.Second
	err = from.Namespace.Do(func() error {
		d := net.Dialer{Timeout: limit, LocalAddr: &net.TCPAddr{Port: port}, Control: sharePort}
		if conn, err = d.Dial("tcp", to.String()); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		var hello struct{ Server string }
		if err := json.NewDecoder(conn).Decode(&hello); err != nil {
			conn.Close()
			return fmt.Errorf("read the hello: %w", err)
		}
		server = hello.Server
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("from port %d of %s to %s: %w", port, from.Name, to, err)
	}
	return conn, server, nil
}

// sharePort lets other connections have the same port, to other ends.
func sharePort(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
		return e
	}
	return err
}

// forgetConnection closes a connection without a segment that says so (TCP_REPAIR: tcp(7)).
func forgetConnection(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	}); err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Fatalf("forget a connection: %v", failed)
	}
	conn.Close()
}

// An address of a node's pod range that no pod has is told to be so, to whoever asks and at once: packets to it do not
// leave by the default route, which may lead to a network that sends them back.
func TestAnAddressWithoutAPodIsUnreachable(t *testing.T) {
	for _, overlay := range []string{"VXLAN", "Direct"} {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			l := up(t, Options(Site{Overlay: overlay, Mode: Enabled}, "Auto"))
			for _, ipv6 := range []bool{false, true} {
				bytes := l.Pod(podName("near", ipv6)).Address(ipv6).AsSlice()
				bytes[len(bytes)-1] = 199
				nobody, _ := netip.AddrFromSlice(bytes)
				if way, err := l.Nodes[0].Run(t.Context(), "ip", "route", "get", nobody.String()); err == nil {
					t.Errorf("%s sends packets for %s away: %s", l.Nodes[0].Name, nobody, way)
				}
				from := []*lab.Place{&l.Pod(podName("client", ipv6)).Place, &l.Nodes[0].Place, &l.Pod(podName("far", ipv6)).Place, &l.Nodes[1].Place}
				if overlay == "Direct" { // where the network knows the pods' addresses
					from = append(from, &l.Clients[0].Place)
				}
				for _, place := range from {
					_, _, err := dialFrom(place, netip.AddrPortFrom(nobody, 80), 0)
					if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) { // IPv6's forwarding says the latter
						t.Errorf("%s to %s: %v, want that it is unreachable", place.Name, nobody, err)
					}
				}
			}
		})
	}
}
