// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"context"
	"errors"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// Dual is a table that exists once for each family, seen as one: keys and values carry ordinary Go
// addresses, and the key says which family's map is meant.
type Dual[K comparable, V any] struct {
	halves [2]half[K, V]
	family func(K) layout.Family
}

// half is one family's map behind the neutral types.
type half[K comparable, V any] interface {
	lookup(K) (V, bool, error)
	put([]K, []V) []error
	remove([]K) []error
	all(func(K, V) bool) error
	written() uint64
	size() uint32
}

// converted is a half: a typed map, and how its keys and values are written in neutral types.
type converted[K comparable, V any, RK comparable, RV any] struct {
	*Map[RK, RV]
	codec codec[K, V, RK, RV]
}

type codec[K comparable, V any, RK comparable, RV any] struct {
	key     func(K) (RK, error)
	value   func(V) (RV, error)
	unkey   func(RK) K
	unvalue func(RV) V
}

func (c converted[K, V, RK, RV]) written() uint64 { return c.Writes() }
func (c converted[K, V, RK, RV]) size() uint32    { return c.MaxEntries() }

func (c converted[K, V, RK, RV]) lookup(key K) (V, bool, error) {
	var none V
	raw, err := c.codec.key(key)
	if err != nil {
		return none, false, err
	}
	value, found, err := c.Lookup(raw)
	if err != nil || !found {
		return none, false, err
	}
	return c.codec.unvalue(value), true, nil
}

func (c converted[K, V, RK, RV]) put(keys []K, values []V) []error {
	return convertEach(keys, func(i int) (reconcile.Entry[RK, RV], error) {
		key, errKey := c.codec.key(keys[i])
		value, errValue := c.codec.value(values[i])
		return reconcile.Entry[RK, RV]{Key: key, Value: value}, errors.Join(errKey, errValue)
	}, func(entries []reconcile.Entry[RK, RV]) []error { return c.Update(context.Background(), entries) })
}

func (c converted[K, V, RK, RV]) remove(keys []K) []error {
	return convertEach(keys, func(i int) (RK, error) { return c.codec.key(keys[i]) }, c.RemoveAll)
}

func (c converted[K, V, RK, RV]) all(visit func(K, V) bool) error {
	return c.All(func(k RK, v RV) bool { return visit(c.codec.unkey(k), c.codec.unvalue(v)) })
}

// convertEach converts entries and does those that could be converted; the results are put back in
// the order of the input.
func convertEach[K, E any](keys []K, convert func(int) (E, error), do func([]E) []error) []error {
	var errs []error
	set := func(i int, err error) {
		if err == nil {
			return
		}
		if errs == nil {
			errs = make([]error, len(keys))
		}
		errs[i] = err
	}
	entries, where := make([]E, 0, len(keys)), make([]int, 0, len(keys))
	for i := range keys {
		e, err := convert(i)
		if err != nil {
			set(i, err)
			continue
		}
		entries, where = append(entries, e), append(where, i)
	}
	for j, err := range do(entries) {
		set(where[j], err)
	}
	return errs
}

// Lookup returns a key's value. found is false, without an error, if the key is absent.
func (d *Dual[K, V]) Lookup(key K) (value V, found bool, err error) {
	return d.halves[d.family(key)].lookup(key)
}

// Put creates or replaces an entry.
func (d *Dual[K, V]) Put(key K, value V) error {
	return errors.Join(d.halves[d.family(key)].put([]K{key}, []V{value})...)
}

// Remove deletes an entry. One that is absent is no error.
func (d *Dual[K, V]) Remove(key K) error {
	return errors.Join(d.halves[d.family(key)].remove([]K{key})...)
}

// All calls visit for every entry of both families until it returns false.
func (d *Dual[K, V]) All(visit func(K, V) bool) error {
	more := true
	for _, h := range d.halves {
		if err := h.all(func(k K, v V) bool { more = visit(k, v); return more }); err != nil || !more {
			return err
		}
	}
	return nil
}

// MaxEntries is the size of one family's map.
func (d *Dual[K, V]) MaxEntries() uint32 { return d.halves[0].size() }

// Writes counts the entries that were written or deleted through d.
func (d *Dual[K, V]) Writes() uint64 { return d.halves[0].written() + d.halves[1].written() }

// List calls visit for every entry. It implements reconcile.Operations.
func (d *Dual[K, V]) List(ctx context.Context, visit func(K, V)) error {
	err := d.All(func(k K, v V) bool {
		visit(k, v)
		return ctx.Err() == nil
	})
	return errors.Join(err, ctx.Err())
}

// Update writes a batch, each family's part in its order. It implements reconcile.Operations.
func (d *Dual[K, V]) Update(_ context.Context, batch []reconcile.Entry[K, V]) []error {
	return d.split(len(batch), func(i int) layout.Family { return d.family(batch[i].Key) },
		func(h half[K, V], where []int) []error {
			keys, values := make([]K, len(where)), make([]V, len(where))
			for j, i := range where {
				keys[j], values[j] = batch[i].Key, batch[i].Value
			}
			return h.put(keys, values)
		})
}

// Delete removes keys. It implements reconcile.Operations.
func (d *Dual[K, V]) Delete(_ context.Context, keys []K) []error {
	return d.split(len(keys), func(i int) layout.Family { return d.family(keys[i]) },
		func(h half[K, V], where []int) []error {
			part := make([]K, len(where))
			for j, i := range where {
				part[j] = keys[i]
			}
			return h.remove(part)
		})
}

// split gives each family its part of a batch and puts the results in the order of the input.
func (d *Dual[K, V]) split(n int, family func(int) layout.Family, do func(half[K, V], []int) []error) []error {
	var where [2][]int
	for i := range n {
		f := family(i)
		where[f] = append(where[f], i)
	}
	var errs []error
	for f, part := range where {
		if len(part) == 0 {
			continue
		}
		for j, err := range do(d.halves[f], part) {
			if err == nil {
				continue
			}
			if errs == nil {
				errs = make([]error, n)
			}
			errs[part[j]] = err
		}
	}
	return errs
}
