// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessID names a process beyond doubt: ids are reused, the pair with the start time is not.
type ProcessID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of /proc/<pid>/stat
}

// identify reads the start time of a process.
func identify(pid int) (ProcessID, error) {
	start, _, err := processStat(pid)
	return ProcessID{PID: pid, Start: start}, err
}

// alive reports whether that very process still runs; a zombie does not.
func (p ProcessID) alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, state, err := processStat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// signal sends a signal to that very process; one that is gone is not an error.
func (p ProcessID) signal(sig unix.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := unix.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// wait returns when the process has ended.
func (p ProcessID) wait(ctx context.Context) error {
	return WaitFor(ctx, fmt.Sprintf("process %d to end", p.PID), func() (bool, string) {
		return !p.alive(), "still running"
	})
}

func processStat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The command name stands in brackets and may hold anything: count fields behind the last one.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("process %d: short stat line", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("process %d: start time: %w", pid, err)
	}
	return start, fields[0][0], nil
}

// command is a process to be started in a namespace and a cgroup of the lab.
type command struct {
	argv      []string
	env       []string
	namespace Namespace // "" for the caller's
	cgroup    cgroupDir // "" for the caller's
	logFile   string    // stdout and stderr, appended
}

// start runs the command detached from the caller's terminal. It is reaped by the calling process if
// that lives long enough, by init otherwise.
func (c command) start() (ProcessID, error) {
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return ProcessID{}, fmt.Errorf("start %s: %w", c.argv[0], err)
	}
	defer log.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.cgroup != "" {
		if err := c.cgroup.create(); err != nil {
			return ProcessID{}, err
		}
		dir, err := os.Open(string(c.cgroup))
		if err != nil {
			return ProcessID{}, fmt.Errorf("start %s: %w", c.argv[0], err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if c.namespace != "" {
		err = c.namespace.Do(cmd.Start)
	} else {
		err = cmd.Start()
	}
	if err != nil {
		return ProcessID{}, fmt.Errorf("start %s: %w", c.argv[0], err)
	}
	id, err := identify(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }()
	return id, err
}

// WaitFor polls a condition until it holds or the context ends, and then says what was last seen.
func WaitFor(ctx context.Context, what string, condition func() (bool, string)) error {
	pause := time.Millisecond
	for {
		ok, seen := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, context.Cause(ctx), seen)
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}
