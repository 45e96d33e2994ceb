// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/model"
)

func pod(name, value string) *model.Pod {
	p := &model.Pod{Name: model.ObjectName{Namespace: "ns", Name: name}}
	if value != "" {
		p.Annotations = map[string]string{Annotation: value}
	}
	return p
}

func file(id, podName, netns string) files.Change {
	return files.Change{ID: id, Endpoint: &files.Endpoint{Pod: files.Pod{Namespace: "ns", Name: podName}, Netns: netns}}
}

func TestAPodOptsOutByItsAnnotationOrItsNamespaces(t *testing.T) {
	o := newOptOuts()
	o.files(files.Batch{file("1", "a", "/run/netns/a"), file("2", "b", "/run/netns/b"), file("3", "c", "")})
	want := func(what string, paths ...string) {
		t.Helper()
		if got := o.paths(); !slices.Equal(got, paths) {
			t.Errorf("%s: %v, want %v", what, got, paths)
		}
	}
	want("nobody says anything")
	o.apply([]model.Change{model.Updated(pod("a", "disabled")), model.Updated(pod("c", "disabled"))})
	want("one says so; of another nobody knows the namespace", "/run/netns/a")
	o.apply([]model.Change{model.Updated(&model.Namespace{Name: "ns", Annotations: map[string]string{Annotation: "disabled"}})})
	want("the namespace says so", "/run/netns/a", "/run/netns/b")
	o.apply([]model.Change{model.Updated(pod("b", "enabled"))})
	want("a pod's own word goes before its namespace's", "/run/netns/a")
	o.apply([]model.Change{model.Updated(&model.Namespace{Name: "ns"}), model.Updated(pod("a", ""))})
	want("nobody says so any more")
	o.apply([]model.Change{model.Updated(pod("a", "disabled"))})
	o.files(files.Batch{{ID: "1"}})
	want("the pod is gone")
}

func TestAPodOnTheHostsNetworkCanNotOptTheHostOut(t *testing.T) {
	o := newOptOuts()
	p := pod("a", "disabled")
	p.HostNetwork = true
	o.apply([]model.Change{model.Updated(p)})
	o.files(files.Batch{file("1", "a", "/proc/1/ns/net")})
	if got := o.paths(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestOnlyWhatMattersIsAChange(t *testing.T) {
	o := newOptOuts()
	if o.apply([]model.Change{model.Updated(pod("a", "")), model.Deleted(model.KindPod, model.ObjectName{Namespace: "ns", Name: "b"})}) {
		t.Error("a pod without the annotation is a change")
	}
	if !o.apply([]model.Change{model.Updated(pod("a", "disabled"))}) || o.apply([]model.Change{model.Updated(pod("a", "disabled"))}) {
		t.Error("an annotation is a change once")
	}
	if !o.files(files.Batch{file("1", "a", "/x")}) || o.files(files.Batch{file("1", "a", "/x")}) || !o.files(files.Batch{{ID: "1"}}) ||
		o.files(files.Batch{{ID: "1"}}) {
		t.Error("a file is a change once")
	}
	if o.files(files.Batch{{ID: "2", Err: model.ObjectError{}}}) {
		t.Error("a file that can not be read is a change")
	}
}
