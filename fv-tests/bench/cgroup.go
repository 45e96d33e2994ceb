// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket belongs to the cgroup of the process that makes it, and programs at connect time stand on
// cgroups. So each mode has a subtree of its own: to its agent it is the host's cgroup root, and the
// process with the mode's clients and servers is in a cgroup below. Modes without such programs have one,
// too: nothing but the programs differs.

// cgroup is a directory of the unified hierarchy.
type cgroup string

// cgroupName starts the name of the one directory that a run makes in the root of the hierarchy.
const cgroupName = "felix-lite-bench-"

// cgroupMount finds where the unified hierarchy is mounted: /sys/fs/cgroup, or beside version 1.
func cgroupMount() (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2 mount: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		left, right, ok := strings.Cut(line, " - ")
		if fields := strings.Fields(left); ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return fields[4], nil
		}
	}
	return "", errors.New("find cgroup2 mount: none in /proc/self/mountinfo")
}

// newCgroup makes a subtree of this run.
func newCgroup(name string) (cgroup, error) {
	mount, err := cgroupMount()
	if err != nil {
		return "", err
	}
	c := cgroup(filepath.Join(mount, cgroupName+strconv.Itoa(os.Getpid()), name))
	if err := os.MkdirAll(string(c), 0o755); err != nil {
		return "", fmt.Errorf("make cgroup: %w", err)
	}
	return c, nil
}

// startIn starts a command in a cgroup below this one, which is made if need be.
func (c cgroup) startIn(sub string, cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	path := filepath.Join(string(c), sub)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open cgroup: %w", err)
	}
	defer dir.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return start(cmd)
}

// subtree is the cgroup and all below it, the deepest first.
func (c cgroup) subtree() []string {
	var dirs []string
	_ = filepath.WalkDir(string(c), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	return dirs
}

// remove deletes the subtree, and the run's directory when it was the last one. Processes that still are
// in it, a killed run's, are ended.
func (c cgroup) remove() error {
	if c == "" {
		return nil
	}
	// Before Linux 5.14 there is no such file: those who started the processes have ended them.
	_ = os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	for _, dir := range c.subtree() {
		if err := removeCgroupDir(dir); err != nil {
			return err
		}
	}
	if parent := filepath.Dir(string(c)); strings.HasPrefix(filepath.Base(parent), cgroupName) {
		_ = unix.Rmdir(parent)
	}
	return nil
}

// removeCgroupDir waits for the last process to be gone: one that was killed may need a moment.
func removeCgroupDir(dir string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}
