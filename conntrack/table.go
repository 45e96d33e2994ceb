// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

const (
	firstBatch = 256
	// maxBatch bounds what a batch grows to. A bucket of the hash holds a handful of entries; one with more than
	// this would need an attacker who knows the kernel's hash seed, and is then read one by one.
	maxBatch = 16384
)

// family is the two tables of one family.
type family[A layout.Address] struct {
	confirmed, half *ebpf.Map
}

// tables lists the family's maps, the half-open one first: a flow promoted while a sweep goes on is then met in the
// second.
func (f family[A]) tables() []tableOf[A] {
	var out []tableOf[A]
	if f.half != nil {
		out = append(out, tableOf[A]{f, f.half, true})
	}
	if f.confirmed != nil {
		out = append(out, tableOf[A]{f, f.confirmed, false})
	}
	return out
}

// tableOf is one map of a family.
type tableOf[A layout.Address] struct {
	family family[A]
	m      *ebpf.Map
	half   bool
}

func (t tableOf[A]) name() string {
	var a A
	name := "cali_v4_"
	if a.Family() == layout.FamilyV6 {
		name = "cali_v6_"
	}
	if t.half {
		return name + "ct_half"
	}
	return name + "ct3"
}

// lookup finds an entry in either table. A flow that is being promoted is in both for a moment, but one lookup of each
// can still miss it: it may move from the second table to the first between the two. Hence the third look.
func (f family[A]) lookup(k *layout.CTKey[A], v *layout.CTValue[A]) (*ebpf.Map, error) {
	for _, m := range [...]*ebpf.Map{f.confirmed, f.half, f.confirmed} {
		if m == nil {
			continue
		}
		err := m.Lookup(k, v)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("look up conntrack entry %s: %w", keyString(k), err)
		}
	}
	return nil, nil
}

// walker reads a map piece by piece and can be left and taken up again.
type walker[A layout.Address] struct {
	m      *ebpf.Map
	keys   []layout.CTKey[A]
	values []layout.CTValue[A]
	cursor ebpf.MapBatchCursor
	single bool             // the kernel has no batches for this map: one by one
	next   *layout.CTKey[A] // where the walk one by one goes on; nil: at the start
	seen   uint64
	done   bool
}

func newWalker[A layout.Address](m *ebpf.Map) *walker[A] {
	return &walker[A]{m: m, keys: make([]layout.CTKey[A], firstBatch), values: make([]layout.CTValue[A], firstBatch)}
}

// read returns the next entries; they are valid until the next call. After the last ones done is set. Entries that come
// while the walk goes on may be missed; none that stays is, unless the walk is one by one and its place is deleted.
func (w *walker[A]) read() ([]layout.CTKey[A], []layout.CTValue[A], error) {
	for !w.single {
		n, err := w.m.BatchLookup(&w.cursor, w.keys, w.values, nil)
		switch {
		case err == nil:
			return w.keys[:n], w.values[:n], nil
		case errors.Is(err, ebpf.ErrKeyNotExist):
			w.done = true
			return w.keys[:n], w.values[:n], nil
		case errors.Is(err, unix.ENOSPC) && len(w.keys) < maxBatch:
			w.keys = make([]layout.CTKey[A], 2*len(w.keys))
			w.values = make([]layout.CTValue[A], len(w.keys))
		case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSPC):
			w.single = true
		default:
			return nil, nil, fmt.Errorf("read conntrack table: %w", err)
		}
	}
	return w.readSingle()
}

// readSingle is read without batches. The place to go on from is a key not yet returned, because those that are
// returned may be deleted; if it goes away nevertheless the kernel starts over, so what is read in all is bounded.
func (w *walker[A]) readSingle() ([]layout.CTKey[A], []layout.CTValue[A], error) {
	n := 0
	for n < len(w.keys) && !w.done {
		var key, next layout.CTKey[A]
		if w.next == nil {
			if err := w.m.NextKey(nil, &key); err != nil {
				w.done = true
				if errors.Is(err, ebpf.ErrKeyNotExist) {
					break
				}
				return nil, nil, fmt.Errorf("read conntrack table: %w", err)
			}
		} else {
			key = *w.next
		}
		err := w.m.NextKey(&key, &next)
		switch {
		case err == nil:
			w.next = &next
		case errors.Is(err, ebpf.ErrKeyNotExist):
			w.done = true
		default:
			return nil, nil, fmt.Errorf("read conntrack table: %w", err)
		}
		if err := w.m.Lookup(&key, &w.values[n]); err == nil {
			w.keys[n] = key
			n++
		} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, nil, fmt.Errorf("read conntrack table: %w", err)
		}
		if w.seen++; w.seen > 2*uint64(w.m.MaxEntries()) {
			w.done = true
		}
	}
	return w.keys[:n], w.values[:n], nil
}

// removal is the outcome of removing an entry.
type removal uint8

const (
	removed removal = iota
	touched         // it was seen again since it was judged: left alone
	gone            // somebody else removed it
)

// removeUnchanged deletes an entry that was judged dead when it had the given last_seen. The kernel has no "delete if
// equal": a packet that comes between this lookup and the delete, about a microsecond, finds the entry dead, makes a
// new one in its place and loses that one to the delete. Its flow is then a new one with its next packet, as after any
// expiry.
func removeUnchanged[A layout.Address](m *ebpf.Map, k *layout.CTKey[A], lastSeen uint32) (removal, error) {
	var v layout.CTValue[A]
	if err := m.Lookup(k, &v); errors.Is(err, ebpf.ErrKeyNotExist) {
		return gone, nil
	} else if err != nil {
		return touched, fmt.Errorf("look up conntrack entry %s: %w", keyString(k), err)
	}
	if v.LastSeen != lastSeen {
		return touched, nil
	}
	return remove(m, k)
}

func remove[A layout.Address](m *ebpf.Map, k *layout.CTKey[A]) (removal, error) {
	if err := m.Delete(k); errors.Is(err, ebpf.ErrKeyNotExist) {
		return gone, nil
	} else if err != nil {
		return touched, fmt.Errorf("delete conntrack entry %s: %w", keyString(k), err)
	}
	return removed, nil
}

func keyString[A layout.Address](k *layout.CTKey[A]) string {
	return fmt.Sprintf("%s %s:%d %s:%d", protoName(k.Proto), k.AddrA.Addr(), layout.PortOf(k.PortABE),
		k.AddrB.Addr(), layout.PortOf(k.PortBBE))
}
