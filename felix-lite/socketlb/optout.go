// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"maps"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Annotation of a pod or a namespace, with the value AnnotationDisabled: its sockets are not balanced at connect
// time. A pod's own annotation goes before its namespace's.
const (
	Annotation         = "felix-lite.io/socket-lb"
	AnnotationDisabled = "disabled"
)

// optOuts knows which endpoints of this node have opted out. It is plain data: cookies are the Manager's.
type optOuts struct {
	pods       map[model.ObjectName]string // value of the annotation, where there is one
	namespaces map[string]string
	endpoints  map[string]endpoint // by id
}

// endpoint is what an endpoint file says of a pod's network namespace.
type endpoint struct {
	pod   model.ObjectName
	netns string // path
}

func newOptOuts() *optOuts {
	return &optOuts{pods: map[model.ObjectName]string{}, namespaces: map[string]string{}, endpoints: map[string]endpoint{}}
}

// apply takes in changes of pods and namespaces and reports whether any may matter. Pods with the host's network
// are the host: nobody may opt out for it.
func (o *optOuts) apply(changes []model.Change) (changed bool) {
	for _, c := range changes {
		switch c.Kind {
		case model.KindPod:
			value, has := "", false
			if p, ok := c.Object.(*model.Pod); ok && p != nil && !p.HostNetwork {
				value, has = annotation(p.Annotations)
			}
			changed = set(o.pods, c.Name, value, has) || changed
		case model.KindNamespace:
			value, has := "", false
			if n, ok := c.Object.(*model.Namespace); ok && n != nil {
				value, has = annotation(n.Annotations)
			}
			changed = set(o.namespaces, c.Name.Name, value, has) || changed
		}
	}
	return changed
}

func annotation(all map[string]string) (value string, has bool) {
	value, has = all[Annotation]
	return value, has
}

// set keeps only what is there, and reports whether that is new.
func set[K comparable](m map[K]string, key K, value string, has bool) bool {
	old, had := m[key]
	if has == had && value == old {
		return false
	}
	if has {
		m[key] = value
	} else {
		delete(m, key)
	}
	return true
}

// files takes in changes of endpoint files.
func (o *optOuts) files(batch files.Batch) (changed bool) {
	for _, c := range batch {
		switch {
		case c.Endpoint != nil:
			next := endpoint{model.ObjectName{Namespace: c.Endpoint.Pod.Namespace, Name: c.Endpoint.Pod.Name}, c.Endpoint.Netns}
			changed = changed || o.endpoints[c.ID] != next
			o.endpoints[c.ID] = next
		case c.Err == nil:
			_, had := o.endpoints[c.ID]
			changed = changed || had
			delete(o.endpoints, c.ID)
		}
	}
	return changed
}

// out reports whether a pod has opted out.
func (o *optOuts) out(pod model.ObjectName) bool {
	if value, has := o.pods[pod]; has {
		return value == AnnotationDisabled
	}
	return o.namespaces[pod.Namespace] == AnnotationDisabled
}

// paths are the network namespaces of the endpoints that have opted out, sorted.
func (o *optOuts) paths() []string {
	set := map[string]bool{}
	for _, e := range o.endpoints {
		if e.netns != "" && o.out(e.pod) {
			set[e.netns] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
