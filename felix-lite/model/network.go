// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net"
	"net/netip"
)

// Family is an address family. Its values are those of enum cali_family in bpf-c/variant.h.
type Family uint8

// The two families.
const (
	IPv4 Family = 0
	IPv6 Family = 1
)

// Families lists both families, for loops.
var Families = [2]Family{IPv4, IPv6}

// String returns IPv4 or IPv6, as Kubernetes writes it.
func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// FamilyOf returns the family of a valid address; an IPv4-mapped IPv6 address is IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// Protocol is an IP protocol number of a service port.
type Protocol uint8

// The protocols a service port may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns TCP, UDP or SCTP, or the number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol understands what Kubernetes writes; empty means TCP.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "", "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("unknown protocol %q: must be TCP, UDP or SCTP", s)
}

// PortRef is a target port: a number, or the name of a container port. The zero value means
// "the same as the service's port".
type PortRef struct {
	Number uint16
	Name   string
}

// MAC is an Ethernet address that can be compared.
type MAC [6]byte

// String returns the address in colon notation.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }
