// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/kernels/result"
)

// reporter writes verdicts and text for people to the console, and counts.
type reporter struct {
	out    io.Writer
	prefix string
	match  string // what of the load suite is run
	counts result.Counts
}

// suite runs one suite under a heading. A panic in it fails the suite, not the machine: there is
// nobody who would restart process 1.
func (r *reporter) suite(name string, run func(*reporter)) {
	start := time.Now()
	r.printf("--- %s", name)
	r.prefix = name + " "
	defer func() {
		r.prefix = ""
		if p := recover(); p != nil {
			r.printf("%s", debug.Stack())
			r.add(result.Result{Status: result.Fail, Name: name, Detail: fmt.Sprintf("panic: %v", p)})
		}
		r.printf("--- %s took %.1f s", name, time.Since(start).Seconds())
	}()
	run(r)
}

// check runs one check and reports its verdict.
func (r *reporter) check(name string, f func() error) bool {
	err := f()
	r.verdict(name, err)
	return err == nil
}

// verdict reports a check that was already made.
func (r *reporter) verdict(name string, err error) {
	v := result.Result{Status: result.Pass, Name: r.prefix + name}
	if err != nil {
		v.Status, v.Detail = result.Fail, err.Error()
	}
	r.add(v)
}

func (r *reporter) add(v result.Result) {
	r.counts.Add(v)
	r.printf("%s", v)
}

// printf writes one line as it is.
func (r *reporter) printf(format string, args ...any) {
	fmt.Fprintln(r.out, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// note writes indented text for people, which is never taken for a verdict.
func (r *reporter) note(format string, args ...any) {
	for _, line := range strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		fmt.Fprintln(r.out, "  "+line)
	}
}

func (r *reporter) done() { r.printf("%s", r.counts.Done()) }
