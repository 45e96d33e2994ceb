// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

const good = `{"version":1,"containerID":"abc","pod":{"namespace":"default","name":"web","uid":"u"},"netns":"/run/netns/x",
"hostInterface":"cali123","podInterface":"eth0","hostMAC":"ee:ee:ee:ee:ee:ee","podMAC":"02:00:00:00:00:01",
"addresses":["10.65.1.2","fd00:65:1::2"],"sourcePrefixes":["10.0.0.0/8"]}`

func TestParseEndpoint(t *testing.T) {
	ep, err := ParseEndpoint([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if ep.HostInterface != "cali123" || ep.Pod.String() != "default/web" || len(ep.Addresses) != 2 || ep.MAC().String() != "02:00:00:00:00:01" {
		t.Fatalf("got %+v", ep)
	}
	replace := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	tests := []struct{ name, content, want string }{
		{"an empty file is named as such", "", "file is empty"},
		{"a file that is cut off is refused", good[:len(good)-4], "decode json"},
		{"a second document is refused", good + good, "more than one document"},
		{"an unknown field is refused", replace(`"version":1`, `"version":1,"mtu":1400`), `unknown field "mtu"`},
		{"another version is refused", replace(`"version":1`, `"version":2`), "version 2 is not supported"},
		{"no container", replace(`"abc"`, `""`), "containerID is empty"},
		{"no pod name", replace(`"name":"web"`, `"name":""`), "pod.namespace and pod.name"},
		{"an interface name with a slash is refused", replace("cali123", "a/b"), "slash"},
		{"an interface name that is too long is refused", replace("cali123", "cali123456789012"), "longer than 15"},
		{"an address that is none is refused", replace("10.65.1.2", "10.65.1"), "decode json"},
		{"a v4-mapped address is refused", replace("10.65.1.2", "::ffff:10.65.1.2"), "v4-mapped"},
		{"a link-local address is refused", replace("fd00:65:1::2", "fe80::1"), "not a global unicast"},
		{"an address with a zone is refused", replace("fd00:65:1::2", "fd00::1%eth0"), "zone"},
		{"the same address twice is refused", replace("fd00:65:1::2", "10.65.1.2"), "given twice"},
		{"no addresses", replace(`["10.65.1.2","fd00:65:1::2"]`, `[]`), "addresses is empty"},
		{"a MAC of eight bytes is refused", replace("02:00:00:00:00:01", "02:00:00:00:00:01:02:03"), "6-byte"},
		{"a multicast MAC is refused", replace("02:00:00:00:00:01", "01:00:00:00:00:01"), "multicast"},
		{"a zero MAC is refused", replace("02:00:00:00:00:01", "00:00:00:00:00:00"), "zero"},
		{"a prefix that is none is refused", replace("10.0.0.0/8", "10.0.0.0/99"), "decode json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseEndpoint([]byte(tt.content))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if ep, err := ParseEndpoint(data); err == nil && (ep.MAC() == nil || ep.Validate() != nil) {
			t.Fatalf("accepted what is not valid: %+v", ep)
		}
	})
}

func TestStatusIsWrittenWholeAndReadBack(t *testing.T) {
	dir, err := NewStatusDir(filepath.Join(t.TempDir(), "endpoint-status"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("absent status: %v", err)
	}
	want := Status{ContainerID: "a", HostInterface: "cali1", Ifindex: 3, Ready: true,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Updated: time.Unix(9, 5).UTC()}
	if err := dir.Write("a", want); err != nil {
		t.Fatal(err)
	}
	want.Version = Version
	got, err := dir.Read("a")
	if err != nil || !got.SameAs(want) || !got.Updated.Equal(want.Updated) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if ids, err := dir.List(); err != nil || len(ids) != 1 || ids[0] != "a" {
		t.Fatalf("ids %v, %v", ids, err)
	}
	for range 2 { // removing what is absent is no error
		if err := dir.Remove("a"); err != nil {
			t.Fatal(err)
		}
	}
}

type watch struct {
	t   *testing.T
	dir string
	ch  chan Batch
	now map[string]Change
}

func startWatch(t *testing.T, rescan time.Duration) *watch {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	w := &watch{t: t, dir: filepath.Join(t.TempDir(), "endpoints"), ch: make(chan Batch), now: map[string]Change{}}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.put("before", good)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewWatcher(w.dir, rescan, logrus.NewEntry(log)).Run(ctx, w.ch) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watcher: %v", err)
		}
	})
	first := <-w.ch
	if len(first) != 1 || first[0].ID != "before" || first[0].Err != nil {
		t.Fatalf("first batch %+v", first)
	}
	w.now["before"] = first[0]
	return w
}

// put writes a file as a plugin does: by rename.
func (w *watch) put(id, content string) {
	w.t.Helper()
	tmp := filepath.Join(w.dir, "."+id+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(w.dir, id+".json")); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watch) until(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case b := <-w.ch:
			for _, c := range b {
				w.now[c.ID] = c
			}
		case <-deadline:
			w.t.Fatalf("%s: last seen %+v", what, w.now)
		}
	}
}

func TestWatcherSeesFilesComeChangeBreakAndGo(t *testing.T) {
	w := startWatch(t, time.Hour)
	w.put("a", good)
	w.until("a new file", func() bool { return w.now["a"].Endpoint != nil })
	w.put("a", strings.Replace(good, "cali123", "cali9", 1))
	w.until("its new content", func() bool { return w.now["a"].Endpoint != nil && w.now["a"].Endpoint.HostInterface == "cali9" })
	w.put("a", "{")
	w.until("an error", func() bool { return w.now["a"].Err != nil })
	if err := os.Remove(filepath.Join(w.dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	w.until("its removal", func() bool { c := w.now["a"]; return c.Err == nil && c.Endpoint == nil })
	if w.now["before"].Endpoint == nil {
		t.Fatal("another endpoint was touched")
	}
}

func TestWatcherReadsADirectoryThatWasReplaced(t *testing.T) {
	w := startWatch(t, 50*time.Millisecond)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	w.until("all to go", func() bool { return w.now["before"].Endpoint == nil })
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.put("again", good)
	w.until("a file in the new directory", func() bool { return w.now["again"].Endpoint != nil })
}

func TestWatcherReportsWhatIsNoOrdinaryFile(t *testing.T) {
	w := startWatch(t, 50*time.Millisecond)
	if err := os.Mkdir(filepath.Join(w.dir, "dir.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.put("big", fmt.Sprintf(`{"containerID":%q}`, strings.Repeat("x", maxFileSize)))
	w.until("two errors", func() bool { return w.now["dir"].Err != nil && w.now["big"].Err != nil })
}
