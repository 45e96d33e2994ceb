// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupParent is the one directory the lab makes in the cgroup2 root; each lab has a subtree there.
const cgroupParent = "felix-lite-lab"

// cgroupMount finds where the unified hierarchy is mounted: /sys/fs/cgroup, or beside version 1.
func cgroupMount() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2 mount: %w", err)
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		left, right, ok := strings.Cut(scan.Text(), " - ")
		if fields := strings.Fields(left); ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return fields[4], nil
		}
	}
	return "", errors.New("find cgroup2 mount: none in /proc/self/mountinfo")
}

// cgroupDir is a directory of the unified hierarchy.
type cgroupDir string

// labCgroup returns the subtree of a lab, made or not.
func labCgroup(lab string) (cgroupDir, error) {
	root, err := cgroupMount()
	if err != nil {
		return "", err
	}
	return cgroupDir(filepath.Join(root, cgroupParent, lab)), nil
}

func (c cgroupDir) create() error {
	if err := os.MkdirAll(string(c), 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	return nil
}

// subtree lists the cgroup and all below it, deepest first.
func (c cgroupDir) subtree() []string {
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

// processes returns the ids of all processes in the subtree.
func (c cgroupDir) processes() []int {
	var pids []int
	for _, dir := range c.subtree() {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// kill ends every process in the subtree, and only those: the lab puts each process it starts here,
// so no process id has to be remembered or trusted.
func (c cgroupDir) kill() {
	if os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	for _, pid := range c.processes() { // before Linux 5.14
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// removeTree deletes the subtree; it must hold no process.
func (c cgroupDir) removeTree() error {
	for _, dir := range c.subtree() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// removeLab deletes a lab's subtree, and the parent shared by all labs when it was the last.
func (c cgroupDir) removeLab() error {
	if err := c.removeTree(); err != nil {
		return err
	}
	_ = unix.Rmdir(filepath.Dir(string(c)))
	return nil
}

// child returns a cgroup below this one.
func (c cgroupDir) child(names ...string) cgroupDir {
	return cgroupDir(filepath.Join(append([]string{string(c)}, names...)...))
}
