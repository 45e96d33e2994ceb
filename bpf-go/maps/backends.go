// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// BackendKey is a place in a service port's backend lists. The family is that of the backend.
type BackendKey struct {
	Family  layout.Family
	SvcID   uint32
	Ordinal uint32 // position, with layout.BELocal or layout.BEByID in the top bits
}

// Backend is one endpoint of a service port.
type Backend struct {
	Addr   netip.Addr
	Port   uint16
	Weight uint16
	ID     uint32
	Flags  uint32
}

// Backends are cali_v4_nat_be and cali_v6_nat_be.
type Backends struct{ *Dual[BackendKey, Backend] }

func backendCodec[A layout.Address]() codec[BackendKey, Backend, layout.BEKey, layout.BEValue[A]] {
	var a A
	family := a.Family()
	return codec[BackendKey, Backend, layout.BEKey, layout.BEValue[A]]{
		key: func(k BackendKey) (layout.BEKey, error) {
			return layout.BEKey{SvcID: k.SvcID, Ordinal: k.Ordinal}, nil
		},
		unkey: func(k layout.BEKey) BackendKey {
			return BackendKey{Family: family, SvcID: k.SvcID, Ordinal: k.Ordinal}
		},
		value: func(b Backend) (layout.BEValue[A], error) {
			addr, err := layout.AddrFrom[A](b.Addr)
			return layout.BEValue[A]{
				Addr: addr, PortBE: layout.PortBE(b.Port), Weight: b.Weight, ID: b.ID, Flags: b.Flags,
			}, err
		},
		unvalue: func(v layout.BEValue[A]) Backend {
			return Backend{
				Addr: v.Addr.Addr(), Port: layout.PortOf(v.PortBE), Weight: v.Weight, ID: v.ID, Flags: v.Flags,
			}
		},
	}
}
