// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtaNHID is RTA_NH_ID: the route uses a nexthop object.
const rtaNHID = 30

// routeMsg is a route of the main table as netlink tells it.
type routeMsg struct {
	key      routeKey
	value    routeValue
	protocol uint8
}

// neighbourMsg is a neighbour entry as netlink tells it.
type neighbourMsg struct {
	ifindex  int
	addr     netip.Addr
	mac      MAC
	state    uint16
	protocol uint8
}

// permanent tells an entry that somebody has set from one that the kernel has learnt.
func (m *neighbourMsg) permanent() bool { return m.state&unix.NUD_PERMANENT != 0 }

// parseAll takes from netlink messages those that we care for.
func parseAll(raw []syscall.NetlinkMessage) []message {
	var out []message
	for _, m := range raw {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if l, ok := parseLink(m.Data); ok {
				out = append(out, message{link: &l, deleted: m.Header.Type == unix.RTM_DELLINK})
			}
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			if r, ok := parseRoute(m.Data); ok {
				out = append(out, message{route: &r, deleted: m.Header.Type == unix.RTM_DELROUTE})
			}
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			if n, ok := parseNeighbour(m.Data); ok {
				out = append(out, message{neighbour: &n, deleted: m.Header.Type == unix.RTM_DELNEIGH})
			}
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if a, ok := parseAddr(m.Data); ok {
				out = append(out, message{addr: a, deleted: m.Header.Type == unix.RTM_DELADDR})
			}
		}
	}
	return out
}

// parseLink reads an ifinfomsg. A bridge's reports about its ports (AF_BRIDGE), where "deleted" means that the port has
// left the bridge, are not about the interface.
func parseLink(b []byte) (linkMsg, bool) {
	if len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_UNSPEC {
		return linkMsg{}, false
	}
	m := linkMsg{
		index: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		up:    flagUp(binary.NativeEndian.Uint32(b[8:])),
	}
	forEachAttr(b[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		if typ == unix.IFLA_IFNAME {
			m.name = unix.ByteSliceToString(value)
		}
	})
	return m, m.name != ""
}

// parseAddr reads the address of an ifaddrmsg. IPv4 tells the local address apart from the far end's.
func parseAddr(b []byte) (netip.Addr, bool) {
	var out netip.Addr
	if len(b) < unix.SizeofIfAddrmsg {
		return out, false
	}
	forEachAttr(b[unix.SizeofIfAddrmsg:], func(typ uint16, value []byte) {
		if a, ok := netip.AddrFromSlice(value); ok && (typ == unix.IFA_LOCAL || typ == unix.IFA_ADDRESS && !out.IsValid()) {
			out = a
		}
	})
	return out, out.IsValid()
}

// parseRoute reads an rtmsg; false for what is not in the main table.
func parseRoute(b []byte) (routeMsg, bool) {
	if len(b) < unix.SizeofRtMsg {
		return routeMsg{}, false
	}
	family, bits, protocol, scope, typ := b[0], int(b[1]), b[5], b[6], b[7]
	table := uint32(b[4])
	flags := binary.NativeEndian.Uint32(b[8:])
	if flags&unix.RTM_F_CLONED != 0 || family != unix.AF_INET && family != unix.AF_INET6 {
		return routeMsg{}, false
	}
	m := routeMsg{protocol: protocol}
	m.value.onlink = flags&unix.RTNH_F_ONLINK != 0
	m.value.nothing = typ == unix.RTN_UNREACHABLE
	m.value.other = typ != unix.RTN_UNICAST && !m.value.nothing || b[2] != 0 || b[3] != 0
	dst := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	forEachAttr(b[unix.SizeofRtMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.RTA_TABLE:
			table = u32(value)
		case unix.RTA_DST:
			if a, ok := netip.AddrFromSlice(value); ok {
				dst = a
			}
		case unix.RTA_GATEWAY:
			m.value.gateway, _ = netip.AddrFromSlice(value)
		case unix.RTA_OIF:
			m.value.ifindex = int(u32(value))
		case unix.RTA_PRIORITY:
			m.key.metric = u32(value)
		case unix.RTA_PREFSRC:
			m.value.source, _ = netip.AddrFromSlice(value)
		case unix.RTA_METRICS:
			forEachAttr(value, func(metric uint16, value []byte) {
				if metric == unix.RTAX_MTU {
					m.value.mtu = u32(value)
				} else {
					m.value.other = true
				}
			})
		case unix.RTA_MULTIPATH, unix.RTA_ENCAP, unix.RTA_VIA, rtaNHID:
			m.value.other = true
		}
	})
	if table != unix.RT_TABLE_MAIN || bits > dst.BitLen() {
		return routeMsg{}, false
	}
	wantScope := uint8(unix.RT_SCOPE_UNIVERSE)
	if family == unix.AF_INET && !m.value.gateway.IsValid() && !m.value.nothing {
		wantScope = unix.RT_SCOPE_LINK
	}
	m.value.other = m.value.other || scope != wantScope
	m.key.dst = netip.PrefixFrom(dst, bits)
	return m, true
}

// parseNeighbour reads an ndmsg; false for bridges' forwarding entries and proxies.
func parseNeighbour(b []byte) (neighbourMsg, bool) {
	if len(b) < unix.SizeofNdMsg {
		return neighbourMsg{}, false
	}
	family, flags := b[0], b[10]
	if family != unix.AF_INET && family != unix.AF_INET6 || flags&unix.NTF_PROXY != 0 {
		return neighbourMsg{}, false
	}
	m := neighbourMsg{
		ifindex: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		state:   binary.NativeEndian.Uint16(b[8:]),
	}
	forEachAttr(b[unix.SizeofNdMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NDA_DST:
			m.addr, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			copy(m.mac[:], value)
		case netlink.NDA_PROTOCOL:
			if len(value) > 0 {
				m.protocol = value[0]
			}
		}
	})
	return m, m.addr.IsValid()
}

// forEachAttr calls f for each attribute; a broken one ends the walk.
func forEachAttr(b []byte, f func(typ uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
}

func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// neighbourRequest is the body of a request about one entry.
func neighbourRequest(ifindex int, addr netip.Addr, state uint16) []nl.NetlinkRequestData {
	family := uint8(unix.AF_INET6)
	if addr.Is4() {
		family = unix.AF_INET
	}
	return []nl.NetlinkRequestData{
		ndMsg{family: family, index: uint32(ifindex), state: state},
		nl.NewRtAttr(unix.NDA_DST, addr.AsSlice()),
	}
}

// ndMsg is struct ndmsg.
type ndMsg struct {
	family uint8
	index  uint32
	state  uint16
}

// Len is the size of the message.
func (m ndMsg) Len() int { return unix.SizeofNdMsg }

// Serialize is the message as the kernel reads it.
func (m ndMsg) Serialize() []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = m.family
	binary.NativeEndian.PutUint32(b[4:], m.index)
	binary.NativeEndian.PutUint16(b[8:], m.state)
	return b
}
