// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/convert"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// hub gathers what all reflectors say until the agent takes it.
type hub struct {
	mu       sync.Mutex
	objects  *pending.Table
	troubles *pending.Table
	waiting  map[model.Kind]bool // kinds that have not been listed yet
	news     bool                // the first sync has not been sent
	wake     chan struct{}       // holds a token when there may be something to take
}

func newHub(kinds []resource) *hub {
	h := &hub{
		objects:  pending.NewTable(),
		troubles: pending.NewTable(),
		waiting:  make(map[model.Kind]bool),
		news:     true,
		wake:     make(chan struct{}, 1),
	}
	for _, r := range kinds {
		h.waiting[r.kind] = true
	}
	return h
}

// change runs f on the tables and wakes the sender.
func (h *hub) change(f func()) {
	h.mu.Lock()
	f()
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns the next batch, or false if there is nothing to send. Objects are held back until
// every kind has been listed; troubles are not.
func (h *hub) take() (model.Batch, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.troubles.Flush()
	if len(h.waiting) == 0 {
		o := h.objects.Flush()
		b.Changes = append(b.Changes, o.Changes...)
		b.Errors = append(b.Errors, o.Errors...)
		b.Synced = true
	}
	if len(b.Changes) == 0 && len(b.Errors) == 0 && (!h.news || !b.Synced) {
		return model.Batch{}, false
	}
	h.news = h.news && !b.Synced
	return b, true
}

// store is where the reflector of one kind puts what it reads.
type store struct {
	hub  *hub
	kind model.Kind
}

var _ cache.TransformingStore = (*store)(nil)

// Transformer makes the reflector trim the objects of a streamed list as they come.
func (s *store) Transformer() cache.TransformFunc { return trim }

// Add takes an object in.
func (s *store) Add(object any) error { return s.Update(object) }

// Update takes a new state of an object in.
func (s *store) Update(object any) error {
	k, state, err := s.state(object)
	if err != nil {
		return err
	}
	s.hub.change(func() { s.hub.objects.Set(k, state) })
	return nil
}

// Delete forgets an object.
func (s *store) Delete(object any) error {
	k, err := s.key(object)
	if err != nil {
		return err
	}
	s.hub.change(func() { s.hub.objects.Set(k, pending.State{}) })
	return nil
}

// Replace takes the complete list: objects that are not in it are gone.
func (s *store) Replace(list []any, _ string) error {
	states := make(map[pending.Key]pending.State, len(list))
	for _, object := range list {
		k, state, err := s.state(object)
		if err != nil {
			return err
		}
		states[k] = state
	}
	s.hub.change(func() {
		for _, name := range s.hub.objects.Names(s.kind) {
			k := pending.Key{Kind: s.kind, Name: name}
			if _, listed := states[k]; !listed {
				s.hub.objects.Set(k, pending.State{})
			}
		}
		for k, state := range states {
			s.hub.objects.Set(k, state)
		}
		delete(s.hub.waiting, s.kind)
	})
	return nil
}

// Resync does nothing: what is in the table is in the agent.
func (s *store) Resync() error { return nil }

func (s *store) key(object any) (pending.Key, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return pending.Key{}, fmt.Errorf("name an object of kind %s: %w", s.kind, err)
	}
	return pending.Key{Kind: s.kind, Name: model.ObjectName{Namespace: m.GetNamespace(), Name: m.GetName()}}, nil
}

// state converts an object. The key is made from the result where there is one, so that the table
// does not keep the API object's memory alive.
func (s *store) state(object any) (pending.Key, pending.State, error) {
	k, err := s.key(object)
	if err != nil {
		return k, pending.State{}, err
	}
	var state pending.State
	state.Object, state.Errors = convert.Object(object)
	if state.Object != nil {
		k.Name = state.Object.ObjectName()
	}
	return k, state, nil
}
