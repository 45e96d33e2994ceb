// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// TestMain lets this test's binary be the self-test's process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProbeVerb {
		path := ""
		if len(os.Args) == 4 {
			path = os.Args[3]
		}
		if err := Probe(os.Stdout, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// host is where managers of a test work, one after the other.
type host struct {
	t      *testing.T
	root   string
	cgroup string
	set    *maps.Set
	ns     netns.NsHandle
	now    time.Time
	probe  []string // command
	cookie func(netns.NsHandle) (uint64, error)
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, ns: testenv.NetNS(t), root: testenv.BPFFS(t), cgroup: testenv.Cgroup(t), now: time.Now(),
		probe: []string{"/proc/self/exe", ProbeVerb}}
	var err error
	if h.set, err = maps.Open(h.root, maps.Options{Sizes: maps.Sizes{Conntrack: 1000, ConntrackHalfOpen: 1000, NATFrontend: 1000,
		NATBackend: 1000, NATAffinity: 1000, Routes: 1000, Interfaces: 64}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.set.Close() })
	return h
}

func (h *host) features(hidden ...features.Feature) *features.Set {
	h.t.Helper()
	var names []string
	for _, f := range hidden {
		names = append(names, string(f))
	}
	set, err := features.Probe(names)
	if err != nil {
		h.t.Fatal(err)
	}
	return set
}

func (h *host) manager(mode Mode, hidden ...features.Feature) *Manager {
	h.t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	m := NewManager(Options{Mode: mode, CgroupRoot: h.cgroup, BPFFSRoot: h.root, IPv4: true, IPv6: true, Features: h.features(hidden...),
		HZ: 250, Maps: h.set, Namespace: h.ns, Command: h.probe, Now: func() time.Time { return h.now }, Log: logrus.NewEntry(log),
		netNSCookie: h.cookie})
	h.t.Cleanup(m.Close)
	return m
}

// settle makes passes until every goroutine has told.
func (h *host) settle(m *Manager, fallbackServes bool) {
	h.t.Helper()
	m.Ensure(context.Background(), fallbackServes)
	for m.busy {
		h.result(m)
		m.Ensure(context.Background(), fallbackServes)
	}
	m.Ensure(context.Background(), fallbackServes)
}

// result gives a manager what its goroutine has found.
func (h *host) result(m *Manager) {
	h.t.Helper()
	select {
	case r := <-m.Results():
		m.OnResult(r)
	case <-time.After(20 * time.Second):
		h.t.Fatal("nothing was found in 20 s")
	}
}

func (h *host) links() map[string]attach.CgroupLink {
	h.t.Helper()
	list, err := attach.CgroupLinks(h.root)
	if err != nil {
		h.t.Fatal(err)
	}
	links := map[string]attach.CgroupLink{}
	for _, l := range list {
		links[l.Hook] = l
	}
	return links
}

func (h *host) wantHooks(what string, hooks ...string) {
	h.t.Helper()
	got := []string{}
	for hook := range h.links() {
		got = append(got, hook)
	}
	slices.Sort(got)
	slices.Sort(hooks)
	if !slices.Equal(got, hooks) {
		h.t.Errorf("%s: hooks %v, want %v", what, got, hooks)
	}
}

func allHooks() []string { return append(slices.Clone(tcpHooks), udpHooks...) }

func TestARestartTakesTheLinksOver(t *testing.T) {
	h := newHost(t)
	h.settle(h.manager(Enabled), false)
	before := h.links()
	m := h.manager(Enabled)
	h.settle(m, false)
	for hook, l := range h.links() {
		if b := before[hook]; b.LinkID != l.LinkID || b.Program == l.Program {
			t.Errorf("%s: %+v became %+v, want the same link with another program", hook, b, l)
		}
	}
	if !m.tested || len(m.earlier) != 0 {
		t.Errorf("tested %v, left over %v", m.tested, m.earlier)
	}
}

func TestHooksAreNotTakenAwayBeforeTheFallbackServes(t *testing.T) {
	h := newHost(t)
	h.settle(h.manager(Enabled), false)
	m := h.manager(Disabled)
	if needed, known := m.FallbackNeeded(); !needed || !known {
		t.Errorf("Disabled: needed %v, known %v", needed, known)
	}
	h.settle(m, false)
	h.wantHooks("while the fallback does not serve", allHooks()...)
	if !m.Balancing() {
		t.Error("TC is told that no socket is balanced while the programs stand there")
	}
	h.settle(m, true)
	closing := []string{"recvmsg4", "recvmsg6", "recvmsg46", "getpeername4", "getpeername6", "getpeername46", "release4", "release6"}
	h.wantHooks("when it does, sockets go on to see the service", closing...)
	if m.Balancing() {
		t.Error("TC is told that sockets are balanced")
	}
	if at, ok := m.Next(); !ok || at.Sub(h.now) != closingTime {
		t.Errorf("the next pass is due at %v, %v", at, ok)
	}
	h.now = h.now.Add(closingTime)
	h.settle(m, true)
	h.wantHooks("two minutes later")
}

