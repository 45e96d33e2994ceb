// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setSysctl writes a value below /proc/sys where it is another one, and reports whether it did.
// The path has slashes, never dots: interface names may contain dots themselves.
func setSysctl(path, value string) (bool, error) {
	file := filepath.Join("/proc/sys", path)
	old, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read sysctl %s: %w", path, err)
	}
	if strings.TrimSpace(string(old)) == value {
		return false, nil
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return false, fmt.Errorf("set sysctl %s to %s: %w", path, value, err)
	}
	return true, nil
}

// isNotFound recognises every way in which the kernel says that an interface is gone.
func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return err != nil && (errors.As(err, &notFound) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO))
}
