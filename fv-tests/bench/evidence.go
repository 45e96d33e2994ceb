// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	bpfmaps "github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// Before a mode is measured its counters must show that its own mechanism carries the traffic, and no
// other one: a comparison of a mechanism with itself would look good.

// mechanism is what finds the pod behind a service.
type mechanism int

const (
	byRouting   mechanism = iota // nothing: clients talk to the pod
	byRedirect                   // a program on each veth that knows one way
	byPacket                     // TC programs; for the node's own traffic those of bpfout.cali
	byConnect                    // programs at connect time
	byNetfilter                  // rules and the kernel's conntrack
)

// tally is what a mode's counters say, by what is counted.
type tally map[string]uint64

// What is counted beside the programs at connect time, which have their hooks' names.
const (
	tallyTC        = "runs of TC programs"
	tallyConntrack = "entries of the kernel's conntrack"
	tallyServices  = "flows translated by packet"
)

// natOut is the interface whose programs translate what the node itself sends.
const natOut = "bpfout.cali"

// on is a count of one interface.
func on(what, link string) string { return what + " on " + link }

// tally reads everything that could have carried the mode's traffic. The kernel's program statistics must
// be on.
func (st *stage) tally() (tally, error) {
	t := tally{}
	ids, err := st.site.node.attached()
	if err != nil {
		return nil, err
	}
	tc, err := countRuns(ids)
	if err != nil {
		return nil, err
	}
	t[tallyTC] = tc.runs
	hooks, err := st.connectPrograms()
	if err != nil {
		return nil, err
	}
	for hook, id := range hooks {
		n, err := countRuns([]ebpf.ProgramID{id})
		if err != nil {
			return nil, err
		}
		t[hook] = n.runs
	}
	if t[tallyConntrack], err = st.site.node.conntrackEntries(); err != nil {
		return nil, err
	}
	return t, st.countServices(t)
}

// connectPrograms are the programs that stand on the mode's cgroup, by hook.
func (st *stage) connectPrograms() (map[string]ebpf.ProgramID, error) {
	if st.site.bpffs == "" {
		return nil, nil
	}
	links, err := attach.CgroupLinks(st.site.bpffs)
	if err != nil {
		return nil, fmt.Errorf("list cgroup links: %w", err)
	}
	out := map[string]ebpf.ProgramID{}
	for _, l := range links {
		if l.CgroupID != 0 {
			out[l.Hook] = l.Program
		}
	}
	return out, nil
}

// conntrackEntries is how many flows netfilter follows on the node.
func (n *namespace) conntrackEntries() (count uint64, err error) {
	err = inNamespace(n.handle, func() error {
		data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a kernel without it
		}
		if err != nil {
			return err
		}
		count, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		return err
	})
	return count, err
}

// countServices adds the flows that the mode's TC programs have balanced, in all and by interface.
func (st *stage) countServices(t tally) error {
	if st.site.bpffs == "" {
		return nil
	}
	set, err := bpfmaps.OpenExisting(st.site.bpffs)
	if err != nil {
		return err
	}
	defer set.Close()
	slots := map[uint32]string{}
	err = set.Interfaces.All(func(_ uint32, v layout.IfaceValue) bool {
		name, _, _ := strings.Cut(string(v.Name[:]), "\x00")
		slots[v.IfaceSlot] = name
		return true
	})
	if err != nil {
		return err
	}
	for slot, name := range slots {
		for _, hook := range variants.Hooks {
			for _, f := range variants.Families {
				row, err := set.Counters.Read(bpfmaps.CounterKey{Slot: slot, Hook: hook, Family: f})
				if err != nil {
					return err
				}
				n := row.Count[layout.CountServiceNew]
				t[tallyServices] += n
				t[on(tallyServices, name)] += n
			}
		}
	}
	return nil
}

// expectation is what must have happened, at least so often, and what must not.
type expectation struct {
	least map[string]uint64
	never []string
}

// expect says what ops operations of a scenario leave behind if the mechanism carries them.
func (m mechanism) expect(s scenario, f family, toPod bool, ops uint64) expectation {
	flows := uint64(1)
	if s.kind.opens() {
		flows = ops
	}
	e := expectation{least: map[string]uint64{}}
	switch {
	case m == byRouting:
		e.never = []string{tallyTC, tallyServices, tallyConntrack}
	case m == byRedirect:
		e.least[tallyTC] = 2 * ops
		e.never = []string{tallyServices, tallyConntrack}
	case m == byNetfilter:
		e.least[tallyConntrack] = 1
		e.never = []string{tallyTC}
	case toPod:
		e.never = []string{tallyServices}
	case m == byPacket && s.node:
		e.least[on(tallyServices, natOut)] = flows
	case m == byPacket:
		e.least[on(tallyServices, clientVeth)] = flows
	case m == byConnect:
		e.never = []string{tallyServices}
		for _, hook := range s.hooks(f) {
			e.least[hook] = flows
			if s.kind == udpUnconnected {
				e.least[hook] = ops
			}
		}
	}
	return e
}

// hooks at connect time that the scenario's clients come by.
func (s scenario) hooks(f family) []string {
	four := strconv.Itoa(int(f))
	six := four
	if s.mapped {
		six = "46" // sendmsg of such a socket comes by the hook of IPv4
	}
	switch s.kind {
	case udpUnconnected:
		return []string{"sendmsg" + four, "recvmsg" + six}
	case udpNewFlow:
		return []string{"sendmsg" + four}
	}
	return []string{"connect" + six}
}

// check holds two tallies against the expectation. What conntrack holds counts as it is: its entries come
// and go.
func (e expectation) check(before, after tally) error {
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(e.least)) {
		least, have := e.least[what], after[what]
		if what != tallyConntrack {
			have -= before[what]
		}
		if have < least {
			errs = append(errs, fmt.Errorf("%s: %d, want at least %d", what, have, least))
		}
	}
	for _, what := range e.never {
		if have := after[what] - before[what]; have != 0 {
			errs = append(errs, fmt.Errorf("%s: %d, want none", what, have))
		}
	}
	if len(errs) > 0 {
		for _, what := range slices.Sorted(maps.Keys(after)) {
			if grown := after[what] - before[what]; grown != 0 {
				errs = append(errs, fmt.Errorf("%s has grown by %d", what, grown))
			}
		}
	}
	return errors.Join(errs...)
}

// try lets an entrant's client work for a moment and looks who carried it. The kernel's program statistics
// must be on.
func (b *bench) try(ctx context.Context, s scenario, f family) func(entrant) error {
	return func(e entrant) error {
		before, err := e.tally()
		if err != nil {
			return err
		}
		a, err := e.worker.ask(ctx, s.request(e.stage, e.services, e.client, f))
		if err == nil && a.Ops == 0 && a.Failed == 0 { // the machine was busy with others
			a, err = e.worker.ask(ctx, request{Verb: "run", Client: e.client, Duration: time.Second})
		}
		if err != nil {
			return err
		}
		if a.Ops == 0 {
			return fmt.Errorf("all of %d operations failed", a.Failed)
		}
		after, err := e.tally()
		if err != nil {
			return err
		}
		toPod := e.services == 0 && e.mode.services > 0
		if err := e.by.expect(s, f, toPod, a.Ops).check(before, after); err != nil {
			return fmt.Errorf("not carried as it should be: %w", err)
		}
		return nil
	}
}
