// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Exec replaces the calling process by a command in a place's namespace and cgroup. It returns only on
// error. "felix-lite" on a node is the node's agent binary, looking at the node's own maps.
func (l *Lab) Exec(place string, argv []string) error {
	p, err := l.Place(place)
	if err != nil {
		return err
	}
	if n := l.Node(place); n != nil && argv[0] == "felix-lite" {
		argv = n.CLI(argv[1:]...)
	}
	binary, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("exec in %s: %w", place, err)
	}
	cg, err := labCgroup(l.Name)
	if err != nil {
		return err
	}
	sub := cg.child(place, "exec")
	if pod := l.Pod(place); pod != nil {
		sub = cg.child(pod.NodeName, "pods", place, "exec")
	}
	if err := sub.create(); err != nil {
		return err
	}
	procs := filepath.Join(string(sub), "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("exec in %s: %w", place, err)
	}
	runtime.LockOSThread()
	target, err := netns.GetFromPath(p.Namespace.Path())
	if err == nil {
		err = netns.Set(target)
	}
	if err != nil {
		return fmt.Errorf("exec in %s: %w", place, err)
	}
	return fmt.Errorf("exec in %s: %w", place, unix.Exec(binary, argv, os.Environ()))
}
