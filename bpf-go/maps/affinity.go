// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// AffinityKey is a client of a service port. Kind 0 is a client by address.
type AffinityKey struct {
	Client netip.Addr
	SvcID  uint32
	Kind   uint32
}

// Affinity are cali_v4_nat_aff and cali_v6_nat_aff. The datapath writes them.
type Affinity struct {
	*Dual[AffinityKey, layout.AffValue]
}

func affinityCodec[A layout.Address]() codec[AffinityKey, layout.AffValue, layout.AffKey[A], layout.AffValue] {
	return codec[AffinityKey, layout.AffValue, layout.AffKey[A], layout.AffValue]{
		key: func(k AffinityKey) (layout.AffKey[A], error) {
			addr, err := layout.AddrFrom[A](k.Client)
			return layout.AffKey[A]{Client: addr, SvcID: k.SvcID, Kind: k.Kind}, err
		},
		unkey: func(k layout.AffKey[A]) AffinityKey {
			return AffinityKey{Client: k.Client.Addr(), SvcID: k.SvcID, Kind: k.Kind}
		},
		value:   same[layout.AffValue],
		unvalue: func(v layout.AffValue) layout.AffValue { return v },
	}
}
