// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/progrun"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// fixture is one thing that the datapath does: what the node knows, the packets that come, and what is left.
type fixture struct {
	name     string // a sentence
	only     family // the one family that it is about; both if empty
	services []service
	prepare  func(*run) // what else differs from the node that all start from
	steps    []step
	entries  []string // conntrack afterwards, as entryText writes it; none if empty
	keep     bool     // entries are not looked at: another fixture of the same flow does
}

type family string

const (
	onlyV4 family = "v4"
	onlyV6 family = "v6"
)

// step is one packet.
type step struct {
	before     func(*run) // what happens between the packets
	at         string     // the hook: "from_wep podA"
	send       packet
	mark       layout.Mark
	otherMark  uint32             // bits of the mark that are not ours
	gso        uint32             // segment size of a packet that is still to be segmented
	outer      string             // the node that it came from by the tunnel
	tag        bool               // it carries a VLAN tag beside the data, as devices with offload hand it up
	cut        int                // it has this many bytes only: fewer than BPF_PROG_TEST_RUN takes
	deny       bool               // the interface's policy denies; else it allows
	policy     layout.PolicyIndex // the interface's policy, where it is neither
	trace      bool               // a dry run
	ifaceFlags layout.IfaceFlag   // of the interface, beside ready

	want    verdict
	out     *packet // as it leaves; nil: as it came
	marked  layout.Mark
	counted []layout.Counter // beside CountTotal; twice where counted twice
}

// steps are packets in their order.
type steps []step

type verdict int32

const (
	pass     = verdict(progrun.Unspec)
	ok       = verdict(progrun.OK)
	dropped  = verdict(progrun.Shot)
	redirect = verdict(progrun.Redirect)
)

func (v verdict) String() string {
	switch v {
	case pass:
		return "pass"
	case ok:
		return "ok"
	case dropped:
		return "drop"
	case redirect:
		return "redirect"
	}
	return fmt.Sprintf("verdict %d", int32(v))
}

// becomes is what the step's packet looks like when it leaves.
func becomes(p packet) *packet { return &p }

// twinShift makes a packet look after its flow's twin entry every few seconds: a fixture is over in milliseconds.
const twinShift = 10

// attempts bounds how often a fixture is run anew because a twin fell due by the clock in the middle of it.
const attempts = 10

// run is one fixture in one family.
type run struct {
	*node
	family   layout.Family
	problems []string
	undo     []func()
}

