// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and sets the kernel's settings below /proc/sys, in the network namespace of the
// calling thread.
//
// Paths have slashes, never dots: interface names may contain dots themselves. Callers are the packages
// that make interfaces of their own; a setting of an interface that is not ours is never set here.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const root = "/proc/sys"

// Get reads a setting. The error wraps fs.ErrNotExist where the kernel does not have it.
func Get(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", path, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// Set writes a value where it is another one, and reports whether it did.
func Set(path, value string) (bool, error) {
	old, err := Get(path)
	if err != nil || old == value {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(root, path), []byte(value), 0); err != nil {
		return false, fmt.Errorf("set sysctl %s to %s: %w", path, value, err)
	}
	return true, nil
}
