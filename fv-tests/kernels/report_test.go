// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"strings"
	"testing"
)

func TestAReportIsAProofOnlyWhenTheGuestCameToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		console string
		want    string // part of the error; empty: none
	}{
		"all passed":                      {"PASS a\ntext\nSKIP b: none here\nDONE 1 passed, 0 failed, 1 skipped", ""},
		"one failed":                      {"PASS a\nFAIL b: no\nDONE 1 passed, 1 failed, 0 skipped", "1 checks failed"},
		"the guest died":                  {"PASS a\nKernel panic", "did not come to its end"},
		"a line was lost":                 {"PASS a\nDONE 2 passed, 0 failed, 0 skipped", "1 passed, 0 failed, 0 skipped arrived"},
		"nothing ran":                     {"DONE 0 passed, 0 failed, 0 skipped", "no check ran"},
		"only skips are not a proof":      {"SKIP a: x\nDONE 0 passed, 0 failed, 1 skipped", "no check ran"},
		"a serial line ends in CR and LF": {"PASS a\r\nDONE 1 passed, 0 failed, 0 skipped\r", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var r Report
			for _, line := range strings.Split(c.console, "\n") {
				r.Add(line)
			}
			err := r.Err()
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Err() = %v, want %q", err, c.want)
			}
		})
	}
}
