// SPDX-License-Identifier: Apache-2.0

package progrun

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// Offsets in struct __sk_buff.
const (
	offMark    = 8
	offIfindex = 40
	offCB      = 48
)

func load(t *testing.T, instructions ...asm.Instruction) *ebpf.Program {
	t.Helper()
	testenv.RequireRoot(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "progrun_test", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: instructions,
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestAProgramSeesItsContextAndGivesBackWhatItChanged(t *testing.T) {
	testenv.NetNS(t)
	veth, _ := testenv.Veth(t, "a", "b", -1)
	program := load(t,
		asm.LoadMem(asm.R2, asm.R1, offMark, asm.Word),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, offMark, asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, offCB+4*int16(layout.CBFlags), asm.Word),
		asm.StoreMem(asm.R1, offCB+4*int16(layout.CBEP), asm.R2, asm.Word),
		asm.LoadMem(asm.R0, asm.R1, offIfindex, asm.Word),
		asm.Return(),
	)
	packet := make([]byte, 64)
	packet[63] = 7
	in := Input{Packet: packet, Mark: 0x100000, Ifindex: uint32(veth.Attrs().Index)}
	in.CB[layout.CBFlags] = 5
	out, err := Run(program, in)
	if err != nil {
		t.Fatal(err)
	}
	if out.Verdict != int32(veth.Attrs().Index) {
		t.Errorf("the program saw interface %d, want %d", out.Verdict, veth.Attrs().Index)
	}
	if out.Mark != 0x100001 || out.CB[layout.CBEP] != 5 {
		t.Errorf("mark %#x, cb %v", out.Mark, out.CB)
	}
	if !bytes.Equal(out.Packet, packet) {
		t.Errorf("packet %x", out.Packet)
	}
}

func TestAPacketMayGrow(t *testing.T) {
	program := load(t,
		asm.Mov.Imm(asm.R2, 60), // bpf_skb_change_head(skb, 60, 0)
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkbChangeHead.Call(),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	)
	out, err := Run(program, Input{Packet: make([]byte, 100)})
	if err != nil {
		t.Fatal(err)
	}
	if out.Verdict != Unspec || len(out.Packet) != 160 {
		t.Errorf("verdict %d, %d bytes", out.Verdict, len(out.Packet))
	}
}

func TestATooShortPacketIsAnErrorThatNamesTheProgram(t *testing.T) {
	program := load(t, asm.Mov.Imm(asm.R0, 0), asm.Return())
	if _, err := Run(program, Input{Packet: make([]byte, 5)}); err == nil {
		t.Error("a packet without an Ethernet header ran")
	}
}

func TestThePreamblesWordsAreThoseOfItsConstants(t *testing.T) {
	cb := CBFor(layout.PreambleCfg{IfaceSlot: 1, Flags: 2, Policy: [2]uint32{3, 4}, EPSlot: 5}, layout.FamilyV6)
	if cb != [5]uint32{1, 2, 4, 5, 0} {
		t.Errorf("cb %v", cb)
	}
}
