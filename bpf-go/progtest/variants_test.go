// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/progrun"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

func TestMarks(t *testing.T) { play(t, markFixtures) }

func TestOtherClasses(t *testing.T) { play(t, classFixtures) }

func TestDryRuns(t *testing.T) { play(t, dryFixtures) }

func TestMissingPrograms(t *testing.T) { play(t, missingFixtures) }

// hookNames are the twelve hooks that a variant of each family stands on.
var hookNames = func() []string {
	var all []string
	for _, v := range variants.All() {
		if v.Family != layout.FamilyV4 {
			continue
		}
		hook := variants.Direction(v.Hook) + "_" + v.Class.String()
		if v.Class == layout.ClassWEP {
			hook += " podA"
		}
		all = append(all, hook)
	}
	return all
}()

// someSYN is a new connection to a service that no hook may touch when it is marked; devices without Ethernet headers
// have their own ends.
func someSYN(hook string) packet {
	if hook == "from_l3dev" || hook == "to_l3dev" {
		return tcp("l3peer:40000", "vip:80", "S")
	}
	return tcp("podA:40000", "vip:80", "S")
}

var markFixtures = func() []fixture {
	var fixtures []fixture
	for _, hook := range hookNames {
		fixtures = append(fixtures, fixture{
			name: "a packet that is all done passes " + hook + " on sight", services: oneService,
			steps: []step{{
				at: hook, send: someSYN(hook), mark: layout.MarkBypass,
				want: pass, marked: layout.MarkBypass, counted: counters{layout.CountBypass},
			}},
		})
	}
	return append(fixtures,
		fixture{
			name: "bits of the mark that are others' are kept",
			steps: []step{{
				at: "from_wep podA", send: udp("podA:40000", "podB:53"), otherMark: 0x8000_0007, want: redirect,
				out: becomes(udp("podA:40000", "podB:53").ttl(63)), marked: layout.MarkSeen, counted: plus(newFlow, viaVeth...),
			}},
			keep: true,
		},
		fixture{
			name: "another mark of ours does not let a pod's packet past its policy",
			steps: []step{{
				at: "from_wep podA", send: udp("podA:40000", "podB:53"), mark: layout.MarkSeen, deny: true,
				want: dropped, counted: counters{layout.DropPolicy},
			}},
		})
}()

var classFixtures = []fixture{
	{
		name:  "what comes by the loopback was looked at when it left",
		steps: []step{{at: "from_lo", send: tcp("node1:45000", "node1:22", "S"), want: pass}},
	},
	{
		name: "what leaves by the loopback and is no flow of ours is left alone", services: oneService,
		steps: []step{
			leftAlone("to_lo", tcp("node1:45000", "node1:22", "S")),
			leftAlone("to_lo", udp("node1:45000", "node1:53")),
		},
	},
	{
		name:  "what leaves by bpfout and is no flow of ours is left alone",
		steps: []step{leftAlone("to_nat", tcp("node1:45000", "podB:80", "S"))},
	},
	{
		name: "a client behind a device without Ethernet headers reaches a pod by the kernel's stack",
		steps: []step{
			{
				at: "from_l3dev", send: udp("l3peer:50000", "podB:53"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "to_wep podB", send: udp("l3peer:50000", "podB:53").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: udp("podB:53", "l3peer:50000"),
				want: pass, marked: layout.MarkStack, counted: plus(toStack, layout.CountPromoted),
			},
			{
				at: "from_l3dev", send: udp("l3peer:50000", "podB:53"),
				want: pass, marked: layout.MarkSeen, counted: plus(toStack, layout.CountFastPath),
			},
		},
		entries: []string{
			"udp l3peer:50000 > podB:53 | normal established | 2/1 packets | stack, stack | approved-0 approved-1 via-stack",
		},
	},
	{
		name: "a client behind a device without Ethernet headers is translated at the right place", services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			{
				at: "from_l3dev", send: udp("l3peer:50000", "vip:53"),
				want: pass, out: becomes(udp("l3peer:50000", "podB:5353")), marked: layout.MarkSeen,
				counted: plus(newService, toStack...),
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "l3peer:50000"),
				want: pass, out: becomes(udp("vip:53", "l3peer:50000")), marked: layout.MarkStack, // no route of the kernel's
				counted: plus(toStack, layout.CountPromoted, layout.CountUnnat),
			},
		},
		keep: true,
	},
	{
		name:  "what leaves by a device without Ethernet headers is left alone",
		steps: []step{leftAlone("to_l3dev", udp("l3host:40000", "client:53"))},
	},
	{
		name: "a short packet by a device without Ethernet headers is dropped where it comes in",
		steps: []step{{
			at: "from_l3dev", send: other("l3peer", "podB", protoTCP).data(19), want: dropped,
			counted: counters{layout.DropShort},
		}},
	},
	{
		name: "an answer of a host's service to a client whose address was kept takes the tunnel's key with it",
		steps: []step{
			{
				at: "from_tunnel", outer: "node2", send: udp("client:50000", "node1:53"),
				want: pass, marked: layout.MarkSeen, counted: plus(newFlow, toStack...),
			},
			{
				at: "to_tunnel", send: udp("node1:53", "client:50000"), want: pass, marked: layout.MarkBypass,
				counted: counters{layout.CountPromoted, layout.CountTunnelKey},
			},
		},
		keep: true,
	},
}

