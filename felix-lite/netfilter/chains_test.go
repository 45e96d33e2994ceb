// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// fakeError is an error as a command makes them.
type fakeError struct{ notExist bool }

func (e fakeError) Error() string    { return "exit status 1" }
func (e fakeError) IsNotExist() bool { return e.notExist }

// fake is an iptables in memory. It prints rules through print, and fails where fail says so.
type fake struct {
	chains map[string][]string
	writes int
	print  func(string) string
	fail   func(operation string) error
}

func newFake() *fake {
	f := &fake{chains: map[string][]string{}, print: func(s string) string { return s }, fail: func(string) error { return nil }}
	for _, p := range places {
		f.chains[p.Table+" "+p.Parent] = nil
	}
	return f
}

func (f *fake) List(_ context.Context, table, chain string) ([]string, error) {
	rules, ok := f.chains[table+" "+chain]
	if !ok {
		return nil, fakeError{notExist: true}
	}
	out := []string{"-N " + chain}
	for _, r := range rules {
		out = append(out, "-A "+chain+" "+f.print(r))
	}
	return out, nil
}

func (f *fake) write(operation string, do func()) error {
	if err := f.fail(operation); err != nil {
		return err
	}
	f.writes++
	do()
	return nil
}

func (f *fake) NewChain(_ context.Context, table, chain string) error {
	return f.write("new "+chain, func() { f.chains[table+" "+chain] = nil })
}

func (f *fake) Append(_ context.Context, table, chain string, rule ...string) error {
	key, text := table+" "+chain, strings.Join(rule, " ")
	return f.write("append "+text, func() { f.chains[key] = append(f.chains[key], text) })
}

func (f *fake) Insert(_ context.Context, table, chain string, pos int, rule ...string) error {
	key, text := table+" "+chain, strings.Join(rule, " ")
	return f.write("insert "+text, func() { f.chains[key] = slices.Insert(f.chains[key], pos-1, text) })
}

func (f *fake) DeleteAt(_ context.Context, table, chain string, id int) error {
	key := table + " " + chain
	return f.write("delete", func() { f.chains[key] = slices.Delete(f.chains[key], id-1, id) })
}

func (f *fake) DeleteChain(_ context.Context, table, chain string) error {
	return f.write("clear", func() { delete(f.chains, table+" "+chain) })
}

func TestChainsThatAreRightCostNoWriteHoweverIptablesPrintsThem(t *testing.T) {
	f := newFake()
	f.print = func(s string) string { return strings.ReplaceAll(s, "--mark 0x", "--mark 0x0") }
	c := newChains(f)
	want := Rules(wanted, model.IPv4, true)
	if _, limits, err := c.ensure(t.Context(), want); err != nil || len(limits) > 0 {
		t.Fatal(limits, err)
	}
	f.writes = 0
	if n, _, err := c.ensure(t.Context(), want); err != nil || n != 0 || f.writes != 0 {
		t.Errorf("%d changes, %d writes, %v", n, f.writes, err)
	}
	// The same text by another's hand is no longer ours as printed.
	f.chains["filter "+Forward] = append(f.chains["filter "+Forward], "-j DROP")
	if n, _, err := c.ensure(t.Context(), want); err != nil || n == 0 {
		t.Errorf("%d changes, %v", n, err)
	}
	for _, w := range want {
		if got := f.chains[w.Table+" "+w.Name]; !slices.Equal(got, w.Rules) {
			t.Errorf("%s %s: %q", w.Table, w.Name, got)
		}
		if got := f.chains[w.Table+" "+w.Parent]; !slices.Equal(got, []string{"-j " + w.Name}) {
			t.Errorf("%s %s: %q", w.Table, w.Parent, got)
		}
	}
}

func TestThereIsNoMomentWithoutRulesWhileTheyAreReplaced(t *testing.T) {
	f := newFake()
	c := newChains(f)
	if _, _, err := c.ensure(t.Context(), Rules(wanted, model.IPv4, true)); err != nil {
		t.Fatal(err)
	}
	other := wanted
	other.Workloads = []string{"veth", "lxc"}
	f.fail = func(operation string) error {
		accept := slices.ContainsFunc(f.chains["filter "+Forward], func(r string) bool { return strings.Contains(r, "--mark") })
		if !accept || f.chains["filter FORWARD"][0] != "-j "+Forward {
			t.Errorf("before %q: %q, %q", operation, f.chains["filter FORWARD"], f.chains["filter "+Forward])
		}
		return nil
	}
	if n, _, err := c.ensure(t.Context(), Rules(other, model.IPv4, true)); err != nil || n == 0 {
		t.Errorf("%d changes, %v", n, err)
	}
}

