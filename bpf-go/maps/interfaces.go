// SPDX-License-Identifier: Apache-2.0

package maps

import "github.com/felix-lite/felix-lite/bpf-go/layout"

// Interfaces is cali_iface2, keyed by ifindex.
type Interfaces struct {
	*Map[uint32, layout.IfaceValue]
}
