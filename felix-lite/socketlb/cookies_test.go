// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
)

// newOldHost is one whose kernel tells cookies of network namespaces to programs alone, as before Linux 5.14.
func newOldHost(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	h.cookie = func(netns.NsHandle) (uint64, error) { return 0, unix.ENOPROTOOPT }
	return h
}

func TestAKernelThatTellsCookiesToProgramsAloneIsAsked(t *testing.T) {
	h := newOldHost(t)
	want, err := netNSCookie(h.ns)
	if err != nil {
		t.Fatal(err)
	}
	path, cookie := newNamespace(t)
	m := h.manager(Enabled)
	if m.hostID != 0 {
		t.Fatalf("the kernel has told the cookie %d", m.hostID)
	}
	optOut(m, map[string]string{"a": path})
	h.settle(m, false)
	if m.hostID != want || m.loaded.HostNetNS != want {
		t.Errorf("cookie %d, loaded with %d, want %d", m.hostID, m.loaded.HostNetNS, want)
	}
	h.wantOptedOut("a pod's", cookie)
	m.Files(files.Batch{file("host", "a", pathOf(h.ns))})
	h.settle(m, false)
	h.wantOptedOut("the host can not opt out", cookie)
	if err := m.Problem(); !errors.Is(err, errHost) {
		t.Errorf("problem %v", err)
	}
}

// Hooks wait for the fallback on such kernels, and nobody can be asked before they are there: what an earlier run has
// written must be left alone until then.
func TestOptOutsOfAnEarlierRunStayUntilTheProgramsCanBeAsked(t *testing.T) {
	h := newOldHost(t)
	path, a := newNamespace(t)
	other, b := newNamespace(t)
	first := h.manager(Enabled, features.SetRetval)
	optOut(first, map[string]string{"a": path})
	h.settle(first, true)
	h.wantOptedOut("an earlier run", a)
	first.Close()

	m := h.manager(Enabled, features.SetRetval)
	optOut(m, map[string]string{"a": path, "b": other})
	h.settle(m, false)
	h.wantOptedOut("the hooks wait", a)
	if m.cgroup != nil || m.Problem() != nil {
		t.Errorf("hooks did not wait, or it is a problem that they do: %v", m.Problem())
	}
	h.settle(m, true)
	h.wantOptedOut("the hooks are there", a, b)
	m.Files(files.Batch{{ID: "a"}})
	h.settle(m, true)
	h.wantOptedOut("a pod is gone", b)
	if err := m.Problem(); err != nil {
		t.Errorf("problem %v", err)
	}
}

// fifo has the probe's processes wait for a line in it, as long as hold is true. Whoever waits for such a process in the
// agent's loop waits in vain.
func (h *host) fifo() (hold func(bool), release func()) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	flag, path := filepath.Join(h.t.TempDir(), "hold"), filepath.Join(h.t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		h.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	h.probe = []string{"/bin/sh", "-c", `flag=$1 fifo=$2; shift 2; if [ -e "$flag" ]; then read line <"$fifo"; fi; exec "$@"`, "sh", flag, path,
		self, ProbeVerb}
	return func(hold bool) {
			h.t.Helper()
			err := os.RemoveAll(flag)
			if hold {
				err = os.WriteFile(flag, nil, 0o600)
			}
			if err != nil {
				h.t.Fatal(err)
			}
		}, func() {
			h.t.Helper()
			if _, err := f.WriteString("go on\n"); err != nil {
				h.t.Fatal(err)
			}
		}
}

func TestTheLoopDoesNotWaitForTheProcessThatTellsACookie(t *testing.T) {
	h := newOldHost(t)
	hold, release := h.fifo()
	m := h.manager(Enabled)
	h.settle(m, false)
	path, cookie := newNamespace(t)
	hold(true)
	optOut(m, map[string]string{"a": path})
	m.Ensure(context.Background(), false)
	m.Ensure(context.Background(), false) // while it is under way
	h.wantOptedOut("nobody knows yet")
	release()
	h.result(m)
	m.Ensure(context.Background(), false)
	h.wantOptedOut("now it is known", cookie)
	if err := m.Problem(); err != nil {
		t.Errorf("problem %v", err)
	}
	if r := m.Results(); len(r) != 0 {
		t.Error("it was asked for more than once")
	}
}

func TestACookieThatCouldNotBeToldIsAskedForAgain(t *testing.T) {
	h := newOldHost(t)
	away := h.elsewhere()
	m := h.manager(Enabled)
	h.settle(m, false)
	path, a := newNamespace(t)
	other, b := newNamespace(t)
	optOut(m, map[string]string{"a": path})
	h.settle(m, false)
	h.wantOptedOut("at first", a)

	away(true)
	optOut(m, map[string]string{"b": other})
	h.settle(m, false)
	h.wantOptedOut("the programs do not see the process", a)
	if err := m.Problem(); err == nil || !strings.Contains(err.Error(), other) || m.Broken() {
		t.Errorf("problem %v, want one that names %s and breaks nothing else", err, other)
	}
	if at, ok := m.Next(); !ok || !at.After(h.now) || at.After(h.now.Add(time.Minute)) {
		t.Errorf("it is tried again at %v, %v", at, ok)
	}
	away(false)
	h.settle(m, false)
	h.wantOptedOut("too early", a)
	h.now = h.now.Add(time.Minute)
	h.settle(m, false)
	h.wantOptedOut("asked again", a, b)
	if err := m.Problem(); err != nil {
		t.Errorf("problem %v", err)
	}
	// Whoever is gone is not asked for any more.
	away(true)
	third, _ := newNamespace(t)
	optOut(m, map[string]string{"c": third})
	h.settle(m, false)
	m.Files(files.Batch{{ID: "c"}})
	h.settle(m, false)
	if err := m.Problem(); err != nil {
		t.Errorf("problem %v", err)
	}
	if _, ok := m.Next(); ok {
		t.Error("something is still due")
	}
}

func TestTheProcessThatTellsACookieEndsWithThePass(t *testing.T) {
	h := newOldHost(t)
	m := h.manager(Enabled)
	h.settle(m, false)
	path, cookie := newNamespace(t)
	optOut(m, map[string]string{"a": path})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.Ensure(ctx, false)
	if m.busy {
		h.result(m)
	}
	m.Ensure(ctx, false)
	h.wantOptedOut("the agent ends")
	h.now = h.now.Add(time.Minute)
	h.settle(m, false)
	h.wantOptedOut("the next pass", cookie)
}

// A path may mean another namespace by the time that the programs have told: that one is asked for, then.
func TestACookieIsOfTheNamespaceThatWasAskedFor(t *testing.T) {
	h := newOldHost(t)
	hold, release := h.fifo()
	m := h.manager(Enabled)
	h.settle(m, false)
	before, _ := newNamespace(t)
	after, b := newNamespace(t)
	path := filepath.Join(t.TempDir(), "ns")
	link(t, path, before)
	hold(true)
	optOut(m, map[string]string{"a": path})
	m.Ensure(context.Background(), false)
	link(t, path, after)
	hold(false)
	release()
	h.result(m)
	h.now = h.now.Add(time.Minute)
	h.settle(m, false)
	h.wantOptedOut("of the second one", b)
}
