// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"iter"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// ctStates is the number of conntrack states.
const ctStates = int(layout.CTReset) + 1

// Stats of one sweep over all tables.
type Stats struct {
	Started, Finished time.Time
	Busy              time.Duration // worked, the pauses not counted
	Steps             int
	Scanned           int
	Touched           int // judged dead, but seen again before it could be deleted
	Orphans           int // alive, but deleted: the twin is missing
	KeptByTwin        int // dead by itself, kept because the twin is alive
	Errors            int // tables given up
	HostFlows         int // alive, translated, and started by this host: they need bpfin.cali and bpfout.cali
	Tables            []TableFill

	deleted [ctStates + 1]int // by state; the last is for unknown ones
	live    [2][256]int       // by family and protocol
}

// TableFill is how full a table was after its sweep.
type TableFill struct {
	Name       string
	Entries    int
	MaxEntries int
}

// LiveKey is what living entries are counted by.
type LiveKey struct {
	Family string // v4, v6
	Proto  string // tcp, udp, ...
}

func newStats(start time.Time) Stats { return Stats{Started: start} }

// Deleted is the number of entries deleted.
func (s *Stats) Deleted() int {
	n := 0
	for _, c := range s.deleted {
		n += c
	}
	return n
}

// DeletedByState ranges over the states with the number of entries deleted in each; those with none are left out.
func (s *Stats) DeletedByState() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for state, n := range s.deleted {
			if n > 0 && !yield(layout.CTState(state).String(), n) {
				return
			}
		}
	}
}

// Live ranges over the kinds of entries that are alive with their numbers. The protocols that the datapath knows are
// there with 0 too, so that a gauge goes down to it. An entry of a translated flow counts like any other: such a flow
// counts twice.
func (s *Stats) Live() iter.Seq2[LiveKey, int] {
	return func(yield func(LiveKey, int) bool) {
		for f := range s.live {
			for proto, n := range s.live[f] {
				name := protoName(uint8(proto))
				if known := name[0] > '9'; n == 0 && !known {
					continue
				}
				if !yield(LiveKey{layout.Family(f).String(), name}, n) {
					return
				}
			}
		}
	}
}

func (s *Stats) count(r removal, state uint8) {
	switch r {
	case removed:
		s.deleted[min(int(state), ctStates)]++
	case touched:
		s.Touched++
	}
}
