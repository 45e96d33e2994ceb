// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Protocol numbers of the services used here.
const (
	protoTCP = 6
	protoUDP = 17
)

// family is an address family: 4 or 6.
type family int

func (f family) String() string { return fmt.Sprintf("v%d", int(f)) }

// netlink is the kernel's number of the family.
func (f family) netlink() int {
	if f == 4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// The addresses are the same in every mode: each has namespaces of its own.
var (
	podCIDR     = map[family]netip.Prefix{4: netip.MustParsePrefix("10.65.1.0/24"), 6: netip.MustParsePrefix("fd00:65:1::/64")}
	serviceCIDR = map[family]netip.Prefix{4: netip.MustParsePrefix("10.96.0.0/12"), 6: netip.MustParsePrefix("fd00:96::/112")}
	nodeAddr    = map[family]netip.Addr{4: netip.MustParseAddr("172.31.0.1"), 6: netip.MustParseAddr("fd00:31::1")}
	serverAddr  = map[family]netip.Addr{4: netip.MustParseAddr("10.65.1.64"), 6: netip.MustParseAddr("fd00:65:1::40")}
)

// clientAddrs is how many addresses the client pod has in each family: with them a source (address,
// port) pair is used again only after conntrack has forgotten it, so a "new flow" really is new.
const clientAddrs = 16

func clientAddr(f family, i int) netip.Addr {
	if f == 4 {
		return netip.AddrFrom4([4]byte{10, 65, 1, byte(16 + i)})
	}
	a := serverAddr[6].As16()
	binary.BigEndian.PutUint16(a[14:], uint16(0x100+i))
	return netip.AddrFrom16(a)
}

// crowdBackends is how many backends the service with many has.
const crowdBackends = 12

// crowdAddr is the address of one of them.
func crowdAddr(f family, i int) netip.Addr { return addrPlus(serverAddr[f], uint32(64+i)) }

// endpoint is one backend of a service port.
type endpoint struct {
	addr netip.Addr
	port uint16
}

// servicePort is one port of a service in one family, with its endpoints.
type servicePort struct {
	service  string
	portName string
	addr     netip.Addr
	proto    uint8
	port     uint16
	backends []endpoint
}

// protoName is the protocol's name in rules and manifests, in lower case.
func (s servicePort) protoName() string {
	if s.proto == protoUDP {
		return "udp"
	}
	return "tcp"
}

// fleet returns the service ports of n services in family f.
func fleet(n int, f family) []servicePort {
	var out []servicePort
	for i := range n {
		out = append(out, servicePortsOf(n, i, f)...)
	}
	return out
}

// servicePortsOf returns the ports of service i of n. The measured services stand in the middle, so
// that a linear search is charged for half of its list: first one with one backend, then one with many;
// they have a port for each of their listeners. The others have one TCP port and one endpoint on another
// node.
func servicePortsOf(n, i int, f family) []servicePort {
	vip := vipOf(f, i)
	switch i {
	case n / 2:
		return portsOf(measuredService, vip, listeners, serverAddr[f])
	case n/2 + 1:
		return portsOf(crowdService, vip, crowdListeners, crowdAddrs(f)...)
	}
	return []servicePort{{
		service: fmt.Sprintf("other-%05d", i), portName: "web", addr: vip, proto: protoTCP, port: 80,
		backends: []endpoint{{remoteAddr(f, i), 8080}},
	}}
}

// portsOf are a service's ports, one for each listener of its backends.
func portsOf(service string, vip netip.Addr, ls []listener, backends ...netip.Addr) []servicePort {
	var out []servicePort
	for _, l := range ls {
		p := servicePort{service: service, portName: l.name, addr: vip, proto: l.proto, port: l.servicePort}
		for _, a := range backends {
			p.backends = append(p.backends, endpoint{a, l.targetPort})
		}
		out = append(out, p)
	}
	return out
}

func crowdAddrs(f family) []netip.Addr {
	var out []netip.Addr
	for i := range crowdBackends {
		out = append(out, crowdAddr(f, i))
	}
	return out
}

// measuredVIP is the address of the measured service among n, crowdVIP that of the one with many backends.
func measuredVIP(n int, f family) netip.Addr { return vipOf(f, n/2) }
func crowdVIP(n int, f family) netip.Addr    { return vipOf(f, n/2+1) }

// vipOf is the cluster IP of service i; index 0 is the first usable address.
func vipOf(f family, i int) netip.Addr { return addrPlus(serviceCIDR[f].Addr(), uint32(i)+1) }

// remoteAddr is a pod address on another node.
func remoteAddr(f family, i int) netip.Addr {
	if f == 4 {
		return addrPlus(netip.MustParseAddr("10.66.0.0"), uint32(i)+1)
	}
	return addrPlus(netip.MustParseAddr("fd00:66::"), uint32(i)+1)
}

// addrPlus adds n to the last 32 bits of an address.
func addrPlus(a netip.Addr, n uint32) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+n)
	return netip.AddrFrom16(b)
}

// Names of the measured services.
const (
	measuredService = "echo"
	crowdService    = "crowd"
)

// listener is a socket of the server pod and the service port that leads to it.
type listener struct {
	name        string
	proto       uint8
	servicePort uint16
	targetPort  uint16
}

const (
	listenShort = iota // accepts, answers one request, waits for the end
	listenRR           // one open connection
	listenUDP          // echoes datagrams
)

var listeners = []listener{
	listenShort: {"short", protoTCP, 80, 8080},
	listenRR:    {"rr", protoTCP, 81, 8081},
	listenUDP:   {"udp", protoUDP, 53, 5353},
}

// The listeners of the service with many backends.
const (
	crowdShort = iota // as listenShort
	crowdHTTP         // HTTP/1.1
)

var crowdListeners = []listener{
	crowdShort: {"short", protoTCP, 80, 8090},
	crowdHTTP:  {"http", protoTCP, 8000, 8091},
}