// dry is a step as a dry run: it says where the packet would go and leaves no trace.
func dry(at string, p packet, want verdict) step {
	return step{at: at, send: p, trace: true, want: want}
}

var dryFixtures = []fixture{
	{
		name: "a dry run of a new flow to a service counts nothing, makes no entry and changes nothing", services: oneService,
		steps: []step{dry("from_wep podA", toService.out("S", 1, 0), ok)},
	},
	{
		name: "a dry run of a new flow to another node changes nothing", services: remoteDNS,
		steps: []step{dry("from_wep podA", udp("podA:40000", "vip:53"), ok)},
	},
	{
		name: "a dry run makes no affinity", services: []service{sticky("podB:8080")},
		steps: []step{
			dry("from_wep podA", toService.out("S", 1, 0), ok),
			again("40000", "podB:8081", sticky("podB:8081").replaces()),
		},
		keep: true,
	},
	{
		name:     "a dry run does not lengthen affinity",
		services: []service{sticky("podB:8080")},
		steps: []step{
			again("40000", "podB:8080", nil),
			func() step {
				s := dry("from_wep podA", tcp("podA:40001", "vip:80", "S"), ok)
				s.before = age(50 * time.Second)
				return s
			}(),
			again("40002", "podB:8081", all(age(20*time.Second), sticky("podB:8081").replaces())),
		},
		keep: true,
	},
	{
		name:     "a dry run leaves an entry that has timed out where it is",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{datagram("5353", newService...), func() step {
			s := dry("from_wep podA", udp("podA:40000", "vip:53"), ok)
			s.before = age(61 * time.Second)
			return s
		}()},
		entries: []string{
			"udp podA:40000 > podB:5353 => vip:53 > podA:40000 | nat-rev new half-open dead | 1/0 packets | peer podB, peer podA | approved-0",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5353 | nat-fwd new half-open dead | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a dry run of a denied flow is dropped and counts nothing", services: oneService,
		steps: []step{func() step {
			s := dry("from_wep podA", toService.out("S", 1, 0), dropped)
			s.deny = true
			return s
		}()},
	},
	{
		name: "a dry run of a known flow's segments changes neither packet nor entry", services: oneService,
		steps: toService.open(
			dry("from_wep podA", toService.out("PA", 1001, 5001), ok),
			dry("from_wep podA", toService.out("FA", 1001, 5001), ok),
			dry("from_wep podB", toService.in("R", 5001, 0), ok),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a dry run of a flow to nobody is dropped and not answered",
		services: []service{svc("vip:80", protoTCP)},
		steps: []step{func() step {
			s := dry("from_wep podA", toService.out("S", 1, 0), ok)
			s.out = becomes(resetFor(toService.out("S", 1, 0)))
			return s
		}()},
	},
	{
		name: "a dry run of a flow that waits for the receiver's judgement does not give it", services: oneService,
		steps: []step{
			toService.syn(),
			{
				at: "to_wep podB", send: toService.outXlated("S", clientISN, 0), mark: layout.MarkSeen, trace: true,
				want: pass, marked: layout.MarkSeen,
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a dry run of an error about a flow counts nothing", services: remoteDNS,
		steps: append(slices.Clone(remoteUDP), func() step {
			s := dry("from_tunnel", icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353")), ok)
			s.out = becomes(icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "vip:53")).ttl(63))
			return s
		}()),
		keep: true,
	},
}

// without empties a jump slot of a hook's variant for as long as the fixture runs.
func without(hook string, slot layout.Slot) func(*run) {
	return func(r *run) {
		variant, _, _ := hookOf(hook, r.family)
		v, err := variants.Parse(variant)
		r.must(err)
		index := v.Slot(slot)
		program := r.programs[variant][slot]
		r.must(r.set.Jump.Clear(index))
		r.undo = append(r.undo, func() { r.must(r.set.Jump.Set(index, program)) })
	}
}

var missingFixtures = []fixture{
	{
		name: "a pod's packet is dropped where the next program is missing", services: oneService,
		prepare: without("from_wep podA", layout.SlotNewFlow),
		steps: []step{{
			at: "from_wep podA", send: toService.out("S", 1, 0), want: dropped, counted: counters{layout.DropNoProgram},
		}},
	},
	{
		name:     "a host interface's packet passes where the next program is missing",
		services: []service{external("node1:30080", protoTCP, "podB:8080")},
		prepare:  without("from_hep", layout.SlotNewFlow),
		steps: []step{{
			at: "from_hep", send: fromOutside.out("S", 1, 0), want: pass, counted: counters{layout.DropNoProgram},
		}},
	},
	{
		name: "a pod's packet is dropped where the program behind its policy is missing", services: oneService,
		prepare: without("from_wep podA", layout.SlotDrop),
		steps: []step{{
			at: "from_wep podA", send: toService.out("S", 1, 0), deny: true,
			want: dropped, counted: counters{layout.CountServiceNew},
		}},
	},
	{
		name: "an answer that has no program is a drop", services: []service{svc("vip:80", protoTCP)},
		prepare: without("from_wep podA", layout.SlotRST),
		steps: []step{{
			at: "from_wep podA", send: toService.out("S", 1, 0), want: dropped,
			counted: counters{layout.DropNoBackend, layout.DropNoProgram},
		}},
	},
}

// preambleCase is a packet at a preamble.
type preambleCase struct {
	name  string
	class layout.Class
	hook  layout.Hook
	main  bool // the class's main program is there
	send  packet
	want  verdict
	count layout.Counter // in the row of IPv4, whose program there is none of
}

func TestPreamble(t *testing.T) {
	arp := udp("podA:1", "podB:2").typed(0x0806)
	lldp := udp("podA:1", "podB:2").typed(0x88cc)
	wep, hep := layout.ClassWEP, layout.ClassHEP
	n := theNode(t)
	for _, c := range []preambleCase{
		{name: "a pod's ARP passes", class: wep, main: true, send: arp, want: pass},
		{name: "a pod's ARP passes without a main program", class: wep, send: arp, want: pass},
		{name: "a pod's other packets go to the main program, which drops them", class: wep, main: true, send: lldp, want: dropped, count: layout.DropNotIP},
		{name: "a pod's packet is dropped without a main program", class: wep, send: udp("podA:1", "podB:2"), want: dropped, count: layout.DropNoProgram},
		{name: "a packet to a pod is dropped without a main program", class: wep, hook: layout.HookEgress, send: udp("podB:1", "podA:2"), want: dropped, count: layout.DropNoProgram},
		{name: "a host interface's packet passes without a main program", class: hep, send: udp("client:1", "node1:2"), want: pass},
		{name: "a host interface's packet passes its main program", class: hep, main: true, send: udp("client:1", "node1:2"), want: pass, count: layout.CountToStack},
	} {
		for _, family := range variants.Families {
			t.Run(c.name+"/"+family.String(), func(t *testing.T) { n.testPreamble(t, c, family) })
		}
	}
}

func (n *node) testPreamble(t *testing.T, c preambleCase, family layout.Family) {
	if err := n.reset(); err != nil {
		t.Fatal(err)
	}
	const slot = 9
	cfg := layout.PreambleCfg{
		IfaceSlot: slot, Hook: uint32(c.hook), Policy: [2]uint32{uint32(layout.PolicyAllow), uint32(layout.PolicyAllow)},
	}
	if c.class == layout.ClassWEP {
		cfg.FailClosed = 1
	}
	for _, f := range variants.Families {
		cfg.Main[f] = variants.Variant{Hook: c.hook, Class: c.class, Family: f}.Slot(layout.SlotMain)
		if !c.main {
			cfg.Main[f] = uint32(layout.BankStride) // the bank that nothing was loaded into
		}
	}
	preamble, err := load.Preamble(cfg, n.set.Raw())
	if err != nil {
		t.Fatal(err)
	}
	defer preamble.Close()
	if err := n.set.Counters.Zero(slot); err != nil {
		t.Fatal(err)
	}
	frame := c.send.frame(family)
	var out progrun.Output
	n.inside(func() {
		out, err = progrun.Run(preamble, progrun.Input{Packet: frame, Ifindex: n.ifindex["podA"]})
	})
	if err != nil {
		t.Fatal(err)
	}
	if verdict(out.Verdict) != c.want {
		t.Errorf("verdict %v, want %v", verdict(out.Verdict), c.want)
	}
	if !bytes.Equal(out.Packet, frame) {
		t.Errorf("packet\n%s", difference(out.Packet, frame))
	}
	if c.count == 0 {
		return
	}
	var counted uint64
	for _, f := range variants.Families {
		row, err := n.set.Counters.Read(maps.CounterKey{Slot: slot, Hook: c.hook, Family: f})
		if err != nil {
			t.Fatal(err)
		}
		counted += row.Count[c.count]
	}
	if counted != 1 {
		t.Errorf("%v was counted %d times, want once", c.count, counted)
	}
}
