// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The names of namespaces, cgroups and directories begin with the id of the process that made them: what a
// killed run left behind is found by it and removed by the next run.

// removeStale deletes what runs whose process is gone have left: agents, mounts, directories,
// namespaces, cgroups.
func removeStale() error {
	var errs []error
	for _, e := range entries(runDir) {
		if stale(e, "") {
			errs = append(errs, removeStaleDir(filepath.Join(runDir, e)))
		}
	}
	for _, e := range entries(netnsDir) {
		if stale(e, netnsPrefix) {
			errs = append(errs, netns.DeleteNamed(e))
		}
	}
	if mount, err := cgroupMount(); err == nil {
		for _, e := range entries(mount) {
			if stale(e, cgroupName) {
				errs = append(errs, cgroup(filepath.Join(mount, e)).remove())
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	return nil
}

// entries are the names in a directory, none if it is not there.
func entries(dir string) []string {
	list, _ := os.ReadDir(dir)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// stale says whether a name is one of ours and its maker is gone.
func stale(name, prefix string) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
	return ours && err == nil && !alive(pid)
}

// alive says whether a process runs: one that was killed may still wait for somebody to notice.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// pid (name) state ...; the name may contain anything.
	_, state, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

// removeStaleDir ends the agent that still runs from a directory, and removes it.
func removeStaleDir(dir string) error {
	for _, pid := range entries("/proc") {
		id, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err == nil && bytes.Contains(cmdline, []byte(dir+"/")) {
			_ = unix.Kill(id, unix.SIGKILL)
		}
	}
	for _, mount := range []string{filepath.Join(dir, "bpf"), dir} {
		if err := unmount(mount); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// unmount detaches a mount; where none is, nothing is to be done.
func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