func TestWhatTheKernelDoesNotHaveIsSaidOnceAndTheRestIsKept(t *testing.T) {
	f := newFake()
	f.fail = func(operation string) error {
		if strings.Contains(operation, "CT --notrack") {
			return fakeError{notExist: true}
		}
		return nil
	}
	c := newChains(f)
	want := Rules(wanted, model.IPv6, false)
	_, limits, err := c.ensure(t.Context(), want)
	if err != nil || len(limits) != 1 || !strings.Contains(limits[0], "INVALID may drop host traffic to services") {
		t.Fatalf("%q, %v", limits, err)
	}
	if _, there := f.chains["raw "+Prerouting]; there || len(f.chains["raw PREROUTING"]) > 0 {
		t.Errorf("a chain without its rules is left: %v", f.chains)
	}
	if got := f.chains["nat "+Postrouting]; len(got) == 0 || got[len(got)-1] != "-j MASQUERADE" {
		t.Errorf("masquerading: %q", got)
	}
	f.writes = 0
	if n, again, err := c.ensure(t.Context(), want); err != nil || n != 0 || f.writes != 0 || !slices.Equal(again, limits) {
		t.Errorf("a second look: %d changes, %d writes, %q, %v", n, f.writes, again, err)
	}
}

func TestAChainThatFailsDoesNotKeepTheOthers(t *testing.T) {
	f := newFake()
	busy := errors.New("the xtables lock is held")
	f.fail = func(operation string) error {
		if operation == "new "+Input {
			return busy
		}
		return nil
	}
	c := newChains(f)
	want := Rules(wanted, model.IPv4, true)
	if _, _, err := c.ensure(t.Context(), want); !errors.Is(err, busy) || !strings.Contains(err.Error(), Input) {
		t.Errorf("got %v", err)
	}
	if len(f.chains["nat "+Postrouting]) == 0 || len(f.chains["filter "+Forward]) == 0 {
		t.Errorf("the others: %v", f.chains)
	}
	f.fail = func(string) error { return nil }
	if n, _, err := c.ensure(t.Context(), want); err != nil || n == 0 || len(f.chains["filter "+Input]) == 0 {
		t.Errorf("later: %d changes, %v", n, err)
	}
}

func TestTheBackendWithMoreRulesOfOthersIsChosen(t *testing.T) {
	for _, c := range []struct {
		nft, legacy holding
		want        Backend
	}{
		{holding{there: true}, holding{there: true}, NFT},
		{holding{there: true, others: 3}, holding{there: true, others: 3}, NFT},
		{holding{there: true, others: 3}, holding{there: true, others: 4}, Legacy},
		{holding{there: true}, holding{others: 9}, NFT},
		{holding{}, holding{there: true}, Legacy},
	} {
		if got, err := choose(c.nft, c.legacy); got != c.want || err != nil {
			t.Errorf("%+v, %+v: %s, %v", c.nft, c.legacy, got, err)
		}
	}
	if _, err := choose(holding{}, holding{}); !errors.Is(err, ErrMissing) {
		t.Errorf("none: %v", err)
	}
	others, mine := countRules("*filter\n:FORWARD ACCEPT [0:0]\n:FELIX-LITE-FORWARD - [0:0]\n-A FORWARD -j FELIX-LITE-FORWARD\n" +
		"-A FELIX-LITE-FORWARD -j ACCEPT\n-A FORWARD -j DROP\nCOMMIT\n")
	if others != 1 || !mine {
		t.Errorf("counted %d rules of others, ours there: %v", others, mine)
	}
}

func TestWithoutThePairNoChainAndNoRuleIsForIt(t *testing.T) {
	f := newFake()
	c := newChains(f)
	if _, _, err := c.ensure(t.Context(), Rules(wanted, model.IPv4, true)); err != nil {
		t.Fatal(err)
	}
	without := wanted
	without.Pair = false
	if without.Equal(wanted) {
		t.Error("specs with and without the pair are equal")
	}
	if n, _, err := c.ensure(t.Context(), Rules(without, model.IPv4, true)); err != nil || n == 0 {
		t.Errorf("%d changes, %v", n, err)
	}
	for chain, rules := range f.chains {
		_, name, _ := strings.Cut(chain, " ")
		if ours := strings.HasPrefix(name, "FELIX-LITE-"); ours && name != Forward && name != Postrouting {
			t.Errorf("chain %s is left: %q", chain, rules)
		}
		for _, r := range rules {
			if strings.Contains(r, "bpfin.cali") || strings.Contains(r, "bpfout.cali") || strings.Contains(r, Input) || strings.Contains(r, Output) {
				t.Errorf("%s: %q is left", chain, r)
			}
		}
	}
	for _, chain := range []string{"filter " + Forward, "nat " + Postrouting} {
		if len(f.chains[chain]) == 0 {
			t.Errorf("%s has no rules", chain)
		}
	}
}

func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	f := newFake()
	ctx, stop := context.WithCancel(t.Context())
	f.fail = func(operation string) error {
		if ctx.Err() != nil {
			t.Errorf("%s: after the end", operation)
		}
		if strings.HasPrefix(operation, "append") {
			stop()
		}
		return ctx.Err()
	}
	if n, _, _ := newChains(f).ensure(ctx, Rules(wanted, model.IPv4, true)); n != 1 {
		t.Errorf("%d changes, want the one before the end", n)
	}
}
