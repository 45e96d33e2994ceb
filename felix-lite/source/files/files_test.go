// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// cluster is what somebody knows who listens to a source.
type cluster struct {
	t       *testing.T
	dir     string
	batches chan model.Batch
	objects map[pending.Key]model.Object
	errors  map[pending.Key][]string
	last    model.Batch
	count   int
	synced  bool
	log     *lines

	deletions int
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// has says whether the log has a text so many times.
func (l *lines) has(text string, times int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text) >= times
}

// watch runs a source on a directory until the test ends.
func watch(t *testing.T, dir string, resync time.Duration) *cluster {
	t.Helper()
	log := logrus.New()
	written := &lines{}
	log.SetOutput(written)
	c := &cluster{
		t: t, dir: dir, log: written, batches: make(chan model.Batch),
		objects: map[pending.Key]model.Object{}, errors: map[pending.Key][]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- New(Options{Directory: dir, ResyncInterval: resync, Log: log}).Run(ctx, c.batches) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run returned %v", err)
		}
	})
	return c
}

// take applies a batch as the agent does: a change settles the errors of its object.
func (c *cluster) take(b model.Batch) {
	for _, ch := range b.Changes {
		k := pending.Key{Kind: ch.Kind, Name: ch.Name}
		delete(c.errors, k)
		if ch.Object == nil {
			delete(c.objects, k)
			c.deletions++
		} else {
			c.objects[k] = ch.Object
		}
	}
	fresh := map[pending.Key]bool{}
	for _, e := range b.Errors {
		k := pending.Key{Kind: e.Kind, Name: e.Name}
		if !fresh[k] {
			fresh[k], c.errors[k] = true, nil
		}
		c.errors[k] = append(c.errors[k], e.Error())
	}
	c.last, c.synced = b, c.synced || b.Synced
	c.count++
}

// until takes batches until cond holds.
func (c *cluster) until(what string, cond func() bool) {
	c.t.Helper()
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(5 * time.Millisecond) // for conditions outside the batches: the log
	defer poll.Stop()
	for !cond() {
		select {
		case b := <-c.batches:
			c.take(b)
		case <-poll.C:
		case <-deadline:
			c.t.Fatalf("%s: not within 10 s; objects %v, errors %v", what, c.names(), c.errors)
		}
	}
}

func (c *cluster) names() []string {
	var out []string
	for k := range c.objects {
		out = append(out, string(k.Kind)+" "+k.Name.String())
	}
	slices.Sort(out)
	return out
}

func (c *cluster) service(name string) *model.Service {
	s, _ := c.objects[pending.Key{Kind: model.KindService, Name: model.ObjectName{Namespace: "default", Name: name}}].(*model.Service)
	return s
}