func (r *run) fail(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// must is for errors of the test's own doing.
func (r *run) must(err error) {
	if err != nil {
		r.fail("%v", err)
	}
}

// play runs fixtures in their families.
func play(t *testing.T, fixtures []fixture) {
	t.Helper()
	n := theNode(t)
	for _, f := range fixtures {
		for _, fam := range variants.Families {
			if f.only != "" && string(f.only) != fam.String() {
				continue
			}
			t.Run(f.name+"/"+fam.String(), func(t *testing.T) {
				for try := range attempts {
					before := n.tick(t)
					problems := n.play(f, fam)
					if n.tick(t) != before && try+1 < attempts {
						continue
					}
					for _, p := range problems {
						t.Error(p)
					}
					return
				}
			})
		}
	}
}

// tick changes when twins fall due.
func (n *node) tick(t *testing.T) uint32 {
	now, err := n.clock.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	return uint32(now) >> twinShift
}

func (n *node) play(f fixture, fam layout.Family) []string {
	r := &run{node: n, family: fam}
	defer func() {
		for _, u := range r.undo {
			u()
		}
	}()
	r.must(n.reset())
	for _, s := range f.services {
		r.must(r.addService(s))
	}
	if f.prepare != nil {
		f.prepare(r)
	}
	for i, s := range f.steps {
		had := len(r.problems)
		r.step(s)
		for j := had; j < len(r.problems); j++ {
			r.problems[j] = fmt.Sprintf("packet %d at %s: %s", i+1, s.at, r.problems[j])
		}
		if len(r.problems) > had {
			break // what follows would only repeat it
		}
	}
	r.checkEntries(f)
	return r.problems
}

func (r *run) step(s step) {
	if s.before != nil {
		s.before(r)
	}
	variant, i, name := hookOf(s.at, r.family)
	v, _ := variants.Parse(variant)
	r.must(r.set.Counters.Zero(i.slot))
	sent := s.send
	sent.bare = v.Class == layout.ClassL3Dev
	frame := sent.frame(r.family)
	in := progrun.Input{
		Packet: slices.Clone(frame), Ifindex: r.ifindex[name], Mark: markBits(s.mark) | s.otherMark, GSOSize: s.gso,
		CB: [5]uint32{
			layout.CBIface: i.slot, layout.CBFlags: uint32(layout.IFFReady | s.ifaceFlags), layout.CBPolicy: uint32(layout.PolicyAllow),
			layout.CBEP: i.ep,
		},
	}
	if s.deny {
		in.CB[layout.CBPolicy] = uint32(layout.PolicyDeny)
	}
	if s.policy != 0 {
		in.CB[layout.CBPolicy] = uint32(s.policy)
	}
	if s.trace {
		in.CB[layout.CBTrace] = 7
	}
	if s.gso != 0 {
		in.GSOSegs = uint32(len(frame))/s.gso + 1
	}
	program := r.programs[variant][layout.SlotMain]
	if s.outer != "" || s.tag || s.cut != 0 {
		before, err := r.prelude(s, v)
		if err != nil {
			r.fail("%v", err)
			return
		}
		defer before.Close()
		program = before
	}
	var out progrun.Output
	var err error
	r.inside(func() { out, err = progrun.Run(program, in) })
	if err != nil {
		r.fail("%v", err)
		return
	}
	r.judge(s, v, i, sent, out)
}

// judge compares what came out with what the step says.
func (r *run) judge(s step, v variants.Variant, i iface, sent packet, out progrun.Output) {
	row, err := r.set.Counters.Read(maps.CounterKey{Slot: i.slot, Hook: v.Hook, Family: v.Family})
	r.must(err)
	want := map[layout.Counter]uint64{}
	for _, c := range s.counted {
		want[c]++
	}
	if !s.trace && want[layout.CountBypass] == 0 && !(v.Class == layout.ClassLo && v.Hook == layout.HookIngress && s.mark != layout.MarkLoReply) {
		want[layout.CountTotal] = 1
	}
	var off []string
	for c, n := range row.Count {
		if w := want[layout.Counter(c)]; w != n {
			off = append(off, fmt.Sprintf("%s %d (want %d)", layout.Counter(c), n, w))
		}
	}
	if len(off) > 0 {
		r.fail("counters: %s", strings.Join(off, ", "))
	}
	if verdict(out.Verdict) != s.want {
		r.fail("verdict %v, want %v", verdict(out.Verdict), s.want)
		return
	}
	if s.want == dropped {
		return
	}
	expected := sent
	if s.out != nil {
		expected = *s.out
		expected.bare = sent.bare
	}
	frame := expected.frame(r.family)
	if !bytes.Equal(out.Packet, frame) {
		r.fail("packet\n%s", difference(out.Packet, frame))
	}
	if s.out != nil {
		off := ethLen
		if sent.bare {
			off = 0
		}
		if err := verifyChecksums(out.Packet[min(off, len(out.Packet)):]); err != nil {
			r.fail("%v", err)
		}
	}
	if want := markBits(s.marked) | s.otherMark; out.Mark != want {
		r.fail("mark %#x, want %#x (%v)", out.Mark, want, s.marked)
	}
}

func markBits(m layout.Mark) uint32 { return uint32(m) << 20 }

// difference prints two frames, with the bytes that differ marked.
func difference(got, want []byte) string {
	var marks strings.Builder
	for i := range max(len(got), len(want)) {
		if i < len(got) && i < len(want) && got[i] == want[i] {
			marks.WriteString("  ")
		} else {
			marks.WriteString("^^")
		}
	}
	return fmt.Sprintf("got  %s\nwant %s\n     %s", hex.EncodeToString(got), hex.EncodeToString(want), marks.String())
}

// age makes everything that is in the tables d older.
func age(d time.Duration) func(*run) {
	return func(r *run) {
		for _, m := range r.conntrackMaps() {
			r.must(m.age(r.clock.ToJiffies(d)))
		}
		r.must(r.ageAffinity(r.clock.ToJiffies(d)))
	}
}

// all of several things.
func all(do ...func(*run)) func(*run) {
	return func(r *run) {
		for _, f := range do {
			f(r)
		}
	}
}

// globals edits the node-wide settings.
func globals(edit func(*layout.Globals)) func(*run) {
	return func(r *run) { r.must(r.set.Globals.Change(edit)) }
}

// routeTo replaces a route.
func routeTo(name string, route func(*run) maps.Route) func(*run) {
	return func(r *run) { r.must(r.putRoute(name, r.family, route(r))) }
}
