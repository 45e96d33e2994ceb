// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// score counts cells by mode and overlay; sites run side by side.
type score struct {
	mu          sync.Mutex
	run, failed int
	bySite      map[string][2]int
	byMechanism map[string]int
}

func (s *score) add(c Cell, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySite == nil {
		s.bySite, s.byMechanism = map[string][2]int{}, map[string]int{}
	}
	row := s.bySite[c.Site.String()]
	s.run++
	row[0]++
	if ok {
		name, _, _ := c.mechanism()
		s.byMechanism[name]++
	} else {
		s.failed++
		row[1]++
	}
	s.bySite[c.Site.String()] = row
}

// print says how many cells have run, site by site, and how many each mechanism has carried.
func (s *score) print(t *testing.T, expected int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "site\trun\tfailed")
	for _, site := range slices.Sorted(maps.Keys(s.bySite)) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", site, s.bySite[site][0], s.bySite[site][1])
	}
	fmt.Fprintln(w, "mechanism\tcells")
	for _, name := range slices.Sorted(maps.Keys(s.byMechanism)) {
		fmt.Fprintf(w, "%s\t%d\n", name, s.byMechanism[name])
	}
	_ = w.Flush()
	t.Logf("cells run / expected: %d / %d, failed: %d\n%s", s.run, expected, s.failed, b.String())
	if s.run != expected {
		t.Errorf("cells run / expected: %d / %d", s.run, expected)
	}
}
