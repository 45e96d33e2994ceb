// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

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
