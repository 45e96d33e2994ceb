// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func TestProbingKnowsEveryFeatureAndHidesWhatItIsTold(t *testing.T) {
	testenv.RequireRoot(t)
	s, err := Probe(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.List()) != len(probes) {
		t.Errorf("%d features listed, want %d", len(s.List()), len(probes))
	}
	for _, st := range s.List() {
		t.Logf("%-22s supported %-5v since %-5s %s", st.Name, st.Supported, st.Since, st.Reason)
		if st.Supported != (st.Reason == "") {
			t.Errorf("%s: supported %v, reason %q", st.Name, st.Supported, st.Reason)
		}
	}
	// What 5.10, the oldest supported kernel, has.
	for _, f := range []Feature{RedirectPeer, RedirectNeigh, BatchHash, RingBuffer, CgroupSockAddr, CTLBConnect, CTLBSendmsg,
		CTLBRecvmsg, CTLBGetpeername, CTLBSockRelease, CTLBPostBind, NetnsCookie} {
		if err := s.Require(f); err != nil {
			t.Error(err)
		}
	}
	if s.Flags()&layout.FeatRedirectPeer == 0 {
		t.Errorf("flags %v", s.Flags())
	}

	hidden, err := Probe([]string{"tcx", " Redirect-Peer "})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Feature{TCX, RedirectPeer} {
		if hidden.Has(f) || !errors.Is(hidden.Require(f), ErrNotSupported) {
			t.Errorf("hidden feature %s: has %v, %v", f, hidden.Has(f), hidden.Require(f))
		}
	}
	if !hidden.Has(RedirectNeigh) || hidden.Flags()&layout.FeatRedirectPeer != 0 {
		t.Errorf("hiding changed others: %v", hidden.Flags())
	}
}

func TestAnUnknownFeatureToHideIsAnErrorThatListsThem(t *testing.T) {
	_, err := Probe([]string{"txc"})
	if err == nil || !strings.Contains(err.Error(), `"txc"`) || !strings.Contains(err.Error(), "tcx") {
		t.Errorf("error %v", err)
	}
}

func TestAMissingFeatureNamesTheKernelThatHasIt(t *testing.T) {
	s := &Set{status: map[Feature]Status{TCX: {Name: TCX, Since: "6.6", Reason: "tcx link: not supported"}}}
	err := s.Require(TCX)
	if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "tcx") || !strings.Contains(err.Error(), "requires Linux 6.6") {
		t.Errorf("error %v", err)
	}
}

func TestTheClockRunsAtItsRate(t *testing.T) {
	testenv.RequireRoot(t)
	c, err := OpenClock()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Logf("HZ %d", c.HZ)
	a, err := c.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		b, err := c.Jiffies()
		if err != nil {
			t.Fatal(err)
		}
		if b > a {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("jiffies stand still at %d", a)
		}
	}
	if got := c.ToJiffies(2 * time.Second); got != uint64(2*c.HZ) {
		t.Errorf("2 s are %d jiffies at %d HZ", got, c.HZ)
	}
	if c.ToJiffies(time.Microsecond) != 1 || c.ToJiffies(0) != 0 {
		t.Error("a short time is at least one jiffy, none is none")
	}
}

func TestTheRateIsTheNearestThatAKernelCanHave(t *testing.T) {
	for measured, want := range map[float64]uint32{99: 100, 104: 100, 249.2: 250, 270: 250, 280: 300, 301: 300, 980: 1000, 1100: 1000} {
		if got := nearest(measured); got != want {
			t.Errorf("%v jiffies a second: %d, want %d", measured, got, want)
		}
	}
}
