// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// KindFile is the kind under which errors are reported that belong to no object: a file that can
// not be parsed or read, a document of a kind that is not read. The name is the file's. A Change of
// this kind never has an object; it says that the file's errors are settled.
const KindFile model.Kind = "File"

// Options configure a Source.
type Options struct {
	// Directory is watched. It need not exist yet.
	Directory string
	// ResyncInterval is how often the directory is listed although no event came; 0: 90 s.
	ResyncInterval time.Duration
	// Log gets what concerns the directory as a whole; nil: the standard logger.
	Log logrus.FieldLogger
}

// Source implements [model.Source].
type Source struct {
	dir    string
	resync time.Duration
	log    logrus.FieldLogger
}

var _ model.Source = (*Source)(nil)

// New returns a Source of the directory; nothing is read before Run.
func New(o Options) *Source {
	if o.ResyncInterval <= 0 {
		o.ResyncInterval = 90 * time.Second
	}
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	return &Source{
		dir:    o.Directory,
		resync: o.ResyncInterval,
		log:    o.Log.WithFields(logrus.Fields{"component": "source/files", "directory": o.Directory}),
	}
}

const (
	// quiet is how long the directory must be still before it is read: a program that writes a file
	// in pieces is not to be read in the middle.
	quiet = 20 * time.Millisecond
	// patience bounds the wait where the directory is never still.
	patience = 500 * time.Millisecond
	// retry is how often a directory that is missing, or can not be watched, is looked at.
	retry = time.Second
)

// Run reads the directory and sends batches until the context ends. The first batch after the first
// complete listing, and each later one, says Synced. Run returns only the context's error.
func (s *Source) Run(ctx context.Context, out chan<- model.Batch) error {
	w := newWatcher(s.dir)
	defer w.close()
	index := newIndex()
	listing := newListing(s.dir)
	synced := false
	what := everything

	for {
		watchErr := w.watch()
		b, listErr := listing.scan(what, index)
		s.report(&w.trouble, watchErr, listErr)
		if listErr == nil {
			b.Synced = true
			if !synced || len(b.Changes) > 0 || len(b.Errors) > 0 {
				select {
				case out <- b:
					synced = true
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}

		next := s.resync
		if watchErr != nil || listErr != nil {
			next = min(retry, s.resync)
		}
		var err error
		if what, err = w.wait(ctx, next); err != nil {
			return err
		}
	}
}

// report logs trouble with the directory when it begins, changes and ends, not each time it is met.
func (s *Source) report(last *string, watchErr, listErr error) {
	now := ""
	switch err := errors.Join(listErr, watchErr); {
	case listErr != nil:
		now = fmt.Sprintf("read manifests: %v: what was read before stays in use", listErr)
	case err != nil:
		now = fmt.Sprintf("watch manifests: %v: the directory is listed every %s instead", err, min(retry, s.resync))
	}
	if now == *last {
		return
	}
	if now != "" {
		s.log.Warn(now)
	} else {
		s.log.Info("manifests can be read and watched again")
	}
	*last = now
}
