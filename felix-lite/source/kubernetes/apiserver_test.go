// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer is as much of an API server as lists and watches need, and can be made to misbehave.
type apiServer struct {
	*httptest.Server
	streams bool // lists can be streamed (sendInitialEvents)

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]metav1.Object // by resource and namespace/name
	log      map[string][]event                  // by resource
	oldest   int                                 // versions before this one are gone
	cut      chan struct{}                       // closed to end all watches
	changed  chan struct{}                       // closed at each change
	refuse   map[string]int                      // by resource: HTTP status of every request
	lists    map[string]int                      // by resource: lists served, streamed or not
	selector map[string]string                   // by resource: selectors last asked for
}

type event struct {
	Type    string        `json:"type"`
	Object  metav1.Object `json:"object"`
	version int
}

func newAPIServer(t *testing.T, streams bool) *apiServer {
	s := &apiServer{
		streams: streams, version: 1, oldest: 1, objects: map[string]map[string]metav1.Object{}, log: map[string][]event{},
		cut: make(chan struct{}), changed: make(chan struct{}), refuse: map[string]int{}, lists: map[string]int{}, selector: map[string]string{},
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.cutWatches()
		s.Close()
	})
	return s
}

func (s *apiServer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// set adds or alters an object; unset removes one.
func (s *apiServer) set(resource string, o metav1.Object)   { s.edit(resource, o, false) }
func (s *apiServer) unset(resource string, o metav1.Object) { s.edit(resource, o, true) }

func (s *apiServer) edit(resource string, o metav1.Object, remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	name := o.GetNamespace() + "/" + o.GetName()
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]metav1.Object{}
	}
	_, known := s.objects[resource][name]
	e := event{Type: "ADDED", Object: o, version: s.version}
	switch {
	case remove:
		e.Type = "DELETED"
		delete(s.objects[resource], name)
	case known:
		e.Type = "MODIFIED"
	}
	if !remove {
		s.objects[resource][name] = o
	}
	s.log[resource] = append(s.log[resource], e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// cutWatches ends all watches as a broken connection does.
func (s *apiServer) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// forget makes all versions so far too old to watch from.
func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
	s.log = map[string][]event{}
}

func (s *apiServer) setRefusal(resource string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[resource] = status
}

func (s *apiServer) listed(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists[resource]
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	q := r.URL.Query()
	s.mu.Lock()
	refuse := s.refuse[resource]
	s.selector[resource] = q.Get("labelSelector") + q.Get("fieldSelector")
	s.mu.Unlock()
	switch {
	case refuse != 0:
		reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 401: metav1.StatusReasonUnauthorized}[refuse]
		answer(w, refuse, status(refuse, reason, resource+" is refused"))
	case q.Get("watch") == "":
		s.serveList(w, resource)
	case q.Get("sendInitialEvents") == "true" && !s.streams:
		answer(w, 422, status(422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden"))
	default:
		s.serveWatch(w, r, resource, q.Get("resourceVersion"), q.Get("sendInitialEvents") == "true")
	}
}

var kinds = map[string]string{
	"services": "v1 Service", "pods": "v1 Pod", "nodes": "v1 Node", "namespaces": "v1 Namespace",
	"endpointslices": "discovery.k8s.io/v1 EndpointSlice",
}

func (s *apiServer) serveList(w http.ResponseWriter, resource string) {
	s.mu.Lock()
	s.lists[resource]++
	version, kind, _ := strings.Cut(kinds[resource], " ")
	items := make([]metav1.Object, 0, len(s.objects[resource]))
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind + "List", "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)},
	})
	s.mu.Unlock()
	if err != nil {
		panic(err)
	}
	answer(w, 200, json.RawMessage(body))
}

func (s *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, resource, from string, initial bool) {
	flusher := w.(http.Flusher)
	w.Header().Set("Content-Type", "application/json")
	seen, _ := strconv.Atoi(from)
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
		flusher.Flush()
	}
	typed := func(o metav1.Object) json.RawMessage {
		raw, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		version, kind, _ := strings.Cut(kinds[resource], " ")
		return json.RawMessage(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, version, kind, raw[1:]))
	}

	s.mu.Lock()
	cut := s.cut
	if initial {
		s.lists[resource]++
		for _, o := range s.objects[resource] {
			send("ADDED", typed(o))
		}
		seen = s.version
		send("BOOKMARK", typed(bookmark(seen)))
	} else if seen < s.oldest {
		s.mu.Unlock()
		send("ERROR", status(410, metav1.StatusReasonExpired, "too old resource version"))
		return
	}
	flusher.Flush()
	for {
		for _, e := range s.log[resource] {
			if e.version > seen {
				send(e.Type, typed(e.Object))
				seen = e.version
			}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-cut:
			panic(http.ErrAbortHandler) // the connection breaks, without a last word
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
}

// bookmark ends the first part of a streamed list.
func bookmark(version int) metav1.Object {
	o := &corev1.Namespace{}
	o.ResourceVersion = strconv.Itoa(version)
	o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return o
}