// complaints are all errors, sorted.
func (c *cluster) complaints() string {
	var out []string
	for list := range maps.Values(c.errors) {
		out = append(out, list...)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// put writes a file by renaming it into place.
func put(t *testing.T, dir, name, content string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func service(name, ip string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  clusterIP: %s
  selector: {app: %s}
  ports: [{port: 80, targetPort: 8080}]
`, name, ip, name)
}

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec:
  nodeName: node-1
  containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]
status:
  phase: Running
  podIPs: [{ip: 10.65.1.2}]
  conditions: [{type: Ready, status: "True"}]
`

func TestTheFirstBatchIsTheWholeDirectoryAndSynced(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+service("api", "10.96.0.2"))
	put(t, dir, "b.yml", `apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: z1}}
spec: {podCIDRs: [10.65.1.0/24, "fd00:65:1::/64"]}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: Hostname, address: node-1}]}
`)
	put(t, dir, "c.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}
	{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"api-1","labels":{"kubernetes.io/service-name":"api"}},
	 "addressType":"IPv4","ports":[{"port":8080}],"endpoints":[{"addresses":["10.65.1.9"]}]}`)
	put(t, dir, "README.md", "not a manifest: {")
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	want := []string{"EndpointSlice default/api-1", "Namespace default", "Node node-1", "Service default/api", "Service default/web"}
	if got := c.names(); c.count != 1 || !slices.Equal(got, want) {
		t.Errorf("after %d batches got %v, want %v", c.count, got, want)
	}
	if c.complaints() != "" {
		t.Error(c.complaints())
	}
	var order []model.Kind
	for _, ch := range c.last.Changes {
		order = append(order, ch.Kind)
	}
	if want := []model.Kind{"Namespace", "Node", "Service", "Service", "EndpointSlice"}; !slices.Equal(order, want) {
		t.Errorf("order of kinds is %v, want %v", order, want)
	}
}

func TestAnEmptyDirectoryIsSyncedToo(t *testing.T) {
	c := watch(t, t.TempDir(), time.Minute)
	c.until("synced", func() bool { return c.synced })
	if len(c.last.Changes) != 0 {
		t.Errorf("got %v", c.last.Changes)
	}
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+service("api", "10.96.0.2"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })

	put(t, dir, "a.yaml", "# a comment\n"+service("web", "10.96.0.1")+"---\n"+service("api", "10.96.0.3"))
	c.until("api has its new address", func() bool { return c.service("api").ClusterIPs[0] == netip.MustParseAddr("10.96.0.3") })
	if len(c.last.Changes) != 1 || !c.last.Synced {
		t.Errorf("batch is %+v, want one change", c.last)
	}
}

func TestAFileWrittenInPlaceIsReadToo(t *testing.T) {
	dir := t.TempDir()
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(service("web", "10.96.0.1")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.until("web is there", func() bool { return c.service("web") != nil })
}

func TestADeletedFilesObjectsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	put(t, dir, "b.yaml", service("api", "10.96.0.2"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	c.until("web is gone", func() bool { return c.service("web") == nil })
	if c.service("api") == nil {
		t.Error("api is gone, too")
	}
}

func TestSlicesAreDerivedFromPodsUntilOneIsGiven(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	endpoints := func() (out []string) {
		for _, o := range c.objects {
			if s, ok := o.(*model.EndpointSlice); ok && s.Service.Name == "web" {
				for _, e := range s.Endpoints {
					out = append(out, e.Addr.String())
				}
			}
		}
		return out
	}
	put(t, dir, "pod.yaml", webPod)
	c.until("the pod is an endpoint", func() bool { return slices.Equal(endpoints(), []string{"10.65.1.2"}) })

	put(t, dir, "slice.yaml", `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.65.1.7]}]
`)
	c.until("the given slice is the only one", func() bool { return slices.Equal(endpoints(), []string{"10.65.1.7"}) })
	if err := os.Remove(filepath.Join(dir, "slice.yaml")); err != nil {
		t.Fatal(err)
	}
	c.until("the pod is an endpoint again", func() bool { return slices.Equal(endpoints(), []string{"10.65.1.2"}) })
}

func TestADirectoryThatComesLaterIsWaitedForAndOneThatVanishesChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	c := watch(t, dir, 20*time.Millisecond)
	c.until("it is said that the directory is missing", func() bool { return c.log.has("read manifests: ", 1) })
	if c.synced {
		t.Error("synced without a directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c.until("web is there", func() bool { return c.service("web") != nil })

	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	put(t, away, "b.yaml", service("api", "10.96.0.2"))
	c.until("it is said that the directory is missing again", func() bool { return c.log.has("read manifests: ", 2) })
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	c.until("it is read again", func() bool { return c.service("api") != nil })
	if c.deletions != 0 {
		t.Errorf("the vanished directory deleted %d objects", c.deletions)
	}
	put(t, dir, "c.yaml", service("more", "10.96.0.3"))
	c.until("and watched again", func() bool { return c.service("more") != nil })
}

func TestAConfigMapsSwappedLinkIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	version := func(n int, content string) {
		target := fmt.Sprintf("..v%d", n)
		if err := os.Mkdir(filepath.Join(dir, target), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, target), "a.yaml", content)
		tmp := filepath.Join(dir, "..tmp")
		if err := os.Symlink(target, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(1, service("web", "10.96.0.1"))
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	c := watch(t, dir, time.Minute)
	c.until("web is there", func() bool { return c.service("web") != nil })
	version(2, service("web", "10.96.0.2"))
	c.until("web has its new address", func() bool { return c.service("web").ClusterIPs[0] == netip.MustParseAddr("10.96.0.2") })
}

func TestAListIsReadItemByItem(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: a}}
- {apiVersion: v1, kind: Secret, metadata: {name: s}}
- {apiVersion: v1, kind: Namespace, metadata: {name: b}}
`)
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	if got, want := c.names(), []string{"Namespace a", "Namespace b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !strings.Contains(c.complaints(), "document 1: items[1]: Secret of v1 is not read here") {
		t.Errorf("errors are %s", c.complaints())
	}
}

func TestDocumentsAreCutAtLinesOfDashesOnly(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    []string
		lines   []int
	}{
		{"a: 1\n", []string{"a: 1"}, []int{1}},
		{"---\na: 1\n---\nb: 2\n", []string{"a: 1", "b: 2"}, []int{1, 3}},
		{"--- {a: 1}\n--- # comment\nb: 2", []string{"{a: 1}", "# comment\nb: 2"}, []int{1, 2}},
		{"a: |\n  x\n  ---\n  y\n", []string{"a: |\n  x\n  ---\n  y"}, []int{1}},
		{"a: 1\n---\n---\n\n---\nb: 2\n---", []string{"a: 1", "b: 2"}, []int{1, 5}},
		{"a: 1\r\n---\r\nb: 2\r\n", []string{"a: 1", "b: 2"}, []int{1, 2}},
		{"a: ----\n----\n", []string{"a: ----\n----"}, []int{1}},
	} {
		var got []string
		var lines []int
		for _, c := range splitYAML([]byte(tc.content)) {
			got = append(got, strings.TrimSpace(string(c.text)))
			lines = append(lines, c.line)
		}
		if !slices.Equal(got, tc.want) || !slices.Equal(lines, tc.lines) {
			t.Errorf("%q is cut into %q at %v, want %q at %v", tc.content, got, lines, tc.want, tc.lines)
		}
	}
}

func BenchmarkOneServiceAmongThirtyThousand(b *testing.B) {
	var all strings.Builder
	for i := range 30000 {
		all.WriteString("---\n" + service(fmt.Sprintf("svc-%d", i), fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, i%250+1)))
	}
	x := newIndex()
	start := time.Now()
	x.put("all.yaml", []byte(all.String()))
	x.flush()
	first := time.Since(start)
	for i := 0; b.Loop(); i++ {
		x.put("one.yaml", []byte(service("one", fmt.Sprintf("10.200.0.%d", i%250+1))))
		if n := len(x.flush().Changes); n != 1 {
			b.Fatalf("%d changes", n)
		}
	}
	b.ReportMetric(first.Seconds(), "s/first-read")
}
