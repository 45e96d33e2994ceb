// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), part)
}

// listener is the receiving end of a source.
type listener struct {
	t       *testing.T
	batches chan model.Batch
	log     *lines
	objects map[pending.Key]model.Object
	errors  map[pending.Key]string
	last    model.Batch
	synced  bool
}

func listen(t *testing.T, client kubernetes.Interface) *listener {
	t.Helper()
	l := &listener{
		t: t, batches: make(chan model.Batch), log: &lines{},
		objects: map[pending.Key]model.Object{}, errors: map[pending.Key]string{},
	}
	log := logrus.New()
	log.SetOutput(l.log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- New(Options{Client: client, Log: log}).Run(ctx, l.batches) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	return l
}

func (l *listener) take(b model.Batch) {
	for _, ch := range b.Changes {
		k := pending.Key{Kind: ch.Kind, Name: ch.Name}
		delete(l.errors, k)
		delete(l.objects, k)
		if ch.Object != nil {
			l.objects[k] = ch.Object
			if !b.Synced {
				l.t.Errorf("%s %s is sent before all is listed", ch.Kind, ch.Name)
			}
		}
	}
	for _, e := range b.Errors {
		l.errors[pending.Key{Kind: e.Kind, Name: e.Name}] = e.Message
	}
	l.last, l.synced = b, l.synced || b.Synced
}

func (l *listener) until(what string, cond func() bool) {
	l.t.Helper()
	deadline := time.After(20 * time.Second)
	poll := time.NewTicker(5 * time.Millisecond) // for conditions outside the batches: the log, the server
	defer poll.Stop()
	for !cond() {
		select {
		case b := <-l.batches:
			l.take(b)
		case <-poll.C:
		case <-deadline:
			l.t.Fatalf("%s: not within 20 s; %d objects, errors %v, log:\n%s", what, len(l.objects), l.errors, l.log.buf.String())
		}
	}
}

func (l *listener) service(name string) *model.Service {
	s, _ := l.objects[pending.Key{Kind: model.KindService, Name: model.ObjectName{Namespace: "default", Name: name}}].(*model.Service)
	return s
}

func (l *listener) hasAddress(name, addr string) func() bool {
	return func() bool {
		s := l.service(name)
		return s != nil && slices.Contains(s.ClusterIPs, netip.MustParseAddr(addr))
	}
}

func apiService(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func TestOneBatchWithAllKindsComesFirst(t *testing.T) {
	client := fake.NewClientset(
		apiService("web", "10.96.0.1"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}},
		&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{"kubernetes.io/service-name": "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
		},
	)
	l := listen(t, client)
	l.until("synced", func() bool { return l.synced })
	if len(l.last.Changes) != 5 || len(l.last.Errors) != 0 {
		t.Errorf("got %+v", l.last)
	}

	if _, err := client.CoreV1().Services("default").Update(t.Context(), apiService("web", "10.96.0.2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until("the service's new address", l.hasAddress("web", "10.96.0.2"))
	if len(l.last.Changes) != 1 || !l.last.Synced {
		t.Errorf("got %+v, want one change", l.last)
	}
	if err := client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until("the service is gone", func() bool { return l.service("web") == nil })
}

func TestAnEmptyClusterIsSyncedToo(t *testing.T) {
	l := listen(t, fake.NewClientset())
	l.until("synced", func() bool { return l.synced })
	if len(l.last.Changes) != 0 {
		t.Errorf("got %+v", l.last)
	}
}

// both runs a test against a server that streams lists and against an older one.
func both(t *testing.T, f func(*testing.T, *apiServer)) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streamed lists %v", streams), func(t *testing.T) { f(t, newAPIServer(t, streams)) })
	}
}

func TestAWatchThatIsCutIsTakenUpAgain(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.set("services", apiService("web", "10.96.0.1"))
		l := listen(t, s.client(t))
		l.until("synced", func() bool { return l.synced })
		for i := 2; i < 4; i++ {
			s.cutWatches()
			addr := fmt.Sprintf("10.96.0.%d", i)
			s.set("services", apiService("web", addr))
			l.until("the change made during the cut", l.hasAddress("web", addr))
		}
		s.cutWatches()
		s.unset("services", apiService("web", "10.96.0.3"))
		l.until("the deletion made during the cut", func() bool { return l.service("web") == nil })
		if len(l.errors) != 0 {
			t.Errorf("errors are left: %v", l.errors)
		}
	})
}

func TestAVersionTooOldMeansANewListAndWhatVanishedIsDeleted(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.set("services", apiService("web", "10.96.0.1"))
		s.set("services", apiService("api", "10.96.0.2"))
		l := listen(t, s.client(t))
		l.until("synced", func() bool { return l.synced })
		before := s.listed("services")

		s.mu.Lock() // nobody reconnects before all of this is done
		delete(s.objects["services"], "default/api")
		s.mu.Unlock()
		s.forget()
		s.cutWatches()
		l.until("the vanished service is deleted", func() bool { return l.service("api") == nil })
		if l.service("web") == nil || s.listed("services") == before {
			t.Errorf("web %v, lists before %d, now %d", l.service("web"), before, s.listed("services"))
		}
		if n := l.log.count("level=warning"); n != 0 {
			t.Errorf("an expired version is warned about:\n%s", l.log.buf.String())
		}
	})
}

