// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

func (l *Lab) dir() string { return filepath.Join(root, l.Name) }

func (l *Lab) save() error { return l.saveTo(l.dir()) }

func (l *Lab) saveTo(dir string) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Name, err)
	}
	return writeAtomically(filepath.Join(dir, "lab.json"), data)
}

// Open reads the state of a lab made by another process.
func Open(name string) (*Lab, error) {
	data, err := os.ReadFile(filepath.Join(root, name, "lab.json"))
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	l := &Lab{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	if l.Options.ProbeExecutable, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("open lab %s: own executable: %w", name, err)
	}
	for _, n := range l.Nodes {
		n.lab = l
	}
	for _, p := range slices.Concat(l.Pods, l.HostPods) {
		p.node = l.Node(p.NodeName)
	}
	return l, nil
}

// List returns the names of all labs on this machine.
func List() ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Lock takes the lab's lock for a change made by a person's command; release it by the returned
// function. Two commands on one lab wait for each other.
func (l *Lab) Lock() (func(), error) {
	f, err := os.Open(l.dir())
	if err != nil {
		return nil, fmt.Errorf("lock lab %s: %w", l.Name, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock lab %s: %w", l.Name, err)
	}
	return func() { f.Close() }, nil
}

// writeAtomically replaces a file in one step, so that a reader sees the old content or the new.
func writeAtomically(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// findAgent looks for the built agent: LAB_AGENT_BINARY, beside this executable, or in bin/ of the
// source tree the caller stands in.
func findAgent() (string, error) {
	candidates := []string{os.Getenv("LAB_AGENT_BINARY")}
	if self, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(self), "felix-lite"))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			candidates = append(candidates, filepath.Join(dir, "bin", "felix-lite"))
		}
	}
	for _, c := range candidates {
		if c == "" {
			continue
		}
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(c)
		}
	}
	return "", errors.New("agent binary bin/felix-lite not found: run make build, or set LAB_AGENT_BINARY")
}
