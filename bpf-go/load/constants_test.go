// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

func asking(mark, offset uint64) *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"p": {Instructions: asm.Instructions{
		asm.LoadImm(asm.R1, int64(mark<<32|offset), asm.DWord), asm.LoadImm(asm.R2, 7, asm.DWord), asm.Return(),
	}}}}
}

func TestConstantsStandInTheInstructionsThatAskForThem(t *testing.T) {
	cfg := struct {
		A, B uint32
		C    uint64
	}{1, 1<<31 + 2, 1<<63 + 3}
	for _, c := range []struct {
		mark, offset uint64
		want         int64
	}{{constant32, 0, 1}, {constant32, 4, 1<<31 + 2}, {constant64, 8, -1<<63 + 3}} {
		s := asking(c.mark, c.offset)
		if err := SetConstants(s, cfg); err != nil {
			t.Fatal(err)
		}
		if in := s.Programs["p"].Instructions; in[0].Constant != c.want || in[1].Constant != 7 {
			t.Errorf("at %d: %d and %d, want %d and 7", c.offset, in[0].Constant, in[1].Constant, c.want)
		}
	}
	if err := SetConstants(asking(constant32, 16), cfg); err == nil || !strings.Contains(err.Error(), "16") {
		t.Errorf("a constant beyond the struct: error %v", err)
	}
	if err := SetConstants(asking(constant32, 0), 1); err == nil {
		t.Error("constants without a struct of fixed size were taken")
	}
}

// A constant that nobody sets would be a number without sense: the preamble, whose every field is used, is
// loaded often from one specification, which must stay as it is.
func TestSettingConstantsLeavesTheParsedObjectAlone(t *testing.T) {
	s, err := objects.Spec(objects.Preamble)
	if err != nil {
		t.Fatal(err)
	}
	marks := func(s *ebpf.CollectionSpec) (n int) {
		for _, in := range s.Programs[PreambleProgram].Instructions {
			if in.OpCode.IsDWordLoad() && uint64(in.Constant)>>32 == constant32 {
				n++
			}
		}
		return n
	}
	before := marks(s)
	one := s.Copy()
	if err := SetConstants(one, make([]uint32, 16)); err != nil {
		t.Fatal(err)
	}
	if before == 0 || marks(s) != before || marks(one) != 0 {
		t.Errorf("constants to be set: %d before, %d after, %d in the copy", before, marks(s), marks(one))
	}
}
