// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// chunk is how many entries one batch system call moves: large enough that the call's own cost does
// not show, small enough that buffers of conntrack entries stay below a megabyte.
const chunk = 2048

// Map is one map of the kernel with Go types for its keys and values, laid out as the C side has
// them. It may be used by several goroutines.
type Map[K comparable, V any] struct {
	name    string
	m       atomic.Pointer[ebpf.Map] // replaced when the map is resized
	writes  atomic.Uint64
	noBatch atomic.Bool
}

// Name is the map's pinned name.
func (m *Map[K, V]) Name() string { return m.name }

// Raw is the map itself, for loading programs that use it. Resize replaces it.
func (m *Map[K, V]) Raw() *ebpf.Map { return m.m.Load() }

// MaxEntries is the map's size.
func (m *Map[K, V]) MaxEntries() uint32 { return m.Raw().MaxEntries() }

// Writes counts the entries that were written or deleted through m.
func (m *Map[K, V]) Writes() uint64 { return m.writes.Load() }

// Lookup returns a key's value. found is false, without an error, if the key is absent.
func (m *Map[K, V]) Lookup(key K) (value V, found bool, err error) {
	err = m.Raw().Lookup(&key, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("%s: look up %v: %w", m.name, key, err)
	}
	return value, true, nil
}

// Put creates or replaces an entry.
func (m *Map[K, V]) Put(key K, value V) error {
	if err := m.Raw().Update(&key, &value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("%s: update %v: %w", m.name, key, err)
	}
	m.writes.Add(1)
	return nil
}

// Remove deletes an entry. One that is absent is no error.
func (m *Map[K, V]) Remove(key K) error {
	err := m.Raw().Delete(&key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: delete %v: %w", m.name, key, err)
	}
	m.writes.Add(1)
	return nil
}

// PutAll creates or replaces entries. It returns nil when all are done, else an error for each that
// is not; one that fails does not keep the others from being written. Batch system calls are used
// where the kernel has them for the type of map.
func (m *Map[K, V]) PutAll(keys []K, values []V) []error {
	return m.each(len(keys), func(from, to int) (int, error) {
		return m.Raw().BatchUpdate(keys[from:to], values[from:to], nil)
	}, func(i int) error { return m.Put(keys[i], values[i]) }, func(i int, err error) error {
		return fmt.Errorf("%s: update %v: %w", m.name, keys[i], err)
	})
}

// RemoveAll deletes entries, with results as of PutAll. Absent ones are no error.
func (m *Map[K, V]) RemoveAll(keys []K) []error {
	return m.each(len(keys), func(from, to int) (int, error) {
		return m.Raw().BatchDelete(keys[from:to], nil)
	}, func(i int) error { return m.Remove(keys[i]) }, func(i int, err error) error {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return fmt.Errorf("%s: delete %v: %w", m.name, keys[i], err)
	})
}

// each runs a batch operation over n entries. The kernel stops at the first that it refuses and
// says how many it did: the refused one gets its error, and the next call goes on behind it.
func (m *Map[K, V]) each(n int, batch func(from, to int) (int, error), single func(int) error,
	describe func(int, error) error) []error {
	var errs []error
	set := func(i int, err error) {
		if err == nil {
			return
		}
		if errs == nil {
			errs = make([]error, n)
		}
		errs[i] = err
	}
	for i := 0; i < n; {
		if m.noBatch.Load() || n-i == 1 {
			set(i, single(i))
			i++
			continue
		}
		done, err := batch(i, min(n, i+chunk))
		if errors.Is(err, ebpf.ErrNotSupported) {
			m.noBatch.Store(true)
			continue
		}
		m.writes.Add(uint64(done))
		i += done
		if err != nil && i < n {
			set(i, describe(i, err))
			i++
		}
	}
	return errs
}

// All calls visit for every entry until it returns false. Entries that are written or deleted
// meanwhile may or may not be seen. keys and values are the visitor's to keep.
func (m *Map[K, V]) All(visit func(K, V) bool) error {
	if !m.noBatch.Load() {
		done, err := m.allBatched(visit)
		if done || err != nil {
			return err
		}
		m.noBatch.Store(true)
	}
	var key K
	var value V
	it := m.Raw().Iterate()
	for it.Next(&key, &value) {
		if !visit(key, value) {
			return nil
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("%s: list: %w", m.name, err)
	}
	return nil
}

// allBatched is All by batch system calls; done is false where the kernel has none for this map.
func (m *Map[K, V]) allBatched(visit func(K, V) bool) (done bool, err error) {
	size := int(min(chunk, m.MaxEntries()))
	keys, values := make([]K, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.Raw().BatchLookup(&cursor, keys, values, nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return false, nil
		}
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return true, fmt.Errorf("%s: list: %w", m.name, err)
		}
		for i := range n {
			if !visit(keys[i], values[i]) {
				return true, nil
			}
		}
		if last {
			return true, nil
		}
	}
}

// Map is what internal/reconcile needs to keep a table of the kernel as it should be.
var _ reconcile.Operations[uint32, uint32] = (*Map[uint32, uint32])(nil)

// List calls visit for every entry. It implements reconcile.Operations.
func (m *Map[K, V]) List(ctx context.Context, visit func(K, V)) error {
	err := m.All(func(k K, v V) bool {
		visit(k, v)
		return ctx.Err() == nil
	})
	return errors.Join(err, ctx.Err())
}

// Update writes a batch. It implements reconcile.Operations.
func (m *Map[K, V]) Update(_ context.Context, batch []reconcile.Entry[K, V]) []error {
	keys, values := make([]K, len(batch)), make([]V, len(batch))
	for i, e := range batch {
		keys[i], values[i] = e.Key, e.Value
	}
	return m.PutAll(keys, values)
}

// Delete removes keys. It implements reconcile.Operations.
func (m *Map[K, V]) Delete(_ context.Context, keys []K) []error { return m.RemoveAll(keys) }
