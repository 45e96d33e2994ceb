// SPDX-License-Identifier: Apache-2.0

// Package interfaces decides which of the node's network interfaces get which programs.
//
// In: a plain description of every link of the node (package endpoints builds it from netlink),
// the node's default routes and addresses, and the configured patterns. Out: a class for each
// link. It is pure: no I/O, no state, no panic on anything a kernel may report.
package interfaces

import (
	"net/netip"
	"regexp"
)

// Names of the interfaces that are ours.
const (
	TunnelName    = "vxlan.calico"
	IPIPName      = "tunl0"
	WireGuardName = "wireguard.cali"
	NATInName     = "bpfin.cali"
	NATOutName    = "bpfout.cali"
)

// Class says which programs an interface gets.
type Class uint8

// The classes. None gets no program.
const (
	None     Class = iota
	Workload       // host side of a pod's veth
	Host           // uplink, bond, VLAN, bridge that carries the node's address
	Loopback       // lo
	NAT            // bpfout.cali
	Tunnel         // vxlan.calico
	L3             // no Ethernet header: WireGuard, TUN
)

var classNames = [...]string{"none", "workload", "host", "lo", "nat", "tunnel", "l3dev"}

// String returns the class's name as the CLI prints it.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Number returns the class's value in enum cali_class (bpf-c/variant.h); false for None.
func (c Class) Number() (uint8, bool) {
	if c == None || int(c) >= len(classNames) {
		return 0, false
	}
	return uint8(c) - 1, true
}

// Link is one network interface, as much of it as decides about its class.
type Link struct {
	Index int
	Name  string
	// Kind is the kernel's link kind: device, veth, bond, bridge, vlan, vxlan, tun (also written
	// tuntap), wireguard, dummy, ipip ...
	Kind string
	// Ethernet: packets carry an Ethernet header.
	Ethernet bool
	Loopback bool
	Up       bool
	MAC      string
	MTU      int
	// Master is the index of the bond, bridge or VRF the link belongs to, 0 if none.
	Master int
	// Parent is the index of the device below (a VLAN's), 0 if none.
	Parent    int
	Addresses []netip.Prefix
}

// View is the node as a whole: what makes a link an uplink.
type View struct {
	// Links are all links by index.
	Links map[int]Link
	// DefaultRoutes are the indices of links that a default route, of either family, points to.
	DefaultRoutes []int
	// NodeAddresses are the addresses of this node's Node object.
	NodeAddresses []netip.Addr
}

// Config holds the configured patterns.
type Config struct {
	// Workload matches the host side of pods' interfaces (default ^cali).
	Workload *regexp.Regexp
	// Uplink, if set, replaces the automatic choice: links that match are host interfaces, others
	// are not.
	Uplink *regexp.Regexp
	// L3, if set, matches further interfaces without Ethernet header that get programs.
	L3 *regexp.Regexp
}

// virtual kinds are never uplinks by themselves, whatever route or address they carry: they lead
// to pods, containers or nowhere.
var virtual = map[string]bool{"dummy": true, "nlmon": true, "ifb": true, "vcan": true, "vrf": true}

// overlays are tunnels of the kernel that are not ours.
var overlays = map[string]bool{
	"vxlan": true, "geneve": true, "gre": true, "gretap": true, "ip6gre": true, "ip6gretap": true, "ipip": true, "sit": true,
	"ip6tnl": true, "erspan": true, "vti": true, "vti6": true, "xfrm": true, "bareudp": true,
}

// Classify returns the class of a link. A name that is ours decides first, then the workload
// pattern, then what kind of device it is and whether it is an uplink.
func Classify(l Link, v View, c Config) Class {
	switch l.Name {
	case TunnelName:
		return Tunnel
	case IPIPName:
		// The kernel makes a tunl0 in every namespace once its module is there. Its packets have no
		// Ethernet header, which the tunnel programs expect: it is an L3 device, if anything.
		if l.Ethernet {
			return Tunnel
		}
	case NATOutName:
		return NAT
	case NATInName:
		// What is sent into bpfin comes out of bpfout, where the program is.
		return None
	}
	switch {
	case l.Loopback || l.Name == "lo":
		return Loopback
	case matches(c.Workload, l.Name):
		return Workload
	case v.isPort(l):
		// A bond's or bridge's port: what it carries is seen on its master, once.
		return None
	case !l.Ethernet:
		if l.Name == WireGuardName || matches(c.L3, l.Name) || matches(c.Uplink, l.Name) || (c.Uplink == nil && v.isUplink(l)) {
			return L3
		}
		return None
	case c.Uplink != nil:
		if matches(c.Uplink, l.Name) {
			return Host
		}
		return None
	case v.isUplink(l) && !virtual[l.Kind] && !overlays[l.Kind]:
		return Host
	}
	return None
}

// Uplinks returns the indices of the links that Classify calls Host or, where one carries a
// default route or a node address, L3. The order is that of the links' indices.
func Uplinks(v View, c Config) []int {
	var out []int
	for i := range v.sorted() {
		l := v.Links[i]
		if cl := Classify(l, v, c); cl == Host || (cl == L3 && v.isUplink(l)) {
			out = append(out, i)
		}
	}
	return out
}

func matches(re *regexp.Regexp, name string) bool {
	return re != nil && re.MatchString(name)
}
