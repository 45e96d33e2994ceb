// SPDX-License-Identifier: Apache-2.0

package interfaces

import (
	"iter"
	"maps"
	"slices"
)

// isPort reports whether a link is a port of a bond, team or bridge. A member of a VRF is not: the
// VRF device sees its packets, but the link itself stays the one that carries them.
func (v View) isPort(l Link) bool {
	if l.Master == 0 {
		return false
	}
	m, known := v.Links[l.Master]
	// A master that has not been seen yet is taken for a bond: nothing is attached to a port by
	// mistake, and the master's own message leads to a second look.
	return !known || m.Kind != "vrf"
}

// isUplink reports whether a link carries a default route or an address of the Node object.
func (v View) isUplink(l Link) bool {
	if slices.Contains(v.DefaultRoutes, l.Index) {
		return true
	}
	for _, p := range l.Addresses {
		a := p.Addr().Unmap()
		if a.IsLinkLocalUnicast() {
			continue
		}
		if slices.Contains(v.NodeAddresses, a) {
			return true
		}
	}
	return false
}

func (v View) sorted() iter.Seq[int] {
	return slices.Values(slices.Sorted(maps.Keys(v.Links)))
}
