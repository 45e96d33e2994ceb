// SPDX-License-Identifier: Apache-2.0

package endpoints

// slots hands out small numbers that index rows of fixed maps. 0 is never handed out: it means
// "none". A freed number is used again as late as possible, so that a packet in flight or a stale
// reference does not meet a new owner at once.
type slots struct {
	used  []bool
	next  uint32
	count uint32
}

// newSlots makes an allocator of the numbers 1 .. size-1.
func newSlots(size uint32) *slots { return &slots{used: make([]bool, size), next: 1} }

// adopt takes a number that was handed out by an earlier run; false where it can not be had.
func (s *slots) adopt(n uint32) bool {
	if n == 0 || n >= uint32(len(s.used)) || s.used[n] {
		return false
	}
	s.used[n] = true
	s.count++
	if n >= s.next {
		s.next = n + 1
	}
	return true
}

// alloc hands out a free number, or 0 when there is none.
func (s *slots) alloc() uint32 {
	size := uint32(len(s.used))
	if size < 2 || s.count >= size-1 {
		return 0
	}
	for {
		if s.next >= size {
			s.next = 1
		}
		n := s.next
		s.next++
		if !s.used[n] {
			s.used[n] = true
			s.count++
			return n
		}
	}
}

// free gives a number back.
func (s *slots) free(n uint32) {
	if n == 0 || n >= uint32(len(s.used)) || !s.used[n] {
		return
	}
	s.used[n] = false
	s.count--
}
