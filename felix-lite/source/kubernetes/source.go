// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// KindSource is the kind under which trouble with the API server is reported; the name is that of
// the resource that can not be read, or "API server" where it is the same for all. A Change of this kind never has an object: it says that the
// trouble is over.
const KindSource model.Kind = "Source"

// Options configure a Source.
type Options struct {
	// Client talks to the API server; NewClient makes one.
	Client kubernetes.Interface
	// Log gets trouble with the API server; nil: the standard logger.
	Log logrus.FieldLogger
}

// Source implements [model.Source].
type Source struct {
	client kubernetes.Interface
	hub    *hub
	health *health
}

var _ model.Source = (*Source)(nil)

// New returns a Source; nothing is requested before Run. A Source runs once.
func New(o Options) *Source {
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	h := newHub(resources)
	return &Source{
		client: o.Client,
		hub:    h,
		health: newHealth(h, o.Log.WithField("component", "source/kubernetes")),
	}
}

// backoff is the wait between attempts: half a second at first, and up to 20 s with its jitter, so
// that a cluster's agents do not come back to a restarted server all at once.
var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 10 * time.Second}

// Run lists and watches, and sends batches until the context ends. The first batch with objects, and
// each later one, says Synced. Run returns only the context's error.
func (s *Source) Run(ctx context.Context, out chan<- model.Batch) error {
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	// client-go logs each failed attempt; health does so instead, in our words.
	quiet := klog.NewContext(ctx, klog.Logger{})
	for i := range resources {
		b := backoff
		r := cache.NewReflectorWithOptions(s.lister(&resources[i]), resources[i].example,
			&store{hub: s.hub, kind: resources[i].kind},
			cache.ReflectorOptions{Name: resources[i].plural, Logger: new(klog.Logger), Backoff: &b})
		reflectors.Go(func() { r.RunWithContext(quiet) })
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.hub.wake:
		}
		b, ok := s.hub.take()
		if !ok {
			continue
		}
		select {
		case out <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lister makes the requests for one resource and notes how they went.
func (s *Source) lister(r *resource) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.list(ctx, s.client, r.options(o))
			s.health.outcome(r, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := r.watch(ctx, s.client, r.options(o))
			if err != nil && o.SendInitialEvents != nil && streamingUnknown(err) {
				return w, err // an older server: the list that follows says how it is
			}
			s.health.outcome(r, err)
			return w, err
		},
	}, s.client)
}
