// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strconv"

	"github.com/felix-lite/felix-lite/bpf-go/features"
)

// Features lists what the running kernel can do.
type Features []features.Status

// Table implements Lister.
func (f Features) Table() Table {
	t := Table{Columns: []string{"FEATURE", "SUPPORTED", "SINCE", "USE"}}
	for _, s := range f {
		t.Rows = append(t.Rows, []string{string(s.Name), strconv.FormatBool(s.Supported), s.Since, s.Use})
	}
	return t
}
