// SPDX-License-Identifier: Apache-2.0

package services

import "net/netip"

// idSpace gives out ids: always upwards, so that an id is used again as late as possible. What
// else knows ids (conntrack, affinity) then does not mistake a new owner for the old one.
type idSpace struct {
	last uint32
	used map[uint32]struct{}
}

func newIDSpace() idSpace { return idSpace{used: map[uint32]struct{}{}} }

func (s *idSpace) reserve(id uint32) {
	s.used[id] = struct{}{}
	s.last = max(s.last, id)
}

func (s *idSpace) release(id uint32) { delete(s.used, id) }

// next returns an id that is not in use, never 0.
func (s *idSpace) next() uint32 {
	for {
		s.last++
		if _, taken := s.used[s.last]; !taken && s.last != 0 {
			s.used[s.last] = struct{}{}
			return s.last
		}
	}
}

// maxBackendID is the largest backend id: the two bits above it say which list.
const maxBackendID = ByIDList - 1

// backendIDs gives out backend ids, upwards like idSpace. They have to be distinct inside a service
// port only, so which are in use is not kept: it matters when 2^30 have been given out.
type backendIDs struct {
	last    uint32
	wrapped bool
}

func (b *backendIDs) reserve(id uint32) {
	if id <= maxBackendID {
		b.last = max(b.last, id)
	}
}

// next returns an id that none of a service port's backends has.
func (b *backendIDs) next(port map[netip.AddrPort]uint32) uint32 {
	for {
		b.last++
		if b.last > maxBackendID {
			b.last, b.wrapped = 1, true
		}
		if !b.wrapped || !inUse(port, b.last) {
			return b.last
		}
	}
}

func inUse(port map[netip.AddrPort]uint32, id uint32) bool {
	for _, used := range port {
		if used == id {
			return true
		}
	}
	return false
}
