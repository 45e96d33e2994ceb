// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Flush deletes every entry that filter selects, alive or not, and its twin with it. It returns how many entries it
// deleted. A flow that goes on afterwards is judged anew with its next packet, as any unknown one.
func Flush(tables Tables, clock Clock, filter Filter) (int, error) {
	now, err := clock.now()
	if err != nil {
		return 0, err
	}
	n4, err4 := flushFamily(family[layout.AddrV4]{tables.V4, tables.V4Half}, now, filter)
	n6, err6 := flushFamily(family[layout.AddrV6]{tables.V6, tables.V6Half}, now, filter)
	return n4 + n6, errors.Join(err4, err6)
}

func flushFamily[A layout.Address](f family[A], now ticks, filter Filter) (int, error) {
	count := 0
	for _, t := range f.tables() {
		for w := newWalker[A](t.m); !w.done; {
			keys, values, err := w.read()
			if err != nil {
				return count, fmt.Errorf("flush %s: %w", t.name(), err)
			}
			for i := range keys {
				if e := decode(t, &keys[i], &values[i], now); !filter.Match(&e) {
					continue
				}
				n, err := f.flushOne(t, &keys[i], &values[i])
				count += n
				if err != nil {
					return count, fmt.Errorf("flush %s: %w", t.name(), err)
				}
			}
		}
	}
	return count, nil
}

func (f family[A]) flushOne(t tableOf[A], k *layout.CTKey[A], v *layout.CTValue[A]) (int, error) {
	count := 0
	r, err := remove(t.m, k)
	if err != nil {
		return count, err
	}
	if r == removed {
		count++
	}
	tk, pair := twinKey(k, v)
	if !pair {
		return count, nil
	}
	var tv layout.CTValue[A]
	in, err := f.twin(k, v, &tk, &tv)
	if in == nil || err != nil {
		return count, err
	}
	r, err = remove(in, &tk)
	if r == removed {
		count++
	}
	return count, err
}
