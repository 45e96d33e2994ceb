// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// Address is an address of one family, as it stands in keys and values.
type Address interface {
	AddrV4 | AddrV6

	// Addr is the address as the rest of Go knows it.
	Addr() netip.Addr
	// Family is the family of the type.
	Family() Family
}

// Addr is the address as the rest of Go knows it.
func (a AddrV4) Addr() netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], a.W[0])
	return netip.AddrFrom4(b)
}

// Family is FamilyV4.
func (a AddrV4) Family() Family { return FamilyV4 }

// String is the address in its usual text form.
func (a AddrV4) String() string { return a.Addr().String() }

// Addr is the address as the rest of Go knows it.
func (a AddrV6) Addr() netip.Addr { return netip.AddrFrom16(bytes16(a.W)) }

// Family is FamilyV6.
func (a AddrV6) Family() Family { return FamilyV6 }

// String is the address in its usual text form.
func (a AddrV6) String() string { return a.Addr().String() }

// AddrFrom converts an address to the form of family A. IPv4-mapped IPv6 counts as IPv4. An
// address of the other family is an error: it would match nothing, or the wrong thing.
func AddrFrom[A Address](addr netip.Addr) (A, error) {
	var out A
	addr = addr.Unmap()
	switch p := any(&out).(type) {
	case *AddrV4:
		if !addr.Is4() {
			return out, fmt.Errorf("address %v is not IPv4", addr)
		}
		b := addr.As4()
		p.W[0] = binary.NativeEndian.Uint32(b[:])
	case *AddrV6:
		if !addr.Is6() {
			return out, fmt.Errorf("address %v is not IPv6", addr)
		}
		p.W = words16(addr.As16())
	}
	return out, nil
}

// FamilyOf is an address's family; IPv4-mapped IPv6 counts as IPv4.
func FamilyOf(addr netip.Addr) Family {
	if addr.Unmap().Is4() {
		return FamilyV4
	}
	return FamilyV6
}

// AnyFrom converts an address of either family to the form of underlay addresses: IPv4 stands in
// the first word. The zero Addr becomes all zero.
func AnyFrom(addr netip.Addr) AddrAny {
	var out AddrAny
	addr = addr.Unmap()
	switch {
	case addr.Is4():
		b := addr.As4()
		out.W[0] = binary.NativeEndian.Uint32(b[:])
	case addr.Is6():
		out.W = words16(addr.As16())
	}
	return out
}

// Addr is the address; whether it is IPv6 is said elsewhere in the value. All zero is no address:
// the zero Addr.
func (a AddrAny) Addr(v6 bool) netip.Addr {
	if a.W == [4]uint32{} {
		return netip.Addr{}
	}
	if v6 {
		return netip.AddrFrom16(bytes16(a.W))
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], a.W[0])
	return netip.AddrFrom4(b)
}

// PortBE is a port in network byte order, for fields whose names end in BE.
func PortBE(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// PortOf is the port of a field in network byte order.
func PortOf(be uint16) uint16 { return PortBE(be) }

func bytes16(w [4]uint32) (b [16]byte) {
	for i, word := range w {
		binary.NativeEndian.PutUint32(b[4*i:], word)
	}
	return b
}

func words16(b [16]byte) (w [4]uint32) {
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// flagNames joins the names of the bits that are set; a bit without a name is printed as a number.
func flagNames(v uint32, names []string) string {
	if v == 0 {
		return "-"
	}
	var set []string
	for v != 0 {
		bit := bits.TrailingZeros32(v)
		v &^= 1 << bit
		if bit < len(names) && names[bit] != "" {
			set = append(set, names[bit])
		} else {
			set = append(set, "bit"+strconv.Itoa(bit))
		}
	}
	return strings.Join(set, ",")
}

// IsDrop reports whether the counter is a drop reason: the packet ended there.
func (v Counter) IsDrop() bool { return v >= DropPolicy && v < CountStraight }
