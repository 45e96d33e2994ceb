// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/backoff"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// elsewhere has the probe's processes leave the cgroup of the programs, as long as away is true.
func (h *host) elsewhere() (away func(bool)) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	flag := filepath.Join(h.t.TempDir(), "away")
	h.probe = []string{"/bin/sh", "-c", `flag=$1 to=$2; shift 2; if [ -e "$flag" ]; then echo $$ >"$to"; fi; exec "$@"`, "sh", flag,
		filepath.Join(testenv.Cgroup(h.t), "cgroup.procs"), self, ProbeVerb}
	return func(away bool) {
		h.t.Helper()
		err := os.RemoveAll(flag)
		if away {
			err = os.WriteFile(flag, nil, 0o600)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) detach(hooks ...string) {
	h.t.Helper()
	for _, hook := range hooks {
		if err := attach.DetachCgroup(h.root, hook); err != nil {
			h.t.Fatal(err)
		}
	}
}

func wantTest(t *testing.T, m *Manager, what, want string) {
	t.Helper()
	if s := m.State(); s.SelfTest != want {
		t.Errorf("%s: self-test %s, want %s; %s", what, s.SelfTest, want, s.Why)
	}
}

func TestTheSelfTestInASiblingCgroupPassesAndNoFallbackIsNeeded(t *testing.T) {
	h := newHost(t)
	m := h.manager(Enabled)
	if needed, known := m.FallbackNeeded(); needed || known {
		t.Errorf("before anything is known: needed %v, known %v", needed, known)
	}
	h.settle(m, false)
	if needed, known := m.FallbackNeeded(); needed || !known || m.Problem() != nil || !m.tested {
		t.Errorf("needed %v, known %v, problem %v", needed, known, m.Problem())
	}
	h.wantHooks("Enabled", allHooks()...)
	if s := m.State(); s.SelfTest != "passed" || len(s.Hooks) != 16 || s.Cgroup != h.cgroup || s.Fallback {
		t.Errorf("state %+v", s)
	}
	left, _ := filepath.Glob(filepath.Join(h.cgroup, "*", "cgroup.procs"))
	if len(left) != 0 {
		t.Errorf("the self-test has left %v", left)
	}
}

func TestASelfTestThatFailsIsLoudAndIsTriedAgain(t *testing.T) {
	h := newHost(t)
	away := h.elsewhere()
	away(true)
	m := h.manager(Enabled)
	m.Ensure(context.Background(), false)
	h.result(m)
	if err := m.Problem(); !errors.Is(err, ErrSelfTest) || !strings.Contains(err.Error(), h.cgroup) {
		t.Errorf("problem %v", err)
	}
	if needed, known := m.FallbackNeeded(); !needed || !known || !m.Broken() {
		t.Errorf("needed %v, known %v", needed, known)
	}
	wantTest(t, m, "the process is not where the programs are", TestFailed)
	away(false)
	h.now = h.now.Add(backoff.Max * 2)
	h.settle(m, false)
	if needed, _ := m.FallbackNeeded(); needed || m.Problem() != nil {
		t.Errorf("needed %v, problem %v", needed, m.Problem())
	}
}

func TestAHookThatSomebodyRemovedIsPutBackAndTestedAnew(t *testing.T) {
	h := newHost(t)
	away := h.elsewhere()
	m := h.manager(Enabled)
	h.settle(m, false)
	wantTest(t, m, "at first", TestPassed)
	h.detach("connect4")
	away(true)
	m.Resync()
	m.Ensure(context.Background(), false)
	h.wantHooks("put back", allHooks()...)
	wantTest(t, m, "put back", TestPending)
	h.settle(m, false)
	if needed, known := m.FallbackNeeded(); !needed || !known {
		t.Errorf("put back where it serves nobody: needed %v, known %v", needed, known)
	}
	// A failure of the test before says nothing of hooks that are attached after it: no wait.
	h.detach(allHooks()...)
	away(false)
	m.Resync()
	h.settle(m, false)
	h.wantHooks("back again", allHooks()...)
	wantTest(t, m, "back again", TestPassed)
	// What is replaced in place needs none; what turns out to be gone then, does.
	m.Reload()
	m.Ensure(context.Background(), false)
	wantTest(t, m, "loaded anew", TestPassed)
	h.detach("recvmsg4")
	m.Reload()
	m.Ensure(context.Background(), false)
	h.wantHooks("loaded anew", allHooks()...)
	wantTest(t, m, "loaded anew, and one was gone", TestPending)
}

func TestASelfTestOfHooksThatWereRemovedMeanwhileDoesNotCount(t *testing.T) {
	h := newHost(t)
	m := h.manager(Enabled)
	m.Ensure(context.Background(), false)
	h.detach("connect4", "connect6")
	m.Resync()
	m.Ensure(context.Background(), false)
	h.result(m)
	wantTest(t, m, "it was begun before they were put back", TestPending)
	h.settle(m, false)
	wantTest(t, m, "the next one", TestPassed)
}

// The programs see the socket, and then the kernel has no ::1 to send it to: whoever connects to a service by IPv6
// here fares no better, and IPv4 must not suffer for it.
func TestTheSelfTestPassesWhereIPv6IsSwitchedOff(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	m := h.manager(Enabled)
	h.settle(m, false)
	if needed, known := m.FallbackNeeded(); needed || !known || m.Problem() != nil || m.State().SelfTest != TestPassed {
		t.Errorf("needed %v, known %v, problem %v, state %+v", needed, known, m.Problem(), m.State())
	}
}

func TestWhatCountsIsThatTheProgramsSawTheSocket(t *testing.T) {
	report := func(cookie uint64, peer string, err error) (r socketReport) {
		r.Cookie, r.Peer = cookie, peer
		if err != nil {
			r.fail("connect", err)
		}
		return r
	}
	for what, c := range map[string]struct {
		of   seen
		want string // part of the error; "": it is good
	}{
		"seen, and at the loopback":                 {seen{report(1, "::1", nil), true, 7}, ""},
		"seen, and there is no ::1":                 {seen{report(1, "", unix.EADDRNOTAVAIL), true, 7}, ""},
		"seen, and there is no route":               {seen{report(1, "", unix.ENETUNREACH), true, 7}, ""},
		"the kernel has no such family":             {seen{report(0, "", unix.EAFNOSUPPORT), false, 0}, ""},
		"seen, and the address is not of a family":  {seen{report(1, "", unix.EAFNOSUPPORT), true, 7}, ""},
		"seen, and refused by somebody else":        {seen{report(1, "", unix.EPERM), true, 7}, "operation not permitted"},
		"seen, and changed by somebody else":        {seen{report(1, "2001:db8::1", nil), true, 7}, "another program on the hook"},
		"not seen":                                  {seen{report(1, "fe80::a9fe:109", nil), false, 0}, "did not see it"},
		"not seen, and there is no route":           {seen{report(1, "", unix.ENETUNREACH), false, 0}, "did not see it"},
		"no socket could be had":                    {seen{report(0, "", unix.EMFILE), false, 0}, "too many open files"},
		"the process says nothing about the family": {seen{}, "did not see it"},
	} {
		err := (&prober{root: "/cgroup"}).judge(layout.FamilyV6, c.of)
		if good := c.want == ""; good != (err == nil) || !good && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func TestTheProbesDestinationIsTheProgramsOne(t *testing.T) {
	for want, got := range map[string]netip.AddrPort{"169.254.1.9:9": probeAddress(0), "[fe80::a9fe:109]:9": probeAddress(1)} {
		if got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
