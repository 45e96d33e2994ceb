// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// testTimeout bounds building and removing a lab in a test.
const testTimeout = 2 * time.Minute

// T is the part of *testing.T that a lab in a test needs.
type T interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Failed() bool
	Logf(format string, args ...any)
}

// UpForTest builds a lab that lives as long as a test. It fails the test if the machine cannot carry a
// lab (no root), and, at the end, if anything the lab has made is left behind.
func UpForTest(t T, opts Options) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("a lab needs root: network namespaces, bpffs and cgroups")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	start := time.Now()
	l, err := Up(ctx, opts)
	if err != nil {
		t.Fatalf("build a lab: %v", err)
	}
	t.Logf("lab %s is up after %.2f s", l.Name, time.Since(start).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agents' last lines:%s", l.agentTails())
		}
		if err := l.Down(); err != nil {
			t.Errorf("remove lab %s: %v", l.Name, err)
		}
		if left := Leftovers(l.Name); len(left) > 0 {
			t.Errorf("lab %s left behind:\n%s", l.Name, strings.Join(left, "\n"))
		}
	})
	return l
}

// Leftovers lists what of a lab is on the machine: processes, namespaces, mounts, cgroups, files.
func Leftovers(name string) []string {
	var left []string
	for _, ns := range labNamespaces(name) {
		left = append(left, "network namespace "+string(ns))
	}
	for _, m := range mountsBelow(root + "/" + name) {
		left = append(left, "mount "+m)
	}
	if cg, err := labCgroup(name); err == nil {
		for _, pid := range cg.processes() {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
		for _, dir := range cg.subtree() {
			left = append(left, "cgroup "+dir)
		}
	}
	if _, err := os.Stat(root + "/" + name); err == nil {
		left = append(left, "directory "+root+"/"+name)
	}
	left = append(left, processesNaming(root+"/"+name)...)
	return left
}

// processesNaming finds processes that carry a lab's directory in their arguments, in its cgroup or
// not.
func processesNaming(dir string) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, dir+"/") }) {
			found = append(found, "process "+e.Name()+": "+strings.Join(args, " "))
		}
	}
	return found
}
