// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckOwner returns an error that wraps ErrForeign if maps of another dataplane are pinned below
// root. None at all is no error.
func CheckOwner(root string) error {
	dir := mapsDir(root)
	if _, err := os.Stat(filepath.Join(dir, ownerName)); err == nil {
		return nil
	}
	names, err := mapPins(dir)
	if err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("%s has %s without the marker %s: %w", dir, names[0], ownerName, ErrForeign)
}

// Unpin removes every pin of ours below root, links first and the owner marker last, and returns how
// many there were. What was loaded goes when nothing attached uses it any more. It refuses to touch
// maps without our marker: the error wraps ErrForeign.
func Unpin(root string) (int, error) {
	if err := CheckOwner(root); err != nil {
		return 0, err
	}
	var doomed []string
	links, err := os.ReadDir(LinksDir(root))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, l := range links {
		doomed = append(doomed, filepath.Join(LinksDir(root), l.Name()))
	}
	names, err := mapPins(mapsDir(root))
	if err != nil {
		return 0, err
	}
	for _, name := range append(names, ownerName) {
		doomed = append(doomed, filepath.Join(mapsDir(root), name))
	}
	n := 0
	var errs []error
	for _, path := range doomed {
		switch err := os.Remove(path); {
		case err == nil:
			n++
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("remove pin: %w", err))
		}
	}
	for _, dir := range []string{LinksDir(root), mapsDir(root), filepath.Join(root, "tc")} {
		_ = os.Remove(dir) // stays where others have something in it
	}
	return n, errors.Join(errs...)
}

// mapPins are the names in a directory that look like ours.
func mapPins(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ourPrefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
