// SPDX-License-Identifier: Apache-2.0

// Package statefile is the small file in which the agent leaves what the maps do not hold, the names
// of things, for commands that look at the maps later, whether the agent is alive or not.
//
// The agent's loop writes it, felix-lite/inspect reads it. It is a convenience: a reader must do
// without it, and nothing is ever decided by it.
package statefile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

// Name is the file's name inside the run directory.
const Name = "state.json"

// version is written, and checked by Read: a file of another one is not understood.
const version = 1

// State is the file's content.
type State struct {
	Version  int       `json:"version"`
	Node     string    `json:"node"`
	PID      int       `json:"pid"`
	Build    string    `json:"build"`
	Started  time.Time `json:"started"`
	Health   string    `json:"healthAddress"`
	Services []Service `json:"services"`
	SocketLB SocketLB  `json:"socketLB"`
}

// SocketLB is what the agent knows of balancing at connect time; the hooks themselves are the kernel's to tell.
type SocketLB struct {
	Mode     string   `json:"mode,omitempty"`
	Cgroup   string   `json:"cgroup,omitempty"`
	SelfTest string   `json:"selfTest,omitempty"` // passed, failed, pending; empty: nothing to test
	Fallback bool     `json:"fallback"`           // host traffic is balanced packet by packet, too
	Why      string   `json:"why,omitempty"`
	Missing  []string `json:"missing,omitempty"` // features of the kernel that would be used
	OptedOut int      `json:"optedOut,omitempty"`
}

// Equal compares two of them.
func (s SocketLB) Equal(other SocketLB) bool { return reflect.DeepEqual(s, other) }

// Service is the name of one service port's id.
type Service struct {
	Family  string `json:"family"` // v4, v6
	ID      uint32 `json:"id"`
	Service string `json:"service"` // namespace/name
	Port    string `json:"port,omitempty"`
	Type    string `json:"type"`
}

// Write replaces the file in dir at once.
func Write(dir string, s State) error {
	s.Version = version
	f, err := os.CreateTemp(dir, "."+Name+".*")
	if err != nil {
		return fmt.Errorf("write state file: %w", err)
	}
	err = json.NewEncoder(f).Encode(s)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, Name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
		return fmt.Errorf("write state file: %w", err)
	}
	return nil
}

// Read returns the content; the error wraps fs.ErrNotExist where there is no file.
func Read(dir string) (State, error) {
	var s State
	data, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		return s, fmt.Errorf("read state file: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read state file: %w", err)
	}
	if s.Version != version {
		return State{}, fmt.Errorf("read state file: version %d is not understood (want %d)", s.Version, version)
	}
	return s, nil
}
