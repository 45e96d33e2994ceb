// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"
)

// BenchmarkOneChange shows that a change costs the same however large the table is.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("%d-entries", size), func(b *testing.B) {
			k := newFakeKernel(size)
			table, _ := newTestTable(k)
			for i := range size {
				table.Set(fmt.Sprint(i), 0)
			}
			table.Apply(b.Context())
			for b.Loop() {
				k.log, k.batches = k.log[:0], k.batches[:0]
				table.Set("7", b.N&1+len(k.log)+k.entries["7"]+1)
				if res := table.Apply(b.Context()); res.Updated != 1 {
					b.Fatalf("got %+v", res)
				}
			}
		})
	}
}
