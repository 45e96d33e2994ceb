// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"io"
	"net"
	"net/netip"
	"testing"
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
			conns := map[netip.AddrPort]net.Conn{}
			for _, to := range []netip.AddrPort{pod, service} {
				conn, _, err := dialFrom(&l.Nodes[0].Place, to, port)
				if err != nil {
					t.Error(err)
					continue
				}
				conns[to] = conn
			}
			for to, conn := range conns {
				answer := make([]byte, 8) // an empty frame: its length and its checksum
				if _, err := conn.Write(answer); err != nil {
					t.Errorf("%s, port %d: %v", to, port, err)
				} else if _, err := io.ReadFull(conn, answer); err != nil {
					t.Errorf("%s, port %d: no answer: %v", to, port, err)
				}
				conn.Close()
			}
		}
	}
}
