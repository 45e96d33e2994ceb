// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

func TestALineThatWasWrittenIsReadBack(t *testing.T) {
	for name, r := range map[string]Result{
		"a pass has no detail":               {Pass, "load from_wep_v4/cali_main", ""},
		"a failure says why":                 {Fail, "smoke tcp4", "dial 10.96.0.1:80: timeout"},
		"a skip says why":                    {Skip, "feature tcx", "kernel has none"},
		"a detail may itself hold a verdict": {Fail, "x", "PASS y"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Parse(r.String() + "\r\n")
			if !ok || got != r {
				t.Errorf("Parse(%q) = %+v, %v", r.String(), got, ok)
			}
		})
	}
}

func TestADetailOfSeveralLinesBecomesOne(t *testing.T) {
	r := Result{Fail, "x", "first\n\tsecond"}
	if got := r.String(); got != "FAIL x: first second" {
		t.Errorf("got %q", got)
	}
}

func TestOtherLinesCarryNoVerdict(t *testing.T) {
	for name, line := range map[string]string{
		"an empty line":            "",
		"a kernel message":         "[    0.000000] Linux version 5.10.0",
		"a word that starts alike": "PASSED all",
		"a verdict without a name": "PASS ",
		"a bare verdict":           "FAIL",
		"lower case":               "pass x",
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := Parse(line); ok {
				t.Errorf("Parse(%q) = %+v, want no result", line, r)
			}
		})
	}
}

func TestTheClosingLineIsTheSumOfAllResults(t *testing.T) {
	var c Counts
	for _, s := range []Status{Pass, Pass, Fail, Skip, Pass} {
		c.Add(Result{Status: s, Name: "x"})
	}
	got, ok := ParseDone(c.Done() + "\r")
	if !ok || got != (Counts{3, 1, 1}) {
		t.Errorf("ParseDone(%q) = %+v, %v", c.Done(), got, ok)
	}
	if _, ok := ParseDone("DONE with it"); ok {
		t.Error("a line that is no sum was read as one")
	}
}
