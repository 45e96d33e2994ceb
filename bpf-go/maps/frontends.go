// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// FrontendKey is what a client connects to. The address that stands for "a NodePort on any other
// node's address" is AnyNode.
type FrontendKey struct {
	Addr  netip.Addr
	Port  uint16
	Proto uint8
}

// AnyNode is the address of a family's NodePort wildcards: all ones.
func AnyNode(family layout.Family) netip.Addr {
	if family == layout.FamilyV4 {
		return netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	var b [16]byte
	for i := range b {
		b[i] = 0xff
	}
	return netip.AddrFrom16(b)
}

// Frontends are cali_v4_nat_fe3 and cali_v6_nat_fe3.
type Frontends struct {
	*Dual[FrontendKey, layout.FEValue]
}

func frontendCodec[A layout.Address]() codec[FrontendKey, layout.FEValue, layout.FEKey[A], layout.FEValue] {
	return codec[FrontendKey, layout.FEValue, layout.FEKey[A], layout.FEValue]{
		key: func(k FrontendKey) (layout.FEKey[A], error) {
			addr, err := layout.AddrFrom[A](k.Addr)
			return layout.FEKey[A]{Addr: addr, PortBE: layout.PortBE(k.Port), Proto: k.Proto}, err
		},
		unkey: func(k layout.FEKey[A]) FrontendKey {
			return FrontendKey{Addr: k.Addr.Addr(), Port: layout.PortOf(k.PortBE), Proto: k.Proto}
		},
		value:   same[layout.FEValue],
		unvalue: func(v layout.FEValue) layout.FEValue { return v },
	}
}

// same is the conversion of a value without an address.
func same[V any](v V) (V, error) { return v, nil }
