// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"errors"
	"fmt"

	"github.com/felix-lite/felix-lite/fv-tests/kernels/result"
)

// Report is what one kernel said.
type Report struct {
	Counts   result.Counts
	Failures []result.Result
	done     *result.Counts
}

// Add takes one line of the console.
func (r *Report) Add(line string) {
	if verdict, ok := result.Parse(line); ok {
		r.Counts.Add(verdict)
		if verdict.Status == result.Fail {
			r.Failures = append(r.Failures, verdict)
		}
		return
	}
	if done, ok := result.ParseDone(line); ok {
		r.done = &done
	}
}

// Err says why the run is no proof: it failed, it ended early, or a line was lost on the way.
func (r *Report) Err() error {
	switch {
	case r.done == nil:
		return errors.New("the guest did not come to its end: see the last lines above")
	case *r.done != r.Counts:
		return fmt.Errorf("the guest counted %s, but %s arrived", r.done, r.Counts)
	case r.Counts.Failed > 0:
		return fmt.Errorf("%d checks failed", r.Counts.Failed)
	case r.Counts.Passed == 0:
		return errors.New("no check ran")
	}
	return nil
}
