// SPDX-License-Identifier: Apache-2.0

package maps

import "github.com/felix-lite/felix-lite/bpf-go/layout"

// Conntrack is one family's flows: confirmed ones in a hash that never evicts, half-open ones in an
// LRU of their own. The datapath writes both; the sweeper deletes what has expired. Code for both
// families is written once, over A.
type Conntrack[A layout.Address] struct {
	Confirmed *Map[layout.CTKey[A], layout.CTValue[A]]
	HalfOpen  *Map[layout.CTKey[A], layout.CTValue[A]]
}