func TestFromEnabledToTCPOnlyUDPGoesWhenTheFallbackServes(t *testing.T) {
	h := newHost(t)
	h.settle(h.manager(Enabled), false)
	before := h.links()
	m := h.manager(TCPOnly)
	h.settle(m, false)
	if h.links()["connect4"].Program != before["connect4"].Program {
		t.Error("connect was replaced before the fallback serves")
	}
	h.settle(m, true)
	if h.links()["connect4"].Program == before["connect4"].Program {
		t.Error("connect was not replaced")
	}
	h.wantHooks("TCPOnly", append(slices.Clone(tcpHooks), "recvmsg4", "recvmsg6", "recvmsg46")...)
	program := h.links()["connect4"].Program
	h.settle(m, true)
	if h.links()["connect4"].Program != program {
		t.Error("programs are loaded in every pass")
	}
	h.now = h.now.Add(closingTime)
	h.settle(m, true)
	h.wantHooks("two minutes later", tcpHooks...)
}

// What an earlier run has attached is not known then, and may serve: it stays, and TC looks for what sockets asked for.
func TestAPinThatCanNotBeReadIsAFailureThatIsTriedAgain(t *testing.T) {
	for _, pin := range []string{"ctlb_connect4", "ctlb_of-nobody"} {
		t.Run(pin, func(t *testing.T) {
			h := newHost(t)
			h.settle(h.manager(Enabled), false)
			h.detach("connect4")
			path := filepath.Join(maps.LinksDir(h.root), pin)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			for what, mode := range map[string]Mode{"Enabled": Enabled, "Disabled": Disabled} {
				m := h.manager(mode)
				h.settle(m, true)
				if err := m.Problem(); err == nil || !strings.Contains(err.Error(), path) || !m.Broken() {
					t.Errorf("%s: problem %v, want one that names %s", what, err, path)
				}
				if needed, known := m.FallbackNeeded(); !needed || !known || !m.Balancing() {
					t.Errorf("%s: fallback needed %v, known %v; sockets may be balanced: %v", what, needed, known, m.Balancing())
				}
				if at, ok := m.Next(); !ok || at.After(h.now.Add(time.Minute)) {
					t.Errorf("%s: it is tried again at %v, %v", what, at, ok)
				}
			}
			m := h.manager(Enabled)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			h.wantHooks("while it could not be read", slices.DeleteFunc(allHooks(), func(h string) bool { return h == "connect4" })...)
			h.now = h.now.Add(time.Minute)
			h.settle(m, true)
			h.wantHooks("it is gone", allHooks()...)
			if needed, known := m.FallbackNeeded(); needed || !known || m.Problem() != nil {
				t.Errorf("it is gone: needed %v, known %v, problem %v", needed, known, m.Problem())
			}
		})
	}
}

func TestAHooksPinThatCanNotBeReadAnyMoreIsSaidAndPutRight(t *testing.T) {
	h := newHost(t)
	m := h.manager(Enabled)
	h.settle(m, false)
	h.detach("connect4")
	path := filepath.Join(maps.LinksDir(h.root), "ctlb_connect4")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Resync()
	h.settle(m, false)
	if err := m.Problem(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("problem %v, want one that names %s", err, path)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h.now = h.now.Add(time.Minute)
	h.settle(m, false)
	h.wantHooks("it is gone", allHooks()...)
	if s := m.State(); s.SelfTest != TestPassed || m.Problem() != nil {
		t.Errorf("it is gone: self-test %s, problem %v", s.SelfTest, m.Problem())
	}
}

func TestHiddenHooksAreNotAttached(t *testing.T) {
	h := newHost(t)
	m := h.manager(Enabled, features.CTLBSendmsg, features.CTLBGetpeername, features.SetRetval)
	h.settle(m, false)
	h.wantHooks("hidden", "connect4", "connect6", "connect46", "release4", "release6", "post_bind4", "post_bind6", "post_bind46")
	if needed, _ := m.FallbackNeeded(); !needed {
		t.Error("no fallback")
	}
	if s := m.State(); !slices.Contains(s.Missing, "ctlb-getpeername") || !strings.Contains(s.Why, "ctlb-sendmsg") {
		t.Errorf("state %+v", s)
	}
}

func TestAWrongCgroupRootIsAnErrorThatNamesItAndTheFallbackIsNeeded(t *testing.T) {
	h := newHost(t)
	h.cgroup = t.TempDir()
	m := h.manager(Enabled)
	h.settle(m, false)
	if err := m.Problem(); !errors.Is(err, attach.ErrNotCgroup) || !strings.Contains(err.Error(), h.cgroup) {
		t.Errorf("problem %v", err)
	}
	if needed, known := m.FallbackNeeded(); !needed || !known || !m.Broken() {
		t.Errorf("needed %v, known %v", needed, known)
	}
	if at, ok := m.Next(); !ok || at.After(h.now.Add(time.Minute)) {
		t.Errorf("it is tried again at %v, %v", at, ok)
	}
}

func TestTheProbeTellsTheCookieOfANamespaceToo(t *testing.T) {
	h := newHost(t)
	m := h.manager(Enabled)
	h.settle(m, false)
	ns := testenv.NewNetNS(t)
	want, err := netNSCookie(ns)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.prober().cookie(context.Background(), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)), m.families())
	if err != nil || got != want {
		t.Errorf("cookie %d, %v; want %d", got, err, want)
	}
}
