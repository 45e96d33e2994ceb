// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoCgroupRoot means that the host's cgroup2 root was not found.
var ErrNoCgroupRoot = errors.New("no cgroup2 mount shows the host's root")

// FindCgroupRoot is the directory of the host's cgroup2 root, whichever directory it is mounted at: alone, or
// beside version 1. Inside a container it is the host's, if that is mounted there or can be reached through
// process 1 of the host; the container's own cgroup is never taken for it. The error wraps ErrNoCgroupRoot and
// names what was found.
func FindCgroupRoot() (string, error) { return findCgroupRoot("/proc") }

func findCgroupRoot(proc string) (string, error) {
	var seen []string
	for _, p := range []struct{ mounts, prefix string }{
		{filepath.Join(proc, "self", "mountinfo"), ""},
		{filepath.Join(proc, "1", "mountinfo"), filepath.Join(proc, "1", "root")},
	} {
		mounts, err := cgroupMounts(p.mounts)
		if err != nil {
			seen = append(seen, err.Error())
			continue
		}
		for _, m := range mounts {
			dir := filepath.Join(p.prefix, m)
			switch err := isHostRoot(dir); {
			case err == nil:
				return dir, nil
			default:
				seen = append(seen, fmt.Sprintf("%s: %v", dir, err))
			}
		}
	}
	if len(seen) == 0 {
		seen = []string{"there is no cgroup2 mount"}
	}
	return "", fmt.Errorf("%w (%s): mount the host's cgroup2 hierarchy and set cgroupRoot to it", ErrNoCgroupRoot, strings.Join(seen, "; "))
}

// isHostRoot tells the root of the hierarchy from any other cgroup: it alone has no events and no type.
// What a container sees as its root is a cgroup of the host and has both.
func isHostRoot(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
		return err
	}
	switch _, err := os.Stat(filepath.Join(dir, "cgroup.events")); {
	case err == nil:
		return errors.New("it is a container's cgroup, not the host's root")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// cgroupMounts are the mount points of cgroup2 in a mountinfo file, in its order.
func cgroupMounts(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var mounts []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(left); ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			mounts = append(mounts, unescape.Replace(fields[4]))
		}
	}
	return mounts, lines.Err()
}

// unescape turns mountinfo's way to write white space in paths back.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
