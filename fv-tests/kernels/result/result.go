// SPDX-License-Identifier: Apache-2.0

// Package result is the one line format that the guest writes to its serial console and the
// runner on the host reads back: "PASS name", "FAIL name: why", "SKIP name: why", and a closing
// "DONE n passed, m failed, k skipped". Every other line is for people and carries no verdict.
//
// A missing DONE line means that the guest did not come to its end, whatever it printed before.
package result

import (
	"fmt"
	"strings"
)

// Status is the verdict of one check.
type Status string

// The three verdicts, as they stand at the beginning of a line.
const (
	Pass Status = "PASS"
	Fail Status = "FAIL"
	Skip Status = "SKIP"
)

// Result is one check's verdict. Name has no colon followed by a space in it; Detail is one line.
type Result struct {
	Status Status
	Name   string
	Detail string
}

// String is the result as a line without its line end.
func (r Result) String() string {
	if r.Detail == "" {
		return fmt.Sprintf("%s %s", r.Status, r.Name)
	}
	return fmt.Sprintf("%s %s: %s", r.Status, r.Name, OneLine(r.Detail))
}

// Parse reads a line that String wrote. Anything else is reported as not ok.
func Parse(line string) (Result, bool) {
	word, rest, found := strings.Cut(clean(line), " ")
	status := Status(word)
	if !found || rest == "" || (status != Pass && status != Fail && status != Skip) {
		return Result{}, false
	}
	name, detail, _ := strings.Cut(rest, ": ")
	return Result{Status: status, Name: name, Detail: detail}, true
}

// Counts sums up verdicts. The zero value is ready to use.
type Counts struct {
	Passed, Failed, Skipped int
}

// Add counts one result.
func (c *Counts) Add(r Result) {
	switch r.Status {
	case Pass:
		c.Passed++
	case Fail:
		c.Failed++
	case Skip:
		c.Skipped++
	}
}

// String is the sum as a person reads it.
func (c Counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

// Done is the guest's last line.
func (c Counts) Done() string { return "DONE " + c.String() }

// ParseDone reads the guest's last line.
func ParseDone(line string) (Counts, bool) {
	var c Counts
	n, err := fmt.Sscanf(clean(line), "DONE %d passed, %d failed, %d skipped", &c.Passed, &c.Failed, &c.Skipped)
	return c, err == nil && n == 3
}

// OneLine folds a text of several lines into one.
func OneLine(s string) string {
	return strings.Join(strings.Fields(s), " ")
}

// clean takes off what a serial line adds.
func clean(line string) string { return strings.Trim(line, "\r\n\x00 ") }
