// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is what the manager knows of one network interface.
type Link struct {
	Index    int
	Name     string
	Kind     string // "veth", "vxlan", "tuntap", "device" ...
	MAC      string
	MTU      int
	Up       bool
	Loopback bool
	Ethernet bool // packets carry an Ethernet header
	Master   int  // index of the bridge or bond it belongs to, 0: none
	Parent   int  // index of the device below, 0: none (or in another namespace)
	Addrs    []netip.Prefix
}

// equal reports whether two links are the same in all that anyone here looks at.
func (l Link) equal(o Link) bool {
	return l.Index == o.Index && l.Name == o.Name && l.Kind == o.Kind && l.MAC == o.MAC && l.MTU == o.MTU && l.Up == o.Up &&
		l.Loopback == o.Loopback && l.Ethernet == o.Ethernet && l.Master == o.Master && l.Parent == o.Parent && slices.Equal(l.Addrs, o.Addrs)
}

// linkFrom converts what netlink says; addresses come by other messages.
func linkFrom(l netlink.Link) Link {
	a := l.Attrs()
	return Link{
		Index:    a.Index,
		Name:     a.Name,
		Kind:     l.Type(),
		MAC:      a.HardwareAddr.String(),
		MTU:      a.MTU,
		Up:       a.RawFlags&unix.IFF_UP != 0,
		Loopback: a.Flags&net.FlagLoopback != 0,
		Ethernet: a.EncapType == "ether",
		Master:   a.MasterIndex,
		Parent:   a.ParentIndex,
	}
}

// prefixFrom converts a kernel address; false where it is none that can be used.
func prefixFrom(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), true
}
