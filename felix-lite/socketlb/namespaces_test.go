// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func pathOf(ns netns.NsHandle) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)) }

// newNamespace makes a pod's network namespace, and returns its file and its cookie.
func newNamespace(t *testing.T) (path string, cookie uint64) {
	t.Helper()
	ns := testenv.NewNetNS(t)
	cookie, err := netNSCookie(ns)
	if err != nil {
		t.Fatal(err)
	}
	return pathOf(ns), cookie
}

func (h *host) wantOptedOut(what string, cookies ...uint64) {
	h.t.Helper()
	var got []uint64
	if err := h.set.SocketOff.All(func(c uint64, _ uint32) bool { got = append(got, c); return true }); err != nil {
		h.t.Fatal(err)
	}
	slices.Sort(cookies)
	if slices.Sort(got); !slices.Equal(got, cookies) {
		h.t.Errorf("%s: %v, want %v", what, got, cookies)
	}
}

// optOut lets a manager know pods that have opted out, by the name of the pod, and that this is all.
func optOut(m *Manager, paths map[string]string) {
	for name, path := range paths {
		m.Files(files.Batch{file(name, name, path)})
		m.Objects([]model.Change{model.Updated(pod(name, AnnotationDisabled))})
	}
	m.AllowPrune()
}

// link has a path be a link to another.
func link(t *testing.T, path, to string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestOptOutsFollowAnnotationsAndEndpoints(t *testing.T) {
	h := newHost(t)
	path, cookie := newNamespace(t)
	const stale = 1
	if err := h.set.SocketOff.Put(stale, 1); err != nil {
		t.Fatal(err)
	}
	m := h.manager(Enabled)
	m.Files(files.Batch{file("1", "a", path), file("2", "gone", "/run/netns/there-is-none")})
	m.Objects([]model.Change{model.Updated(pod("a", "disabled")), model.Updated(pod("gone", "disabled"))})
	h.settle(m, false)
	h.wantOptedOut("before all is known, nothing is removed", stale, cookie)
	m.AllowPrune()
	h.settle(m, false)
	h.wantOptedOut("what an earlier run left goes", cookie)
	m.Objects([]model.Change{model.Updated(pod("a", ""))})
	h.settle(m, false)
	h.wantOptedOut("the annotation is removed")
	m.Objects([]model.Change{model.Updated(&model.Namespace{Name: "ns", Annotations: map[string]string{Annotation: AnnotationDisabled}})})
	h.settle(m, false)
	h.wantOptedOut("the namespace opts out", cookie)
	m.Files(files.Batch{{ID: "1"}})
	h.settle(m, false)
	h.wantOptedOut("the pod is gone")
	if err := m.Problem(); err != nil {
		t.Errorf("problem %v", err)
	}
	// The host itself can not be opted out by a file that names its namespace.
	m.Files(files.Batch{file("3", "a", pathOf(h.ns))})
	h.settle(m, false)
	h.wantOptedOut("the host's namespace")
	if m.Problem() == nil {
		t.Error("nobody is told")
	}
}

// As long as nobody has opted out, no program looks for those who have.
func TestProgramsLookForOptOutsOnceThereAreAny(t *testing.T) {
	h := newHost(t)
	path, _ := newNamespace(t)
	looks := func(m *Manager, what string, want bool) {
		t.Helper()
		h.settle(m, false)
		if got := m.loaded.Flags&uint32(layout.CTLBOptOuts) != 0; got != want {
			t.Errorf("%s: programs look for opt-outs: %t, want %t", what, got, want)
		}
		if err := m.Problem(); err != nil {
			t.Errorf("%s: problem %v", what, err)
		}
	}
	m := h.manager(Enabled)
	m.AllowPrune()
	looks(m, "nobody has opted out", false)
	m.Files(files.Batch{file("1", "a", path)})
	m.Objects([]model.Change{model.Updated(pod("a", "disabled"))})
	looks(m, "a pod opts out", true)
	next := h.manager(Enabled)
	m.Close()
	next.Ensure(context.Background(), false)
	if next.loaded.Flags&uint32(layout.CTLBOptOuts) == 0 {
		t.Error("after a restart: what an earlier run has opted out is balanced until its file is read again")
	}
	next.AllowPrune()
	looks(next, "and is gone", true)
	third := h.manager(Enabled)
	next.Close()
	looks(third, "after another restart", false)
}

func TestAnOptOutStaysWhileItsNamespaceCanNotBeRead(t *testing.T) {
	h := newHost(t)
	target, a := newNamespace(t)
	other, b := newNamespace(t)
	path := filepath.Join(t.TempDir(), "ns")
	for what, spoil := range map[string]func(){
		"a loop of links": func() { link(t, path, path) },
		"no namespace": func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			const stale = 1
			problem := func(m *Manager, want bool) {
				t.Helper()
				if err := m.Problem(); want != (err != nil && strings.Contains(err.Error(), path)) || want != (err != nil) {
					t.Errorf("problem %v, want one that names %s: %v", err, path, want)
				}
			}
			link(t, path, target)
			m := h.manager(Enabled)
			optOut(m, map[string]string{"a": path})
			h.settle(m, false)
			h.wantOptedOut("at first", a)
			spoil()
			m.Resync()
			h.settle(m, false)
			h.wantOptedOut("it can not be read any more", a)
			problem(m, true)

			if err := h.set.SocketOff.Put(stale, 1); err != nil {
				t.Fatal(err)
			}
			next := h.manager(Enabled)
			m.Close()
			optOut(next, map[string]string{"a": path, "b": other})
			h.settle(next, false)
			h.wantOptedOut("after a restart, what an earlier run wrote may be its", stale, a, b)
			next.Files(files.Batch{{ID: "b"}})
			h.now = h.now.Add(time.Minute)
			h.settle(next, false)
			h.wantOptedOut("another's is not", stale, a)
			problem(next, true)

			link(t, path, target)
			h.now = h.now.Add(time.Minute)
			h.settle(next, false)
			h.wantOptedOut("it can be read again", a)
			problem(next, false)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			next.Resync()
			h.settle(next, false)
			h.wantOptedOut("it is gone")
			problem(next, false)
		})
	}
}
