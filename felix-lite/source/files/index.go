// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/derive"
)

// index holds what all files say and works out what changed. It does no I/O. The cost of a changed
// file is that of the file, and of its changed documents for the parsing, not of the directory.
type index struct {
	files   map[string]*file
	holders map[key][]*holder // sorted by file name, then place
	sent    map[key]sent
	dirty   map[key]bool // to be compared with what was sent by the next flush
	derive  *derive.Deriver
}

// file is what one file last said.
type file struct {
	name    string
	docs    []document
	holders map[key][]*holder
	errs    []model.ObjectError
}

// holder is one document's word on an object.
type holder struct {
	item
	file  string
	place int // number of the document in the file, from 1; 0: from an earlier state of the file
}

// sent is what the last batches said of an object.
type sent struct {
	object model.Object
	errs   []model.ObjectError
}

func newIndex() *index {
	return &index{
		files:   make(map[string]*file),
		holders: make(map[key][]*holder),
		sent:    make(map[key]sent),
		dirty:   make(map[key]bool),
		derive:  derive.New(),
	}
}

// put takes a new version of a file in.
func (x *index) put(name string, content []byte) {
	was := x.files[name]
	if was == nil {
		was = &file{name: name}
	}
	now := &file{name: name, holders: make(map[key][]*holder)}
	chunks, err := split(name, content)
	lost := err != nil
	if err != nil {
		now.report(err.Error())
	}
	known := make(map[[sha256.Size]byte]*document, len(was.docs))
	for i := range was.docs {
		known[was.docs[i].text] = &was.docs[i]
	}
	for i, c := range chunks {
		doc := parseDocument(c, known)
		now.docs = append(now.docs, doc)
		if doc.err != nil {
			now.report(fmt.Sprintf("document %d: %s", i+1, doc.err))
		}
		lost = lost || doc.lost
		for _, it := range doc.items {
			now.add(&holder{item: it, file: name, place: i + 1}, was)
		}
	}
	if lost {
		now.keepMissing(was)
	}
	x.replace(was, now)
}

// unreadable notes that a file can not be read now. What it said before stays.
func (x *index) unreadable(name string, err error) {
	was := x.files[name]
	if was == nil {
		was = &file{name: name}
	}
	now := &file{name: name, docs: was.docs, holders: was.holders}
	now.report("can not be read: " + err.Error())
	x.replace(was, now)
}

// remove forgets a file.
func (x *index) remove(name string) {
	if was := x.files[name]; was != nil {
		x.replace(was, &file{name: name})
		delete(x.files, name)
	}
}

// add notes a document's word on an object. Where the object can not be used now but could before,
// the former one stays in use.
func (f *file) add(h *holder, was *file) {
	if h.object == nil && len(h.errs) > 0 {
		for _, old := range was.holders[h.key] {
			if old.object != nil {
				h.object = old.object
				break
			}
		}
	}
	f.holders[h.key] = append(f.holders[h.key], h)
}

// keepMissing keeps the objects that the file held before and does not mention now: they may stand in
// the part that can not be parsed.
func (f *file) keepMissing(was *file) {
	for k, list := range was.holders {
		if _, mentioned := f.holders[k]; mentioned {
			continue
		}
		for _, old := range list {
			if old.object != nil {
				f.holders[k] = []*holder{{item: item{key: k, object: old.object}, file: f.name}}
				break
			}
		}
	}
}

func (f *file) report(message string) {
	f.errs = append(f.errs, model.ObjectError{Kind: KindFile, Name: model.ObjectName{Name: f.name}, Message: message})
}

// replace puts one state of a file in the place of another.
func (x *index) replace(was, now *file) {
	x.files[now.name] = now
	for k := range was.holders {
		x.holders[k] = slices.DeleteFunc(x.holders[k], func(h *holder) bool { return h.file == was.name })
		if len(x.holders[k]) == 0 {
			delete(x.holders, k)
		}
		x.dirty[k] = true
	}
	for k, list := range now.holders {
		all := append(x.holders[k], list...)
		slices.SortStableFunc(all, func(a, b *holder) int {
			return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.place, b.place))
		})
		x.holders[k] = all
		x.dirty[k] = true
	}
	x.dirty[key{kind: KindFile, name: model.ObjectName{Name: now.name}}] = true
}

// resolve says what is to be used of an object, and what is wrong with it.
func (x *index) resolve(k key) sent {
	if k.kind == KindFile {
		if f := x.files[k.name.Name]; f != nil {
			return sent{errs: f.errs}
		}
		return sent{}
	}
	var out sent
	var used *holder
	for _, h := range x.holders[k] {
		for _, e := range h.errs {
			e.Message += " (" + h.where() + ")"
			out.errs = append(out.errs, e)
		}
		switch {
		case used == nil && h.object != nil:
			used, out.object = h, h.object
		case used != nil:
			out.errs = append(out.errs, model.ObjectError{
				Kind: k.kind, Name: k.name,
				Message: fmt.Sprintf("defined twice: %s is used, %s is not", used.where(), h.where()),
			})
		}
	}
	return out
}

func (h *holder) where() string {
	if h.place == 0 {
		return h.file
	}
	return fmt.Sprintf("%s, document %d", h.file, h.place)
}

// flush returns what changed since the last flush.
func (x *index) flush() model.Batch {
	var b model.Batch
	for _, k := range sorted(x.dirty) {
		was, now := x.sent[k], x.resolve(k)
		sameErrors := slices.Equal(was.errs, now.errs)
		if sameErrors && sameObject(was.object, now.object) {
			continue
		}
		if now.object == nil && now.errs == nil {
			delete(x.sent, k)
		} else {
			x.sent[k] = now
		}
		b.Errors = append(b.Errors, now.errs...)
		switch {
		case now.object != nil:
			// Also where only the errors are new: the change says which errors it replaces.
			b.Changes = append(b.Changes, model.Updated(now.object))
		case was.object != nil || now.errs == nil:
			b.Changes = append(b.Changes, model.Deleted(k.kind, k.name))
		}
	}
	clear(x.dirty)
	for _, c := range x.derive.Apply(b.Changes) {
		// A slice of that name that somebody wrote is not ours to touch.
		if x.sent[key{kind: c.Kind, name: c.Name}].object == nil {
			b.Changes = append(b.Changes, c)
		}
	}
	return b
}

// sameObject compares by value; most often it is the same pointer.
func sameObject(a, b model.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a == b || model.Equal(a, b)
}

// rank is the order of kinds in a batch: what others refer to comes first.
var rank = map[model.Kind]int{
	KindFile: 0, model.KindNamespace: 1, model.KindNode: 2, model.KindPod: 3, model.KindService: 4, model.KindEndpointSlice: 5,
}

func sorted(keys map[key]bool) []key {
	out := make([]key, 0, len(keys))
	for k := range keys {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b key) int {
		return cmp.Or(cmp.Compare(rank[a.kind], rank[b.kind]), a.name.Compare(b.name))
	})
	return out
}
