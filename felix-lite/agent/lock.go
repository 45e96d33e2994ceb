// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning means that another agent works on the node.
var ErrRunning = errors.New("another agent is running")

// lockPatience is how long a new agent waits for one that is just ending.
const lockPatience = 10 * time.Second

// lock makes sure that one agent at a time owns what the run directory stands for. The kernel lets go
// of it when the process ends, however it ends. The error wraps ErrRunning.
func lock(runDir string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(runDir, "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	deadline := time.Now().Add(patience)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			pid, _ := os.ReadFile(f.Name()) // for the message alone
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: process %s holds %s", ErrRunning, strings.TrimSpace(string(pid)), f.Name())
			}
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	// The process is noted for people; the lock holds without it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}
