// SPDX-License-Identifier: Apache-2.0

// Package pending turns what a source knows into what it has to send.
//
// In come the latest states of objects, as often as the source learns of one ([Table.Set]); out goes,
// whenever the receiver is ready, one batch with what differs from the batches before
// ([Table.Flush]). States that were overtaken in between are never sent, and an object that came
// back to what it was costs nothing. Both sources use it. It is pure and keeps one copy of each
// object, the one the receiver has, too.
package pending

import (
	"cmp"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Key names an object among all kinds.
type Key struct {
	Kind model.Kind
	Name model.ObjectName
}

// State is what is known of an object: the object, or nil if there is none to be used, and what is
// wrong with it. The zero State is that of an object that does not exist.
type State struct {
	Object model.Object
	Errors []model.ObjectError
}

func (s State) gone() bool { return s.Object == nil && len(s.Errors) == 0 }

func (s State) equal(o State) bool {
	if !slices.Equal(s.Errors, o.Errors) || (s.Object == nil) != (o.Object == nil) {
		return false
	}
	return s.Object == o.Object || model.Equal(s.Object, o.Object)
}

// Table holds the states of objects. It is not safe for concurrent use.
type Table struct {
	states map[Key]State
	sent   map[Key]State // what was sent of the keys that may differ from it now
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{states: make(map[Key]State), sent: make(map[Key]State)}
}

// Get returns the state that was set last.
func (t *Table) Get(k Key) State { return t.states[k] }

// Set notes the state of an object and reports whether it is another than before.
func (t *Table) Set(k Key, now State) bool {
	was := t.states[k]
	if was.equal(now) {
		return false
	}
	if _, noted := t.sent[k]; !noted {
		t.sent[k] = was
	}
	if now.gone() {
		delete(t.states, k)
	} else {
		t.states[k] = now
	}
	return true
}

// Names returns the names of the kind's objects that are known, in no order.
func (t *Table) Names(kind model.Kind) []model.ObjectName {
	var out []model.ObjectName
	for k := range t.states {
		if k.Kind == kind {
			out = append(out, k.Name)
		}
	}
	return out
}

// Flush returns the changes since the last Flush, ordered by kind (what others refer to comes
// first), then name. Where only an object's errors are new its Change is in the batch all the same:
// that is how the receiver knows which errors are replaced.
func (t *Table) Flush() model.Batch {
	var b model.Batch
	for _, k := range t.sorted() {
		was, now := t.sent[k], t.states[k]
		if was.equal(now) {
			continue
		}
		b.Errors = append(b.Errors, now.Errors...)
		switch {
		case now.Object != nil:
			b.Changes = append(b.Changes, model.Updated(now.Object))
		case was.Object != nil || now.gone():
			b.Changes = append(b.Changes, model.Deleted(k.Kind, k.Name))
		}
	}
	t.sent = make(map[Key]State) // not cleared: the first one was as large as the cluster
	return b
}

// rank orders kinds; kinds that are not objects of the model come first.
var rank = map[model.Kind]int{
	model.KindNamespace: 1, model.KindNode: 2, model.KindPod: 3, model.KindService: 4, model.KindEndpointSlice: 5,
}

func (t *Table) sorted() []Key {
	out := make([]Key, 0, len(t.sent))
	for k := range t.sent {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Key) int {
		return cmp.Or(cmp.Compare(rank[a.Kind], rank[b.Kind]), cmp.Compare(a.Kind, b.Kind), a.Name.Compare(b.Name))
	})
	return out
}
