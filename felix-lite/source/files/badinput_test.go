// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

func TestBrokenYAMLKeepsTheFilesObjectsUntilItIsFixed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+service("api", "10.96.0.2"))
	put(t, dir, "b.yaml", service("other", "10.96.0.9"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })

	put(t, dir, "a.yaml", service("web", "10.96.0.7")+"---\n"+strings.Replace(service("api", "10.96.0.2"), "spec:", "spec: [", 1))
	c.until("an error is reported", func() bool { return c.complaints() != "" })
	if got := c.complaints(); !strings.HasPrefix(got, "file a.yaml: document 2: parse YAML: line ") {
		t.Errorf("error is %q", got)
	}
	if c.service("api") == nil || c.service("other") == nil || c.service("web").ClusterIPs[0] != netip.MustParseAddr("10.96.0.7") {
		t.Errorf("objects are %v", c.names())
	}

	put(t, dir, "b.yaml", service("other", "10.96.0.10"))
	c.until("another file's change goes on", func() bool { return c.service("other").ClusterIPs[0] == netip.MustParseAddr("10.96.0.10") })

	put(t, dir, "a.yaml", service("web", "10.96.0.7"))
	c.until("the error is settled and api gone", func() bool { return c.complaints() == "" && c.service("api") == nil })
}

func TestTheLineOfAYAMLErrorIsTheFiles(t *testing.T) {
	content := service("web", "10.96.0.1") + "---\n" + "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nmetadata: {name: y}\n"
	doc := parseDocument(splitYAML([]byte(content))[1], nil)
	if doc.err == nil || !strings.Contains(doc.err.Error(), "line 12") {
		t.Errorf("error is %v, want line 12", doc.err)
	}
}

func TestAnUnknownFieldIsNamedAndTheOtherDocumentsGoOn(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })

	bad := strings.Replace(service("web", "10.96.0.5"), "selector:", "selektor:", 1)
	put(t, dir, "a.yaml", service("api", "10.96.0.2")+"---\n"+bad)
	c.until("api is there", func() bool { return c.service("api") != nil })
	want := "service default/web: spec.selektor: unknown field: the object is not used as it is (a.yaml, document 2)"
	if got := c.complaints(); got != want {
		t.Errorf("error is\n%s, want\n%s", got, want)
	}
	if c.service("web") == nil || c.service("web").ClusterIPs[0] != netip.MustParseAddr("10.96.0.1") {
		t.Error("web is not what it was before")
	}
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c.until("the error is settled", func() bool { return c.complaints() == "" })
}

