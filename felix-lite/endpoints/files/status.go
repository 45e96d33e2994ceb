// SPDX-License-Identifier: Apache-2.0

package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Status is one status file: what the agent made of an endpoint file. Ready is true only once both
// programs, the interface's entry, the routes and the neighbour entries are in place.
type Status struct {
	Version       int          `json:"version"`
	ContainerID   string       `json:"containerID"`
	HostInterface string       `json:"hostInterface"`
	Ifindex       int          `json:"ifindex"`
	Ready         bool         `json:"ready"`
	Error         string       `json:"error"`
	Addresses     []netip.Addr `json:"addresses"`
	Updated       time.Time    `json:"updated"`
}

// SameAs reports whether two statuses say the same, whenever they were written.
func (s Status) SameAs(o Status) bool {
	return s.Version == o.Version && s.ContainerID == o.ContainerID && s.HostInterface == o.HostInterface &&
		s.Ifindex == o.Ifindex && s.Ready == o.Ready && s.Error == o.Error && slices.Equal(s.Addresses, o.Addresses)
}

// StatusDir writes and reads the status files of one directory.
type StatusDir struct{ path string }

// NewStatusDir creates the directory where it is missing and returns it.
func NewStatusDir(path string) (*StatusDir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("create endpoint status directory: %w", err)
	}
	return &StatusDir{path: path}, nil
}

// Write puts the status of endpoint id in place by rename, so that a reader sees the old or the
// new one and nothing between.
func (d *StatusDir) Write(id string, s Status) error {
	s.Version = Version
	if s.Addresses == nil {
		s.Addresses = []netip.Addr{}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode status of endpoint %s: %w", id, err)
	}
	if err := writeFile(filepath.Join(d.path, id+suffix), append(data, '\n')); err != nil {
		return fmt.Errorf("write status of endpoint %s: %w", id, err)
	}
	return nil
}

// Read returns the status of endpoint id; the error wraps fs.ErrNotExist where there is none.
func (d *StatusDir) Read(id string) (Status, error) {
	var s Status
	data, err := os.ReadFile(filepath.Join(d.path, id+suffix))
	if err != nil {
		return s, fmt.Errorf("read status of endpoint %s: %w", id, err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("decode status of endpoint %s: %w", id, err)
	}
	return s, nil
}

// Remove deletes the status of endpoint id; an absent one is not an error.
func (d *StatusDir) Remove(id string) error {
	if err := os.Remove(filepath.Join(d.path, id+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove status of endpoint %s: %w", id, err)
	}
	return nil
}

// List returns the ids that have a status file.
func (d *StatusDir) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list endpoint statuses: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := idOf(e.Name()); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

const suffix = ".json"

// idOf returns the endpoint id that a file name stands for; temporary and foreign files have none.
func idOf(name string) (string, bool) {
	if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, suffix) || len(name) == len(suffix) {
		return "", false
	}
	return strings.TrimSuffix(name, suffix), true
}

// writeFile replaces path by rename. The temporary name begins with a dot, which idOf skips.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
	}
	return err
}
