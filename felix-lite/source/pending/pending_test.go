// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

func key(name string) Key {
	return Key{Kind: model.KindNamespace, Name: model.ObjectName{Name: name}}
}

// ns is the state of a namespace with a label; each call makes a new object.
func ns(name, label string, errors ...string) State {
	s := State{Object: &model.Namespace{Name: name, Labels: map[string]string{"l": label}}}
	for _, e := range errors {
		s.Errors = append(s.Errors, model.ObjectError{Kind: model.KindNamespace, Name: model.ObjectName{Name: name}, Message: e})
	}
	return s
}

// said writes a batch down: "+" for an object, "-" for its end, "!" for an error.
func said(b model.Batch) []string {
	var out []string
	for _, c := range b.Changes {
		if c.Object == nil {
			out = append(out, "-"+c.Name.Name)
		} else {
			out = append(out, "+"+c.Name.Name+" "+c.Object.(*model.Namespace).Labels["l"])
		}
	}
	for _, e := range b.Errors {
		out = append(out, "!"+e.Name.Name+" "+e.Message)
	}
	return out
}

func TestABatchHasWhatDiffersFromWhatWasSent(t *testing.T) {
	broken := func(name, message string) State { return State{Errors: ns(name, "", message).Errors} }
	table := NewTable()
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"new objects are sent in the order of their names", func() {
			table.Set(key("b"), ns("b", "1"))
			table.Set(key("a"), ns("a", "1"))
		}, []string{"+a 1", "+b 1"}},
		{"an equal object is not sent again", func() { table.Set(key("a"), ns("a", "1")) }, nil},
		{"only the last of several states is sent", func() {
			table.Set(key("a"), ns("a", "2"))
			table.Set(key("a"), ns("a", "3"))
		}, []string{"+a 3"}},
		{"an object that came back to what it was is not sent", func() {
			table.Set(key("a"), ns("a", "9"))
			table.Set(key("b"), State{})
			table.Set(key("a"), ns("a", "3"))
			table.Set(key("b"), ns("b", "1"))
		}, nil},
		{"an object that came and went is not sent", func() {
			table.Set(key("c"), ns("c", "1"))
			table.Set(key("c"), State{})
		}, nil},
		{"a new error comes with its object", func() { table.Set(key("a"), ns("a", "3", "odd")) }, []string{"+a 3", "!a odd"}},
		{"an error that is settled is settled by the object", func() { table.Set(key("a"), ns("a", "3")) }, []string{"+a 3"}},
		{"an object that is no longer usable is gone, with the reason", func() { table.Set(key("a"), broken("a", "bad")) }, []string{"-a", "!a bad"}},
		{"an object that was never usable is only an error", func() { table.Set(key("d"), broken("d", "bad")) }, []string{"!d bad"}},
		{"such an error is settled by a deletion", func() { table.Set(key("d"), State{}) }, []string{"-d"}},
		{"a deleted object is gone", func() { table.Set(key("b"), State{}) }, []string{"-b"}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, said(table.Flush())); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	if got := len(table.Names(model.KindNamespace)); got != 1 { // a, which is broken
		t.Errorf("%d objects are known, want 1", got)
	}
}
