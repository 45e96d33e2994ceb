// SPDX-License-Identifier: Apache-2.0

// Command guest is the init process of the emulated machine: it mounts what a node has mounted,
// loads the kernel modules that stand in its initramfs, runs its suites one after another, writes
// verdicts to the console (package result) and powers the machine off.
//
// The runner on the host starts it (package kernels). It is process 1 of a machine that holds
// nothing else and must never be started on a real one; it refuses to.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// suites in the order in which they run: each needs more of the kernel than those before it.
var suites = []struct {
	name string
	run  func(*reporter)
}{
	{"features", runFeatures},
	{"load", runLoad},
	{"smoke", runSmoke},
}

func main() {
	only := flag.String("only", "", "comma-separated suites (default: all)")
	match := flag.String("match", "", "regular expression: programs that are loaded, as object/program")
	flag.Parse()
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: not process 1: this is the init of an emulated machine, see docs/kernels.md")
		os.Exit(2)
	}
	defer powerOff()
	r := &reporter{out: os.Stdout, match: *match}
	if os.Getenv("GUEST_MOUNTED") == "" {
		r.check("mounts", mountAll) // comes back only if it failed
	}
	r.check("system", setUpSystem)
	for _, s := range suites {
		if selected(*only, s.name) {
			r.suite(s.name, s.run)
		}
	}
	r.done()
}

// selected tells whether a suite is in the list; an empty list has all.
func selected(only, name string) bool {
	if only == "" {
		return true
	}
	for _, s := range strings.Split(only, ",") {
		if strings.TrimSpace(s) == name {
			return true
		}
	}
	return false
}
