// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupName starts the names of cgroups that tests make in the root of the cgroup2 hierarchy.
const cgroupName = "felix-lite-test-"

var cgroups atomic.Int32

// CgroupMount is where the cgroup2 hierarchy is mounted; without one the test fails.
func CgroupMount(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, ok := strings.Cut(line, " - ")
		if fields := strings.Fields(left); ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return fields[4]
		}
	}
	t.Fatal("no cgroup2 hierarchy is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified")
	return ""
}

// Cgroup makes a cgroup of the test's own and removes it, and what was made below, at the end.
func Cgroup(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	mount := CgroupMount(t)
	removeDeadCgroups(mount)
	dir := filepath.Join(mount, fmt.Sprintf("%s%d-%d", cgroupName, os.Getpid(), cgroups.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("make cgroup: %v", err)
	}
	t.Cleanup(func() {
		for _, sub := range subCgroups(dir) {
			if err := unix.Rmdir(sub); err != nil && !errors.Is(err, unix.ENOENT) {
				t.Errorf("remove cgroup %s: %v", sub, err)
			}
		}
	})
	return dir
}

// InCgroup makes a cgroup as Cgroup does and moves the test's whole process into one below it, until the
// test ends. Only one test of a process may do so at a time.
func InCgroup(t testing.TB) string {
	t.Helper()
	dir := Cgroup(t)
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(string(self)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			before = filepath.Join(CgroupMount(t), strings.TrimSpace(path))
		}
	}
	inside := filepath.Join(dir, "self")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatalf("make cgroup: %v", err)
	}
	move := func(to string) error {
		return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err := move(inside); err != nil {
		t.Fatalf("enter cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := move(before); err != nil {
			t.Errorf("leave cgroup: %v", err)
		}
	})
	return dir
}

// subCgroups are a cgroup and all below it, the deepest first.
func subCgroups(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, subCgroups(filepath.Join(dir, e.Name()))...)
		}
	}
	return append(all, dir)
}

// removeDeadCgroups removes what tests left that were killed.
func removeDeadCgroups(mount string) {
	left, err := filepath.Glob(filepath.Join(mount, cgroupName+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupName), "-")
		if _, err := os.Stat("/proc/" + pid); err == nil {
			continue
		}
		for _, sub := range subCgroups(dir) {
			_ = unix.Rmdir(sub) // one that holds a process stays
		}
	}
}

// Eventually waits until done returns true, and fails the test with what it said last if it does not.
func Eventually(t testing.TB, what string, done func() (ok bool, last string)) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		ok, last := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not after 10 s: %s", what, last)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}
