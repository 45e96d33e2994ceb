// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/derive"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// index holds what all files say and works out what changed. It does no I/O. The cost of a changed
// file is that of the file, and of its changed documents for the parsing, not of the directory.
type index struct {
	files   map[string]*file
	holders map[pending.Key][]*holder // sorted by file name, then place
	table   *pending.Table
	dirty   map[pending.Key]bool // to be resolved by the next flush
	derive  *derive.Deriver
}

// file is what one file last said.
type file struct {
	name    string
	docs    []document
	holders map[pending.Key][]*holder
	errs    []model.ObjectError
}

// holder is one document's word on an object.
type holder struct {
	item
	file  string
	place int // number of the document in the file, from 1; 0: from an earlier state of the file
}

func newIndex() *index {
	return &index{
		files:   make(map[string]*file),
		holders: make(map[pending.Key][]*holder),
		table:   pending.NewTable(),
		dirty:   make(map[pending.Key]bool),
		derive:  derive.New(),
	}
}

// put takes a new version of a file in.
func (x *index) put(name string, content []byte) {
	was := x.files[name]
	if was == nil {
		was = &file{name: name}
	}
	now := &file{name: name, holders: make(map[pending.Key][]*holder)}
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
	x.dirty[pending.Key{Kind: KindFile, Name: model.ObjectName{Name: now.name}}] = true
}

// resolve says what is to be used of an object, and what is wrong with it.
func (x *index) resolve(k pending.Key) pending.State {
	if k.Kind == KindFile {
		if f := x.files[k.Name.Name]; f != nil {
			return pending.State{Errors: f.errs}
		}
		return pending.State{}
	}
	var out pending.State
	var used *holder
	for _, h := range x.holders[k] {
		for _, e := range h.errs {
			e.Message += " (" + h.where() + ")"
			out.Errors = append(out.Errors, e)
		}
		switch {
		case used == nil && h.object != nil:
			used, out.Object = h, h.object
		case used != nil:
			out.Errors = append(out.Errors, model.ObjectError{
				Kind: k.Kind, Name: k.Name,
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
	for k := range x.dirty {
		x.table.Set(k, x.resolve(k))
	}
	clear(x.dirty)
	b := x.table.Flush()
	for _, c := range x.derive.Apply(b.Changes) {
		// A slice of that name that somebody wrote is not ours to touch.
		if x.table.Get(pending.Key{Kind: c.Kind, Name: c.Name}).Object == nil {
			b.Changes = append(b.Changes, c)
		}
	}
	return b
}
