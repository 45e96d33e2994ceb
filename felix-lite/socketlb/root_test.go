// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeProc writes mountinfo files whose cgroup2 mounts are directories of the test.
func fakeProc(t *testing.T, self, init []string) string {
	t.Helper()
	proc := t.TempDir()
	for name, mounts := range map[string][]string{"self": self, "1": init} {
		var b strings.Builder
		b.WriteString("22 1 0:21 / /proc rw - proc proc rw\n30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
		for _, m := range mounts {
			b.WriteString("41 30 0:27 / " + strings.ReplaceAll(m, " ", `\040`) + " rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
		}
		if err := os.MkdirAll(filepath.Join(proc, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name, "mountinfo"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// fakeCgroup is a directory that looks like the host's root, or like a container's.
func fakeCgroup(t *testing.T, dir string, root bool) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := []string{"cgroup.procs"}
	if !root {
		files = append(files, "cgroup.events", "cgroup.type")
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheHostsCgroupRootIsFound(t *testing.T) {
	dir := t.TempDir()
	host := fakeCgroup(t, filepath.Join(dir, "unified root"), true)
	container := fakeCgroup(t, filepath.Join(dir, "container"), false)
	for name, self := range map[string][]string{
		"beside version 1":                                 {host},
		"where the container's own is mounted too":         {container, host},
		"where one mount can not be looked at any more":    {filepath.Join(dir, "gone"), host},
		"by whatever path it is mounted, also with spaces": {host},
	} {
		if got, err := findCgroupRoot(fakeProc(t, self, nil)); err != nil || got != host {
			t.Errorf("%s: %q, %v; want %q", name, got, err, host)
		}
	}
}

func TestInAContainerTheHostsIsReachedThroughProcess1(t *testing.T) {
	container := fakeCgroup(t, filepath.Join(t.TempDir(), "container"), false)
	proc := fakeProc(t, []string{container}, []string{"/sys/fs/cgroup"})
	want := fakeCgroup(t, filepath.Join(proc, "1", "root", "sys/fs/cgroup"), true)
	if got, err := findCgroupRoot(proc); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestAContainersOwnCgroupIsNeverTakenForTheHosts(t *testing.T) {
	container := fakeCgroup(t, filepath.Join(t.TempDir(), "container"), false)
	_, err := findCgroupRoot(fakeProc(t, []string{container}, nil))
	if !errors.Is(err, ErrNoCgroupRoot) || !strings.Contains(err.Error(), container) || !strings.Contains(err.Error(), "cgroupRoot") {
		t.Errorf("error %v names neither %s nor what to do", err, container)
	}
	if _, err := findCgroupRoot(fakeProc(t, nil, nil)); !errors.Is(err, ErrNoCgroupRoot) {
		t.Errorf("without any mount: %v", err)
	}
}

func TestOnThisHostARootIsFound(t *testing.T) {
	root, err := FindCgroupRoot()
	if errors.Is(err, ErrNoCgroupRoot) {
		t.Skipf("the test runs in a container: %v", err)
	}
	if err != nil || isHostRoot(root) != nil {
		t.Errorf("%q, %v", root, err)
	}
}
