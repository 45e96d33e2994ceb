// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// maxFileSize bounds what is read from one file. 30,000 services with their endpoints are 30 MiB.
const maxFileSize = 256 << 20

// listing knows which files the directory has and what each looked like when it was read.
type listing struct {
	dir  string
	seen map[string]stamp
}

func newListing(dir string) *listing {
	return &listing{dir: dir, seen: make(map[string]stamp)}
}

// stamp tells one version of a file from another. The zero stamp is no version's.
type stamp struct {
	size     int64
	modified time.Time
	device   uint64
	inode    uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = uint64(st.Dev), st.Ino
	}
	return s
}

// isManifest says whether a file of that name is read.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// scan brings the index up to date with the directory and returns what changed. An error means that
// the directory as a whole could not be read; then nothing has changed.
func (l *listing) scan(what scope, index *index) (model.Batch, error) {
	names := what.names
	if what.all {
		entries, err := os.ReadDir(l.dir)
		if err != nil {
			return model.Batch{}, err
		}
		names = make(map[string]bool, len(entries)+len(l.seen))
		for name := range l.seen {
			names[name] = false
		}
		for _, e := range entries {
			if isManifest(e.Name()) {
				names[e.Name()] = false
			}
		}
		for name := range what.names {
			names[name] = true
		}
	} else if _, err := os.Stat(l.dir); err != nil {
		return model.Batch{}, err
	}
	for name, force := range names {
		l.read(name, force, index)
	}
	return index.flush(), nil
}

// read takes one file in if it is new or altered, and out if it is gone.
func (l *listing) read(name string, force bool, index *index) {
	path := filepath.Join(l.dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, dangling := os.Lstat(path); dangling == nil {
			err = fmt.Errorf("its link points nowhere: %w", err)
		} else {
			delete(l.seen, name)
			index.remove(name)
			return
		}
	}
	if err == nil && !force && l.seen[name] == stampOf(info) {
		return
	}
	l.seen[name] = stamp{} // read again next time, unless this works
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case info.Size() > maxFileSize:
		err = fmt.Errorf("it has %d bytes, more than %d: split it", info.Size(), maxFileSize)
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		index.unreadable(name, err)
		return
	}
	l.seen[name] = stampOf(info)
	index.put(name, content)
}
