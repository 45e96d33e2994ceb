// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// nodePortService is a NodePort as the agent writes it: on the node's own addresses and by the wildcard.
func nodePortService(f layout.Family, proto uint8) []service {
	s := clusterIP(f, proto)
	s.id += 20
	s.port, s.flags = nodePort, layout.FEExternal|layout.FENodeport
	var all []service
	for _, addr := range []string{own[f], "*"} {
		s.addr = addr
		all = append(all, s)
	}
	return all
}

var loopbacks = [2][]string{{"127.0.0.1", "127.1.2.3", "0.0.0.0"}, {"::1", "::"}}

func TestTheHostReachesNodePortsOnOwnOtherAndLoopbackAddresses(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(nodePortService(f, unix.IPPROTO_TCP)...)
		n.serve(nodePortService(f, unix.IPPROTO_UDP)...)
		n.route(other[f]+[]string{"/32", "/128"}[f], layout.RTHost)
		n.route(own[f]+[]string{"/32", "/128"}[f], layout.RTHost|layout.RTLocal)
		for _, addr := range append([]string{own[f], other[f]}, loopbacks[f]...) {
			at := target(addr, nodePort)
			tcp(at).want(t, backends[f][0], at)
			udp(at).want(t, backends[f][0], at)
			// An unconnected socket names no unspecified address: the kernel has put the loopback there.
			p := packetConn(t, []string{"udp4", "udp6"}[f], "")
			if a := sendto(p, at); a.err != nil || a.server != backends[f][0] {
				t.Errorf("%s: answered by %q as %q (%v)", at, a.server, a.peer, a.err)
			}
			p.Close()
		}
	})
}

func TestAPodReachesNodePortsOfNodesButItsLoopbackIsItsOwn(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(nodePortService(f, unix.IPPROTO_TCP)...)
		n.route(other[f]+[]string{"/32", "/128"}[f], layout.RTHost)
		in(t, n.pod(), func() {
			for _, addr := range []string{own[f], other[f]} {
				at := target(addr, nodePort)
				tcp(at).want(t, backends[f][0], at)
			}
			for _, addr := range loopbacks[f] {
				tcp(target(addr, nodePort)).wantError(t, unix.ECONNREFUSED)
			}
			n.server(target(loopbacks[f][0], nodePort), "the pod's own")
			at := target(loopbacks[f][0], nodePort)
			tcp(at).want(t, "the pod's own", at)
		})
	})
}

func TestANodePortMeansNothingOnAddressesThatAreNoNodes(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(nodePortService(f, unix.IPPROTO_TCP)...)
		n.route(backends[f][1]+[]string{"/32", "/128"}[f], layout.RTWorkload)
		for _, addr := range backends[f][1:] {
			tcp(target(addr, nodePort)).wantError(t, unix.ECONNREFUSED)
		}
	})
}

func bind(t *testing.T, f layout.Family, kind int, p uint16) error {
	t.Helper()
	fd := socket(t, f, kind)
	return unix.Bind(fd, sockaddr(target([]string{"0.0.0.0", "::"}[f], p)))
}

func TestTheHostCanNotBindANodePortInUseAndAPodCan(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(nodePortService(f, unix.IPPROTO_TCP)...)
		if err := bind(t, f, unix.SOCK_STREAM, nodePort); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("bind: %v, want that the address is in use", err)
		}
		for _, free := range []error{bind(t, f, unix.SOCK_STREAM, nodePort+1), bind(t, f, unix.SOCK_DGRAM, nodePort), bind(t, f, unix.SOCK_STREAM, 0)} {
			if free != nil {
				t.Errorf("bind of a port that is no NodePort of the protocol: %v", free)
			}
		}
		in(t, n.pod(), func() {
			l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(nodePort)))
			if err != nil {
				t.Errorf("a pod can not bind: %v", err)
				return
			}
			l.Close()
		})
		n.attach(allFlags &^ layout.CTLBSetRetval)
		if err := bind(t, f, unix.SOCK_STREAM, nodePort); !errors.Is(err, unix.EPERM) {
			t.Errorf("without set-retval, bind: %v, want that it is not permitted", err)
		}
	})
}

// A socket of IPv6 that is bound to any address takes IPv4's connections, too; so does one on an IPv4-mapped address.
func TestTheHostCanNotBindANodePortOfIPv4ByASocketOfBothFamilies(t *testing.T) {
	n := newNode(t)
	n.attach(allFlags)
	n.serve(nodePortService(layout.FamilyV4, unix.IPPROTO_TCP)...)
	bindTo := func(at unix.Sockaddr) error {
		fd := socket(t, layout.FamilyV6, unix.SOCK_STREAM)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			t.Fatal(err)
		}
		return unix.Bind(fd, at)
	}
	for what, at := range map[string]unix.Sockaddr{
		"any address": sockaddr(target("::", nodePort)), "an IPv4-mapped address": mapped("127.0.0.1", nodePort),
		"the IPv4-mapped any address": mapped("0.0.0.0", nodePort),
	} {
		if err := bindTo(at); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: %v, want that the address is in use", what, err)
		}
	}
	for what, at := range map[string]unix.Sockaddr{
		"an address of IPv6": sockaddr(target("::1", nodePort)), "another port": sockaddr(target("::", nodePort+1)),
	} {
		if err := bindTo(at); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
