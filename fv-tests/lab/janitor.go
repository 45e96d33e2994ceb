// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// teardownTimeout bounds the wait for killed processes to be gone.
const teardownTimeout = 10 * time.Second

// Down removes everything the lab has made. It may be called at any time, also twice.
func (l *Lab) Down() error {
	err := teardown(l.Name)
	_ = l.Guard.signal(unix.SIGKILL)
	return err
}

// teardown removes a lab by its name alone: processes by cgroup, then mounts, namespaces (veth
// devices, routes and neighbours go with them), cgroups, files. The directory goes last, so that a
// teardown that was interrupted is found and finished later.
func teardown(name string) error {
	var errs []error
	cg, err := labCgroup(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	errs = append(errs, WaitFor(ctx, "lab "+name+"'s processes to end", func() (bool, string) {
		cg.kill()
		pids := cg.processes()
		return len(pids) == 0, fmt.Sprint(pids)
	}))
	dir := filepath.Join(root, name)
	for _, mount := range mountsBelow(dir) {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	for _, ns := range labNamespaces(name) {
		errs = append(errs, ns.remove())
	}
	errs = append(errs, WaitFor(ctx, "cgroup "+string(cg)+" to be removed", func() (bool, string) {
		err := cg.removeLab()
		return err == nil, fmt.Sprint(err)
	}))
	if err := os.RemoveAll(dir); err != nil {
		errs = append(errs, fmt.Errorf("remove lab %s: %w", name, err))
	}
	_ = unix.Rmdir(root) // when the last lab is gone
	return errors.Join(errs...)
}

// labNamespaces lists the named namespaces of a lab.
func labNamespaces(name string) []Namespace {
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return nil
	}
	var all []Namespace
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "fl-"+name+"-") {
			all = append(all, Namespace(e.Name()))
		}
	}
	return all
}

// mountsBelow lists mount points below a directory, innermost first.
func mountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var mounts []string
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			mounts = append([]string{f[4]}, mounts...)
		}
	}
	return mounts
}

// Janitor removes every lab whose owner has died. A lab without an owner is a person's: it stays
// until "lab down".
func Janitor() error {
	names, err := List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		l, err := Open(name)
		if err != nil || l.Owner.PID == 0 || l.Owner.alive() {
			continue // not readable: being built or removed right now
		}
		errs = append(errs, l.Down())
	}
	return errors.Join(errs...)
}

// startGuard starts the process that removes the lab when its owner has ended.
func (l *Lab) startGuard() error {
	if l.Owner.PID == 0 {
		return nil
	}
	var err error
	l.Guard, err = command{
		argv:    []string{l.Options.ProbeExecutable, guardArgument, l.Name},
		logFile: "/dev/null",
	}.start()
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return l.save()
}

// runGuard is the guard: it sleeps on the owner's pidfd and removes the lab when the owner is gone.
func runGuard(name string) error {
	l, err := Open(name)
	if err != nil {
		return err
	}
	if l.Owner.alive() {
		fd, err := unix.PidfdOpen(l.Owner.PID, 0)
		if err == nil {
			for l.Owner.alive() {
				if _, err := os.Stat(l.dir()); err != nil {
					return nil
				}
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 2000)
			}
		}
	}
	return teardown(name)
}

// Remove takes down a lab of which perhaps nothing but the name is left.
func Remove(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("lab name %q is not valid", name)
	}
	if l, err := Open(name); err == nil {
		return l.Down()
	}
	return teardown(name)
}
