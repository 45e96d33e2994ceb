// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

var wanted = Spec{IPv4: true, IPv6: true, Backend: Auto, MarkShift: 20, Workloads: []string{"cali"}, Masquerade: true, Pair: true}

// node is a keeper at work in a network namespace of its own.
type node struct {
	t    *testing.T
	ns   netns.NsHandle
	k    *Keeper
	stop context.CancelFunc
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{t: t, ns: testenv.NetNS(t)}
}

// start runs a keeper that looks only when it is asked to.
func (n *node) start(interval time.Duration) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := NewKeeper(Options{Namespace: n.ns, Interval: interval})
	failed := make(chan error, 1)
	go func() { failed <- k.Run(ctx) }()
	n.k = k
	n.stop = func() {
		cancel()
		<-k.Done()
		if err := <-failed; err != nil {
			n.t.Errorf("keeper: %v", err)
		}
		n.stop = func() {}
	}
	n.t.Cleanup(func() { n.stop() })
}

// look asks for one look at the chains and returns what became of it.
func (n *node) look(s Spec) Result {
	n.t.Helper()
	n.k.Want(s)
	select {
	case r := <-n.k.Results():
		return r
	case <-time.After(60 * time.Second):
		n.t.Fatal("no result within a minute")
		return Result{}
	}
}

func (n *node) good(s Spec, backend Backend) Result {
	n.t.Helper()
	r := n.look(s)
	if r.Err != nil || r.Backend != backend {
		n.t.Fatalf("got %+v, want the back-end %s", r, backend)
	}
	return r
}

func (n *node) run(command string) string {
	n.t.Helper()
	return testenv.Run(n.t, "sh", "-ec", command)
}

// saved is all that iptables-save shows of both families, without counters.
func (n *node) saved(b Backend) string {
	n.t.Helper()
	var out []string
	for line := range strings.Lines(n.run("iptables" + suffixes[b].name + "-save; ip6tables" + suffixes[b].name + "-save")) {
		if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":FELIX") {
			line, _, _ = strings.Cut(line, " [")
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}

func bothBackends(t *testing.T, test func(t *testing.T, n *node, b Backend, iptables string)) {
	for _, b := range []Backend{NFT, Legacy} {
		t.Run(string(b), func(t *testing.T) { test(t, newNode(t), b, "iptables"+suffixes[b].name) })
	}
}

func TestChainsAreMadeAndNothingIsWrittenTwice(t *testing.T) {
	bothBackends(t, func(t *testing.T, n *node, b Backend, iptables string) {
		n.start(time.Hour)
		s := wanted
		s.Backend = b
		if r := n.good(s, b); r.Changes == 0 || len(r.Limits) > 0 {
			t.Fatalf("first look: %+v", r)
		}
		n.stop()
		got := n.saved(b)
		for _, line := range []string{
			"-A PREROUTING -j FELIX-LITE-PREROUTING", "-A FELIX-LITE-PREROUTING -i bpfout.cali -j CT --notrack",
			"-A FELIX-LITE-PREROUTING -i bpfin.cali -j CT --notrack", "-A FELIX-LITE-OUTPUT -o bpfin.cali -m conntrack --ctstate INVALID -j ACCEPT",
			"-A FORWARD -j FELIX-LITE-FORWARD", "-A FELIX-LITE-FORWARD -i bpfout.cali -o bpfin.cali -j DROP",
			"-A FELIX-LITE-FORWARD -m mark --mark 0x5000000/0x1ff00000 -j RETURN",
			"-A FELIX-LITE-FORWARD -m mark --mark 0x1000000/0x1000000 -j ACCEPT", "-A FELIX-LITE-FORWARD -o cali+ -j ACCEPT",
			"-A FELIX-LITE-OUTPUT -o lo -m conntrack --ctstate INVALID -j ACCEPT", "-A INPUT -j FELIX-LITE-INPUT", "-A FELIX-LITE-INPUT -i bpfout.cali -m mark --mark 0x1000000/0x1000000 -j ACCEPT",
			"-A FELIX-LITE-INPUT -i lo -m mark --mark 0x1000000/0x1000000 -j ACCEPT",
			"-A POSTROUTING -j FELIX-LITE-POSTROUTING", "-A FELIX-LITE-POSTROUTING -o bpfin.cali -j ACCEPT", "-A FELIX-LITE-POSTROUTING -m mark ! --mark 0x1800000/0x1ff00000 -j RETURN",
			"-A FELIX-LITE-POSTROUTING -o vxlan.calico -j RETURN", "-A FELIX-LITE-POSTROUTING -o cali+ -j RETURN",
			"-A FELIX-LITE-POSTROUTING -j MASQUERADE --random-fully",
		} {
			if strings.Count(got, line) != 2 {
				t.Errorf("not there once in each family: %s", line)
			}
		}
		if t.Failed() {
			t.Log(got)
		}
		n.start(time.Hour) // another run
		if r := n.good(s, b); r.Changes != 0 {
			t.Errorf("a restart made %d changes", r.Changes)
		}
		if r := n.good(s, b); r.Changes != 0 {
			t.Errorf("a second look made %d changes", r.Changes)
		}
		if after := n.saved(b); after != got {
			t.Errorf("changed:\n%s", after)
		}
	})
}

func TestWhatSomebodyAltersIsRepairedAndOthersRulesStay(t *testing.T) {
	bothBackends(t, func(t *testing.T, n *node, b Backend, iptables string) {
		n.run(iptables + " -A FORWARD -p tcp --dport 99 -j DROP; ip6" + strings.TrimPrefix(iptables, "ip") + " -t nat -A POSTROUTING -o eth7 -j MASQUERADE")
		n.start(time.Hour)
		s := wanted
		s.Backend = b
		n.good(s, b)
		want := n.saved(b)
		for _, c := range []struct{ what, command string }{
			{"a rule is deleted", " -D FELIX-LITE-FORWARD 1"},
			{"a rule is added", " -A FELIX-LITE-FORWARD -j DROP"},
			{"a rule is replaced", " -t nat -R FELIX-LITE-POSTROUTING 2 -j RETURN"},
			{"a chain is emptied", " -t raw -F FELIX-LITE-PREROUTING"},
			{"a jump is deleted", " -D INPUT -j FELIX-LITE-INPUT"},
			{"a chain is deleted", " -t nat -D POSTROUTING -j FELIX-LITE-POSTROUTING; IPT -t nat -F FELIX-LITE-POSTROUTING; IPT -t nat -X FELIX-LITE-POSTROUTING"},
			{"the jump is there twice", " -A FORWARD -j FELIX-LITE-FORWARD"},
		} {
			n.run(iptables + strings.ReplaceAll(c.command, "IPT", iptables))
			if r := n.good(s, b); r.Changes == 0 {
				t.Errorf("%s: nothing was changed", c.what)
			}
			if got := n.saved(b); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", c.what, got, want)
			}
		}
		n.run(iptables + " -I FORWARD 1 -p tcp --dport 98 -j DROP")
		n.good(s, b)
		if got := n.run(iptables + " -S FORWARD"); !strings.Contains(got, "-P FORWARD ACCEPT\n-A FORWARD -j FELIX-LITE-FORWARD\n-A FORWARD -p tcp") {
			t.Errorf("somebody's rule stands before ours:\n%s", got)
		}
		// Without masquerading, and for one family, the rest goes.
		s.Masquerade, s.IPv6 = false, false
		n.good(s, b)
		got := n.saved(b)
		if strings.Contains(got, "POSTROUTING -m mark") || strings.Count(got, ":FELIX-LITE-") != 5 {
			t.Errorf("what is not wanted any more:\n%s", got)
		}
		n.stop()
		if removed, err := Remove(t.Context()); err != nil || removed != 5 {
			t.Errorf("removed %d, %v; want 5", removed, err)
		}
		if got := n.saved(b); strings.Contains(got, "FELIX") || !strings.Contains(got, "--dport 99") || !strings.Contains(got, "eth7") {
			t.Errorf("after removal:\n%s", got)
		}
		if removed, err := Remove(t.Context()); err != nil || removed != 0 {
			t.Errorf("again: removed %d, %v", removed, err)
		}
	})
}

