// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// neighbourValue is a permanent neighbour entry as the kernel has it, or is to have it.
type neighbourValue struct {
	ifindex int // 0: the interface is not there
	mac     MAC
}

func (v neighbourValue) equal(o neighbourValue) bool { return v == o }

// neighbourOps is how the table of neighbours reaches the kernel.
type neighbourOps struct{ r *RouteTable }

// List reads the permanent entries that carry our protocol (Linux 5.0 and later keep it).
func (o neighbourOps) List(_ context.Context, visit func(NeighbourKey, neighbourValue)) error {
	return o.r.conn.dumpNeighbours(func(m neighbourMsg) {
		if name := o.r.links.name(m.ifindex); name != "" && m.permanent() && m.protocol == o.r.opts.Protocol {
			visit(NeighbourKey{name, m.addr}, neighbourValue{m.ifindex, m.mac})
		}
	})
}

// Update writes entries one by one.
func (o neighbourOps) Update(ctx context.Context, batch []reconcile.Entry[NeighbourKey, neighbourValue]) []error {
	return each(ctx, len(batch), func(i int) error { return o.update(batch[i].Key, batch[i].Value) })
}

func (o neighbourOps) update(k NeighbourKey, v neighbourValue) error {
	if v.ifindex == 0 || !o.r.links.up(v.ifindex) {
		return fmt.Errorf("neighbour %s: interface is not there or down: %w", k, reconcile.ErrPending)
	}
	if !o.r.opts.OwnInterface(k.Interface) {
		have, found, err := o.r.conn.neighbour(v.ifindex, k.Addr)
		if err == nil && found && have.permanent() && have.protocol != o.r.opts.Protocol {
			return fmt.Errorf("neighbour %s: %w by a permanent entry with %s", k, ErrConflict, have.mac)
		}
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("neighbour %s: read: %w", k, err)
		}
	}
	err := o.r.conn.setNeighbour(v.ifindex, k.Addr, v.mac, o.r.opts.Protocol)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("neighbour %s: interface is not there or down (%w): %w", k, err, reconcile.ErrPending)
	}
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", k, err)
	}
	return nil
}

// Delete removes entries, unless another has taken the place meanwhile.
func (o neighbourOps) Delete(ctx context.Context, keys []NeighbourKey) []error {
	return each(ctx, len(keys), func(i int) error { return o.delete(keys[i]) })
}

func (o neighbourOps) delete(k NeighbourKey) error {
	have, _ := o.r.neighbours.Actual(k)
	entry, found, err := o.r.conn.neighbour(have.ifindex, k.Addr)
	if errors.Is(err, unix.ENODEV) || err == nil && (!found || entry.protocol != o.r.opts.Protocol) {
		return nil
	}
	if err == nil {
		err = o.r.conn.deleteNeighbour(have.ifindex, k.Addr)
	}
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("delete neighbour %s: %w", k, err)
}