func TestWithoutRightsNothingIsSentButTheReason(t *testing.T) {
	s := newAPIServer(t, true)
	s.set("services", apiService("web", "10.96.0.1"))
	s.setRefusal("pods", 403)
	l := listen(t, s.client(t))
	key := pending.Key{Kind: KindSource, Name: model.ObjectName{Name: "pods"}}
	l.until("the reason is reported", func() bool { return l.errors[key] != "" })
	if want := "the agent's account may not read pods: give it the verbs list and watch (RBAC)"; l.errors[key] != want {
		t.Errorf("reason is %q, want %q", l.errors[key], want)
	}
	before := s.listed("services")
	l.until("the others are listed", func() bool { return s.listed("services") >= max(1, before) && s.listed("nodes") > 0 })
	if l.synced || l.service("web") != nil {
		t.Error("objects are sent although pods were never listed")
	}
	s.setRefusal("pods", 0)
	l.until("synced, and the reason gone", func() bool { return l.synced && l.errors[key] == "" })
	if l.service("web") == nil {
		t.Error("the service is missing")
	}
	if n := l.log.count("may not read pods"); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
	l.until("the recovery is logged", func() bool { return l.log.count("the API server can be read again") == 1 })
}

func TestAServerThatCanNotBeReachedIsWarnedAboutOnce(t *testing.T) {
	s := newAPIServer(t, true)
	client := s.client(t)
	s.Close()
	l := listen(t, client)
	key := pending.Key{Kind: KindSource, Name: model.ObjectName{Name: "API server"}}
	l.until("it is reported", func() bool { return l.errors[key] != "" })
	l.until("it is logged", func() bool { return l.log.count("can not be reached") > 0 })
	if n := l.log.count("level=warning"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, l.log.buf.String())
	}
	if l.synced || len(l.errors) != 1 {
		t.Errorf("synced %v, errors %v", l.synced, l.errors)
	}
}

func TestTheServerIsAskedForNoMoreThanIsNeeded(t *testing.T) {
	s := newAPIServer(t, true)
	l := listen(t, s.client(t))
	l.until("synced", func() bool { return l.synced })
	s.mu.Lock()
	defer s.mu.Unlock()
	want := "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
	if s.selector["services"] != want || s.selector["endpointslices"] != want {
		t.Errorf("selectors are %v", s.selector)
	}
	if s.selector["pods"] != "status.phase!=Succeeded,status.phase!=Failed" {
		t.Errorf("pods are selected by %q", s.selector["pods"])
	}
}

func TestStatesThatAreOvertakenAreNotSent(t *testing.T) {
	h := newHub(nil)
	st := &store{hub: h, kind: model.KindService}
	if err := st.Replace([]any{apiService("web", "10.96.0.1"), apiService("api", "10.96.0.9")}, "1"); err != nil {
		t.Fatal(err)
	}
	if b, ok := h.take(); !ok || len(b.Changes) != 2 {
		t.Fatalf("got %+v", b)
	}
	for i := range 50 {
		if err := st.Update(apiService("web", fmt.Sprintf("10.96.0.%d", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Delete(apiService("api", "")); err != nil {
		t.Fatal(err)
	}
	if err := st.Add(apiService("api", "10.96.0.9")); err != nil {
		t.Fatal(err)
	}
	b, ok := h.take()
	if !ok || len(b.Changes) != 1 || b.Changes[0].Object.(*model.Service).ClusterIPs[0] != netip.MustParseAddr("10.96.0.50") {
		t.Errorf("got %+v, want web's last state only", b)
	}
	if b, ok := h.take(); ok {
		t.Errorf("something is sent twice: %+v", b)
	}
}

func TestTrimmingLosesNothingThatIsConverted(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-1", UID: "u", Labels: map[string]string{"app": "web"},
				Annotations:   map[string]string{"felix-lite.io/weight": "3", corev1.LastAppliedConfigAnnotation: "{...}"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			},
			Spec: corev1.PodSpec{
				NodeName: "node-1", HostNetwork: true, Volumes: []corev1.Volume{{Name: "v"}},
				InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "m", ContainerPort: 9}}}},
				Containers:     []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.65.1.2"}},
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}},
			},
		}
	}
	node := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": "z"}},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.65.1.0/24"}, Taints: []corev1.Taint{{Key: "k"}}},
			Status: corev1.NodeStatus{
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Images:     []corev1.ContainerImage{{Names: []string{"i"}}},
			},
		}
	}
	for _, pair := range [][2]any{{pod(), pod()}, {node(), node()}, {apiService("web", "10.96.0.1"), apiService("web", "10.96.0.1")}} {
		trimmed, err := trim(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		st := &store{hub: newHub(nil), kind: model.KindPod}
		_, got, _ := st.state(trimmed)
		_, want, _ := st.state(pair[1])
		if !model.Equal(got.Object, want.Object) {
			t.Errorf("trimmed gives %+v, whole %+v", got.Object, want.Object)
		}
	}
	p := pod()
	_, _ = trim(p)
	if p.ManagedFields != nil || p.Spec.Volumes != nil || p.Status.ContainerStatuses != nil || len(p.Annotations) != 1 {
		t.Errorf("too much is left: %+v", p)
	}
}
