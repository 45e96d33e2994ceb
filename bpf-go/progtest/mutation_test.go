// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/progrun"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// mutations is how many spoilt packets each variant gets.
const mutations = 400

// TestSpoiltPacketsGetAVerdictAndAReason spoils good packets at random and runs them through every variant. Nothing is
// known of what each should become, but that its verdict is one of ours, that a drop is counted by its reason and a
// packet that lives by where it went, and that what goes to a service's backend has right checksums if it had before.
func TestSpoiltPacketsGetAVerdictAndAReason(t *testing.T) {
	n := theNode(t)
	for _, v := range variants.All() {
		t.Run(v.Name(), func(t *testing.T) {
			r := &run{node: n, family: v.Family}
			r.must(n.reset())
			for _, s := range []service{
				svc("vip:80", protoTCP, "podB:8080", "podR:8080"), svc("vip:53", protoUDP, "podA:53").number(2),
				external("node1:30080", protoTCP, "podR:8080").number(3), svc("vip2:80", protoTCP).number(4),
			} {
				r.must(r.addService(s))
			}
			random := rand.New(rand.NewPCG(uint64(v.Index()), 1))
			for range mutations {
				r.spoil(v, random)
				if len(r.problems) > 0 {
					t.Fatal(r.problems)
				}
			}
		})
	}
}

// originals are the packets that are spoilt.
func originals(l3dev bool) []packet {
	src := "podA:40000"
	if l3dev {
		src = "l3peer:40000"
	}
	all := []packet{
		tcp(src, "vip:80", "S").withScale(7), tcp(src, "vip:80", "PA").data(100), tcp(src, "vip2:80", "S"),
		udp(src, "vip:53"), udp(src, "podR:53"), sctp(src, "podB:80"), ping(src, "podB"), tcp(src, "node1:30080", "S"),
		icmpError(src, "podB", portUnreachable, udp("podB:53", "podA:40000")),
		tcp(src, "vip:80", "S").withExt(extHop, extDest, extAuth).withOptions(12),
		udp(src, "podB:53").fragment(moreFragments), udp(src, "client:4789"),
	}
	if !l3dev {
		all = append(all, tcp("client:40000", "node1:30080", "S"), udp("node2:1", "node1:4789"))
	}
	return all
}

func (r *run) spoil(v variants.Variant, random *rand.Rand) {
	hook := variants.Direction(v.Hook) + "_" + v.Class.String()
	if v.Class == layout.ClassWEP {
		hook += " podA"
	}
	_, i, name := hookOf(hook, v.Family)
	candidates := originals(v.Class == layout.ClassL3Dev)
	p := candidates[random.IntN(len(candidates))]
	p.bare = v.Class == layout.ClassL3Dev
	frame := p.frame(v.Family)
	first := ethLen // the kernel itself takes what stands there for the protocol
	for range random.IntN(4) {
		at := first + random.IntN(min(len(frame)-first, 80))
		frame[at] = byte(random.Uint32())
	}
	if random.IntN(3) == 0 { // the kernel's own test refuses frames without a whole network header
		frame = frame[:min(len(frame), max(ethLen+40, random.IntN(len(frame))))]
	}
	r.must(r.set.Counters.Zero(i.slot))
	in := progrun.Input{Packet: slices.Clone(frame), Ifindex: r.ifindex[name]}
	in.CB[layout.CBIface], in.CB[layout.CBPolicy] = i.slot, uint32(layout.PolicyAllow)
	var out progrun.Output
	var err error
	r.inside(func() { out, err = progrun.Run(r.programs[v.Name()][layout.SlotMain], in) })
	if err != nil {
		r.fail("%x: %v", frame, err)
		return
	}
	row, err := r.set.Counters.Read(maps.CounterKey{Slot: i.slot, Hook: v.Hook, Family: v.Family})
	r.must(err)
	var drops, others uint64
	for c, count := range row.Count {
		switch {
		case layout.Counter(c).IsDrop():
			drops += count
		case layout.Counter(c) != layout.CountTotal:
			others += count
		}
	}
	fromLo := v.Class == layout.ClassLo && v.Hook == layout.HookIngress
	switch verdict(out.Verdict) {
	case dropped:
		if drops == 0 {
			r.fail("%s was dropped without a reason", hex.EncodeToString(frame))
		}
	case pass, redirect:
		if others == 0 && !fromLo {
			r.fail("%s lives on and was not counted", hex.EncodeToString(frame))
		}
	default:
		r.fail("%s: verdict %v", hex.EncodeToString(frame), verdict(out.Verdict))
	}
	off := ethLen
	if p.bare {
		off = 0
	}
	if verifyChecksums(frame[off:]) == nil && out.Verdict != progrun.Shot {
		if err := verifyChecksums(out.Packet[off:]); err != nil {
			r.fail("%s became %s: %v", hex.EncodeToString(frame), hex.EncodeToString(out.Packet), err)
		}
	}
}
