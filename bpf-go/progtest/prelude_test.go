// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// Offsets in struct bpf_tunnel_key, and its size up to the local address (Linux 6.0).
const (
	keyRemote = 4
	keyLocal  = 28
	keySize   = 44
)

const (
	refusedByKernel = 99 // verdict of a prelude that could not do its part

	tunInfoIPv6 = 1 // BPF_F_TUNINFO_IPV6
	vlanProto   = 0x8100
)

// prelude gives a packet what BPF_PROG_TEST_RUN can not: the key that it came by the tunnel with, or a VLAN tag beside
// the data. Then it jumps to the variant's main program, as a preamble does.
func (r *run) prelude(s step, v variants.Variant) (*ebpf.Program, error) {
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	if s.outer != "" {
		code = append(code, tunnelKey(s.outer, r.underlay(s))...)
	}
	if s.cut != 0 {
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(s.cut)),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnSkbChangeTail.Call(),
			asm.JEq.Imm(asm.R0, 0, "cut"),
			asm.Mov.Imm(asm.R0, refusedByKernel),
			asm.Return(),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("cut"),
		)
	}
	if s.tag {
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(uint32(vlanProto>>8|vlanProto<<8&0xff00))),
			asm.Mov.Imm(asm.R3, 5),
			asm.FnSkbVlanPush.Call(),
		)
	}
	code = append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, r.set.Jump.Raw().FD()),
		asm.Mov.Imm(asm.R3, int32(v.Slot(layout.SlotMain))),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, refusedByKernel),
		asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "prelude", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: code,
	})
	if err != nil {
		return nil, fmt.Errorf("prelude of a step: %w", err)
	}
	return p, nil
}

// underlay is the family of the tunnel's outer packets.
func (r *run) underlay(step) layout.Family {
	g, err := r.set.Globals.Read()
	r.must(err)
	if layout.GlobalFlag(g.Flags)&layout.GFUnderlayV6 != 0 {
		return layout.FamilyV6
	}
	return layout.FamilyV4
}

// tunnelKey is code that gives the packet a key which reads as that of a packet from a node: what is set as the local
// address is read as the remote one.
func tunnelKey(from string, underlay layout.Family) asm.Instructions {
	var key [keySize + 4]byte
	binary.NativeEndian.PutUint32(key[0:], 4096)
	flags := int32(0)
	addr := addrOf(from, underlay)
	if underlay == layout.FamilyV6 {
		flags = tunInfoIPv6
		copy(key[keyLocal:], addr.AsSlice())
		copy(key[keyRemote:], addrOf("node1", underlay).AsSlice())
	} else { // IPv4 addresses of the key are in host order
		binary.NativeEndian.PutUint32(key[keyLocal:], binary.BigEndian.Uint32(addr.AsSlice()))
	}
	var code asm.Instructions
	const base = -(keySize + 4)
	for off := 0; off < len(key); off += 4 {
		word := binary.NativeEndian.Uint32(key[off:])
		code = append(code, asm.StoreImm(asm.RFP, int16(base+off), int64(int32(word)), asm.Word))
	}
	return append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, base),
		asm.Mov.Imm(asm.R3, keySize),
		asm.Mov.Imm(asm.R4, flags),
		asm.FnSkbSetTunnelKey.Call(),
		asm.JEq.Imm(asm.R0, 0, "keyed"),
		asm.Mov.Imm(asm.R0, refusedByKernel),
		asm.Return(),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("keyed"),
	)
}
