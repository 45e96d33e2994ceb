// SPDX-License-Identifier: Apache-2.0

// Package conntrack reads, ages, cleans and prints the datapath's connection tables: for each family a hash of
// confirmed flows and a small LRU of half-open ones.
//
// In: the open maps and the datapath's clock (jiffies). Out: deletions of entries that are dead, statistics for
// metrics, lists for people. The agent's loop calls Sweeper.Step; the CLI calls Walk, List and Flush on the pinned maps,
// with or without an agent. Entries are made and changed by the datapath alone: this package never writes one, and
// deletes only what nobody has touched since it was judged.
//
// The rule of life: an entry is dead when now - last_seen > timeout, all of them 32-bit jiffies that wrap. The datapath
// checks it at every lookup, so a dead entry is never used; sweeping only makes room. A translated flow is two entries,
// each other's twin (CTNATFwd, keyed by what the client sends, and CTNATRev, keyed by what the backend sees). The
// datapath refreshes a twin about once a second only, so a pair lives as long as either of the two, and dies as one.
package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Tables are the open conntrack maps. Those that are nil (a family switched off) are skipped.
type Tables struct {
	V4, V4Half *ebpf.Map
	V6, V6Half *ebpf.Map
}

// Clock is the datapath's clock.
type Clock struct {
	// Jiffies reads it.
	Jiffies func() (uint64, error)
	// HZ is how many jiffies make a second.
	HZ uint32
}

func (c Clock) now() (ticks, error) {
	if c.Jiffies == nil || c.HZ == 0 {
		return ticks{}, errors.New("read the datapath's clock: none given")
	}
	j, err := c.Jiffies()
	if err != nil {
		return ticks{}, fmt.Errorf("read the datapath's clock: %w", err)
	}
	return ticks{j, c.HZ}, nil
}

// ticks is a reading of the clock.
type ticks struct {
	jiffies uint64
	hz      uint32
}

// maxLead is how many seconds an entry's last_seen may be ahead of our reading of the clock and still count as "seen
// just now": entries go on being refreshed while we look. Anything further ahead is an entry so old that it wrapped.
const maxLead = 60

// idle is how long ago an entry was seen.
func (t ticks) idle(lastSeen uint32) uint32 {
	d := uint32(t.jiffies) - lastSeen
	if -d <= maxLead*t.hz { // ahead of us
		return 0
	}
	return d
}

// dead is the rule that the datapath applies at each lookup.
func (t ticks) dead(lastSeen, timeout uint32) bool { return t.idle(lastSeen) > timeout }

// seconds converts a span of jiffies.
func (t ticks) seconds(jiffies uint64) float64 { return float64(jiffies) / float64(t.hz) }

// age is the time in jiffies since created (a full 64-bit reading).
func (t ticks) age(created uint64) uint64 {
	if created > t.jiffies {
		return 0
	}
	return t.jiffies - created
}

// normalKey is the key under which the datapath keeps the flow between two ends: the end that compares lower, words and
// ports as the raw integers they are in memory, is side a.
func normalKey[A layout.Address](src, dst A, sportBE, dportBE uint16, proto, zone uint8) layout.CTKey[A] {
	if !ordered(src, dst, sportBE, dportBE) {
		src, dst = dst, src
		sportBE, dportBE = dportBE, sportBE
	}
	return layout.CTKey[A]{AddrA: src, AddrB: dst, PortABE: sportBE, PortBBE: dportBE, Proto: proto, Zone: zone}
}

// ordered tells whether the first end is side a. Equal ends are ordered.
func ordered[A layout.Address](src, dst A, sportBE, dportBE uint16) bool {
	a, b := words(&src), words(&dst)
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return sportBE <= dportBE
}

func words[A layout.Address](a *A) []uint32 {
	switch p := any(a).(type) {
	case *layout.AddrV4:
		return p.W[:]
	case *layout.AddrV6:
		return p.W[:]
	}
	return nil
}

// twinKey is the key of the other entry of a translated flow: what a packet of this entry is rewritten to, as the other
// side of the translation sees it. Normal entries have none.
func twinKey[A layout.Address](k *layout.CTKey[A], v *layout.CTValue[A]) (layout.CTKey[A], bool) {
	var zone uint8
	switch layout.CTType(v.Type) {
	case layout.CTNATFwd: // the post-NAT side is in zone 0 always
	case layout.CTNATRev:
		if layout.CTFlag(v.Flags)&layout.CTFConflict != 0 {
			zone = 1
		}
	default:
		return layout.CTKey[A]{}, false
	}
	return normalKey(v.NATSrc, v.NATDst, v.NATSportBE, v.NATDportBE, k.Proto, zone), true
}