func TestAnObjectThatIsWrongFromTheStartIsNotUsed(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"a number where a string belongs", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 7}\n",
			"service default/web: spec.clusterIP: want string, found number (a.yaml, document 1)"},
		{"a kind that is not read", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
			"file a.yaml: document 1: Deployment of apps/v1 is not read here: only v1 Service, Pod, Node, Namespace and discovery.k8s.io/v1 EndpointSlice"},
		{"an old version of a kind", "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: web}\n",
			"file a.yaml: document 1: EndpointSlice of discovery.k8s.io/v1beta1 is not read here: only v1 Service, Pod, Node, Namespace and discovery.k8s.io/v1 EndpointSlice"},
		{"no kind", "metadata: {name: web}\n", "file a.yaml: document 1: apiVersion and kind must be set"},
		{"no name", "apiVersion: v1\nkind: Service\n", "file a.yaml: document 1: Service: metadata.name must be set"},
		{"no object", "just words\n", "file a.yaml: document 1: not a Kubernetes object: cannot unmarshal string into Go value of type files.header"},
		{"an unknown service type", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: Magic}\n",
			`service default/web: spec.type: unknown type "Magic" (a.yaml, document 1)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "a.yaml", tc.content)
			put(t, dir, "b.yaml", service("good", "10.96.0.2"))
			c := watch(t, dir, time.Minute)
			c.until("synced", func() bool { return c.synced })
			if got := c.complaints(); got != tc.want {
				t.Errorf("error is\n%s, want\n%s", got, tc.want)
			}
			if c.service("web") != nil || c.service("good") == nil {
				t.Errorf("objects are %v", c.names())
			}
			if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
			c.until("the error is settled", func() bool { return c.complaints() == "" })
		})
	}
}

func TestOfTwoDefinitionsTheFirstByFileNameIsUsed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "b.yaml", service("web", "10.96.0.2"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })

	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+service("web", "10.96.0.3"))
	c.until("a.yaml is used", func() bool { return c.service("web").ClusterIPs[0] == netip.MustParseAddr("10.96.0.1") })
	want := "service default/web: defined twice: a.yaml, document 1 is used, a.yaml, document 2 is not\n" +
		"service default/web: defined twice: a.yaml, document 1 is used, b.yaml, document 1 is not"
	if got := c.complaints(); got != want {
		t.Errorf("errors are\n%s\nwant\n%s", got, want)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	c.until("b.yaml is used again, without complaint", func() bool {
		return c.service("web").ClusterIPs[0] == netip.MustParseAddr("10.96.0.2") && c.complaints() == ""
	})
}

func TestAServiceMayHaveNoneOrFiveThousandEndpoints(t *testing.T) {
	slice := func(n int) string {
		var b strings.Builder
		b.WriteString("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" +
			"addressType: IPv4\nports: [{port: 8080}]\nendpoints:")
		if n == 0 {
			b.WriteString(" []")
		}
		for i := range n {
			fmt.Fprintf(&b, "\n- addresses: [10.65.%d.%d]", i/250, i%250+1)
		}
		b.WriteString("\n- addresses: [not-an-address]\n"[:min(n, 1)*len("\n- addresses: [not-an-address]\n")])
		return b.String()
	}
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+slice(0))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	get := func() *model.EndpointSlice {
		return c.objects[pending.Key{Kind: model.KindEndpointSlice, Name: model.ObjectName{Namespace: "default", Name: "web-1"}}].(*model.EndpointSlice)
	}
	if len(get().Endpoints) != 0 || c.complaints() != "" {
		t.Errorf("%d endpoints, errors %s", len(get().Endpoints), c.complaints())
	}
	put(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+slice(5000))
	c.until("5,000 endpoints", func() bool { return len(get().Endpoints) == 5000 })
	want := `endpointslice default/web-1: endpoints[5000].addresses[0]: "not-an-address" is not an IP address (a.yaml, document 2)`
	if c.complaints() != want {
		t.Errorf("error is %s, want %s", c.complaints(), want)
	}
}

func TestAFileThatCanNotBeReadKeepsItsObjects(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c := watch(t, dir, time.Minute)
	c.until("synced", func() bool { return c.synced })
	put(t, dir, "b.yaml", service("api", "10.96.0.2"))
	c.until("api is there", func() bool { return c.service("api") != nil })
	if err := os.Symlink("nowhere", filepath.Join(dir, ".link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, ".link"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	c.until("an error is reported", func() bool {
		return strings.Contains(c.complaints(), "file a.yaml: can not be read: its link points nowhere")
	})
	if c.service("web") == nil {
		t.Error("web is gone")
	}
	put(t, dir, "a.yaml", service("web", "10.96.0.1"))
	c.until("the error is settled", func() bool { return c.complaints() == "" })
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		service("web", "10.96.0.1"), webPod, "apiVersion: v1\nkind: List\nitems: [{}, null, 1]\n", "--- a\n---", "a: &a [*a]", "[", "{}", "null",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":99999}]}}`,
	} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		x := newIndex()
		for _, name := range []string{"a.yaml", "b.json"} {
			for _, content := range [][]byte{first, second} {
				x.put(name, content)
				for _, ch := range x.flush().Changes {
					if ch.Object != nil && len(ch.Object.Validate()) > 0 {
						t.Errorf("%s %s is passed on although %v", ch.Kind, ch.Name, ch.Object.Validate())
					}
				}
			}
		}
		x.remove("a.yaml")
		x.remove("b.json")
		x.flush()
		if n := len(x.holders); n != 0 {
			t.Errorf("%d objects are left of removed files", n)
		}
	})
}
