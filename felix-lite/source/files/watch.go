// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// scope is what a scan has to look at: the named files, or everything.
type scope struct {
	all   bool
	names map[string]bool // base names; their content is read even if it looks unchanged
}

var everything = scope{all: true}

// watcher waits for events of a directory. Without a working watch it still wakes by time.
type watcher struct {
	dir     string
	fs      *fsnotify.Watcher
	events  <-chan fsnotify.Event
	errors  <-chan error
	trouble string // what was last logged
}

func newWatcher(dir string) *watcher { return &watcher{dir: filepath.Clean(dir)} }

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // nothing is lost: events of a source that ends
	}
}

// watch makes sure that the directory is watched. It is called before each scan: a directory that
// was removed and made again needs a new watch, and adding one that is there changes nothing.
func (w *watcher) watch() error {
	if w.fs == nil {
		fs, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("start watching: %w", err)
		}
		w.fs, w.events, w.errors = fs, fs.Events, fs.Errors
	}
	if err := w.fs.Add(w.dir); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	return nil
}

// wait returns what has to be scanned: what events name, collected until the directory is quiet, or
// everything when the time is up.
func (w *watcher) wait(ctx context.Context, resync time.Duration) (scope, error) {
	found := scope{names: map[string]bool{}}
	timer := time.NewTimer(resync)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return scope{}, ctx.Err()
	case <-timer.C:
		return everything, nil
	case e := <-w.events:
		w.note(&found, e)
	case <-w.errors: // an overflow: events were lost
		found.all = true
	}

	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		timer.Reset(quiet)
		select {
		case <-ctx.Done():
			return scope{}, ctx.Err()
		case <-timer.C:
			return found, nil
		case <-limit.C:
			return found, nil
		case e := <-w.events:
			w.note(&found, e)
		case <-w.errors:
			found.all = true
		}
	}
}

// note adds an event to what has to be scanned. An event of the directory itself, or of something
// that is no manifest, may stand for any change: a mounted ConfigMap swaps a link called ..data.
func (w *watcher) note(found *scope, e fsnotify.Event) {
	if e.Op == fsnotify.Chmod {
		return
	}
	if name := filepath.Base(e.Name); filepath.Clean(e.Name) != w.dir && isManifest(name) {
		found.names[name] = true
	} else {
		found.all = true
	}
}
