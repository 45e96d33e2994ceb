// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// Change is what became of one endpoint file: an endpoint, an error that names why the file can
// not be used, or (both nil) its removal.
type Change struct {
	ID       string
	Endpoint *Endpoint
	Err      error
}

// Batch is a set of changes that were found together. The first one a watcher sends is the whole
// directory, empty where there is nothing in it.
type Batch []Change

// Watcher turns a directory of endpoint files into batches of changes.
type Watcher struct {
	dir    string
	rescan time.Duration
	log    *logrus.Entry
	known  map[string]fileState
}

// fileState is what a file looked like when it was last read: it is read again when this changes.
type fileState struct {
	modified time.Time
	size     int64
	inode    uint64
}

// NewWatcher makes a watcher of dir. The whole directory is compared again every rescan, so that a
// lost notification costs no more than that.
func NewWatcher(dir string, rescan time.Duration, log *logrus.Entry) *Watcher {
	return &Watcher{dir: dir, rescan: rescan, log: log.WithField("directory", dir), known: map[string]fileState{}}
}

// Run creates the directory where it is missing, sends everything in it, then every change, until
// the context ends. It returns an error only where the directory can not be made or watched.
func (w *Watcher) Run(ctx context.Context, out chan<- Batch) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch endpoint directory: %w", err)
	}
	defer notify.Close()
	if err := w.watchDir(notify); err != nil {
		return err
	}
	if !w.send(ctx, out, w.scan()) {
		return nil
	}
	tick := time.NewTicker(w.rescan)
	defer tick.Stop()
	for {
		var changes []Change
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-notify.Events:
			if !ok {
				return errors.New("watch endpoint directory: notifications ended")
			}
			changes = w.onEvent(notify, ev)
		case err := <-notify.Errors:
			// Overflow, most likely: whatever it is, a scan finds what was missed.
			w.log.WithError(err).Debug("endpoint directory notification error, rescanning")
			changes = w.scan()
		case <-tick.C:
			if err := w.watchDir(notify); err != nil {
				w.log.WithError(err).Warn("endpoint directory can not be watched")
			}
			changes = w.scan()
		}
		if len(changes) > 0 && !w.send(ctx, out, changes) {
			return nil
		}
	}
}

func (w *Watcher) watchDir(notify *fsnotify.Watcher) error {
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return fmt.Errorf("create endpoint directory: %w", err)
	}
	if slices.Contains(notify.WatchList(), w.dir) {
		return nil
	}
	if err := notify.Add(w.dir); err != nil {
		return fmt.Errorf("watch endpoint directory: %w", err)
	}
	return nil
}

func (w *Watcher) onEvent(notify *fsnotify.Watcher, ev fsnotify.Event) []Change {
	if filepath.Clean(ev.Name) == filepath.Clean(w.dir) {
		// The directory itself was removed or replaced: watch the new one.
		if ev.Op.Has(fsnotify.Remove) || ev.Op.Has(fsnotify.Rename) {
			if err := w.watchDir(notify); err != nil {
				w.log.WithError(err).Warn("endpoint directory can not be watched")
			}
			return w.scan()
		}
		return nil
	}
	id, ok := idOf(filepath.Base(ev.Name))
	if !ok {
		return nil
	}
	if c, ok := w.read(id); ok {
		return []Change{c}
	}
	return nil
}

// scan compares the whole directory with what is known.
func (w *Watcher) scan() []Change {
	entries, err := os.ReadDir(w.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.WithError(err).Warn("endpoint directory can not be read")
		return nil
	}
	var changes []Change
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		id, ok := idOf(e.Name())
		if !ok {
			continue
		}
		present[id] = true
		if c, ok := w.read(id); ok {
			changes = append(changes, c)
		}
	}
	for id := range w.known {
		if !present[id] {
			delete(w.known, id)
			changes = append(changes, Change{ID: id})
		}
	}
	return changes
}

// read looks at one file; false means that nothing changed since the last look.
func (w *Watcher) read(id string) (Change, bool) {
	path := filepath.Join(w.dir, id+suffix)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the scan up
	if errors.Is(err, fs.ErrNotExist) {
		if _, ok := w.known[id]; !ok {
			return Change{}, false
		}
		delete(w.known, id)
		return Change{ID: id}, true
	}
	if err != nil {
		return Change{ID: id, Err: fmt.Errorf("open endpoint file: %w", err)}, true
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Change{ID: id, Err: fmt.Errorf("read endpoint file: %w", err)}, true
	}
	state := fileState{modified: info.ModTime(), size: info.Size(), inode: inodeOf(info)}
	if old, ok := w.known[id]; ok && old == state {
		return Change{}, false
	}
	w.known[id] = state
	if !info.Mode().IsRegular() {
		return Change{ID: id, Err: errors.New("endpoint file is not a regular file")}, true
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return Change{ID: id, Err: fmt.Errorf("read endpoint file: %w", err)}, true
	}
	if len(data) > maxFileSize {
		return Change{ID: id, Err: fmt.Errorf("endpoint file is larger than %d bytes", maxFileSize)}, true
	}
	ep, err := ParseEndpoint(data)
	if err != nil {
		return Change{ID: id, Err: fmt.Errorf("endpoint file: %w", err)}, true
	}
	return Change{ID: id, Endpoint: ep}, true
}

func (w *Watcher) send(ctx context.Context, out chan<- Batch, changes Batch) bool {
	select {
	case out <- changes:
		return true
	case <-ctx.Done():
		return false
	}
}

// inodeOf tells a file put there by rename from the one it replaced, even within one clock tick.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