func TestTheBackendIsWhereRulesAlreadyAre(t *testing.T) {
	bothBackends(t, func(t *testing.T, n *node, b Backend, iptables string) {
		n.run(iptables + " -A FORWARD -p tcp --dport 99 -j DROP")
		n.start(time.Hour)
		if r := n.good(wanted, b); len(r.Limits) != 0 {
			t.Errorf("nobody uses the other one: %q", r.Limits)
		}
		other := map[Backend]Backend{NFT: Legacy, Legacy: NFT}[b]
		if got := n.saved(other); got != "" {
			t.Errorf("written to %s:\n%s", other, got)
		}
		// The other one is asked for: what is in this one goes.
		s := wanted
		s.Backend = other
		for range 2 { // it is said for as long as it is so
			r := n.good(s, other)
			if said := strings.Join(r.Limits, "\n"); !strings.Contains(said, "back-end "+string(b)+" has 1 rules and policies of others") {
				t.Errorf("people are not told of the rule in %s: %q", b, r.Limits)
			}
		}
		if got := n.saved(b); strings.Contains(got, "FELIX") || !strings.Contains(got, "--dport 99") {
			t.Errorf("left in %s:\n%s", b, got)
		}
	})
	t.Run("nothing anywhere", func(t *testing.T) {
		n := newNode(t)
		n.start(time.Hour)
		n.good(wanted, NFT)
	})
}

func TestChainsAreLookedAtAtTheInterval(t *testing.T) {
	n := newNode(t)
	n.start(50 * time.Millisecond)
	n.good(wanted, NFT)
	n.run("iptables-nft -D FORWARD -j FELIX-LITE-FORWARD")
	deadline := time.After(60 * time.Second)
	for {
		select {
		case r := <-n.k.Results():
			if r.Changes > 0 {
				return
			}
		case <-deadline:
			t.Fatal("not repaired within a minute")
		}
	}
}

func TestWorkloadsWithoutACommonBeginningAreToldByPodRanges(t *testing.T) {
	n := newNode(t)
	n.start(time.Hour)
	s := wanted
	s.Workloads, s.PodCIDRs = nil, []netip.Prefix{netip.MustParsePrefix("10.65.1.0/24"), netip.MustParsePrefix("fd00:65:1::/64")}
	n.good(s, NFT)
	if r := n.good(s, NFT); r.Changes != 0 {
		t.Errorf("a second look made %d changes", r.Changes)
	}
	got := n.saved(NFT)
	for _, line := range []string{"-A FELIX-LITE-FORWARD -d 10.65.1.0/24 -j ACCEPT", "-A FELIX-LITE-POSTROUTING -d fd00:65:1::/64 -j RETURN"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %s in\n%s", line, got)
		}
	}
}

func TestWithoutIptablesTheErrorNamesThePackage(t *testing.T) {
	n := newNode(t)
	t.Setenv("PATH", t.TempDir())
	n.start(time.Hour)
	if r := n.look(wanted); r.Err == nil || !strings.Contains(r.Err.Error(), "install the package iptables") {
		t.Errorf("got %+v", r)
	}
	if _, err := Remove(t.Context()); err != nil {
		t.Errorf("removal: %v", err)
	}
}
