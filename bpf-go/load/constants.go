// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Upper halves of the operand that LOAD_CONSTANT of bpf-c/bpf.h leaves for a load-time constant; the lower
// half is the constant's offset in its struct.
const (
	constant32 = 0xfe11c0de
	constant64 = 0xfe11c0df
)

// SetConstants puts the fields of cfg, a struct in the layout that the programs know, in place of the
// constants that they ask for. A program without constants is left as it is.
func SetConstants(s *ebpf.CollectionSpec, cfg any) error {
	var fields []byte
	for name, p := range s.Programs {
		for i := range p.Instructions {
			in := &p.Instructions[i]
			operand := uint64(in.Constant)
			mark, offset := operand>>32, int(uint32(operand))
			if !in.OpCode.IsDWordLoad() || in.Src != asm.R0 || mark != constant32 && mark != constant64 {
				continue
			}
			if fields == nil {
				var err error
				if fields, err = binary.Append(nil, binary.NativeEndian, cfg); err != nil {
					return fmt.Errorf("constants: %w", err)
				}
			}
			size := 4
			if mark == constant64 {
				size = 8
			}
			if offset+size > len(fields) {
				return fmt.Errorf("%s asks for a constant at offset %d of %T, which has %d bytes", name, offset, cfg, len(fields))
			}
			if size == 8 {
				in.Constant = int64(binary.NativeEndian.Uint64(fields[offset:]))
			} else {
				in.Constant = int64(binary.NativeEndian.Uint32(fields[offset:]))
			}
		}
	}
	return nil
}
