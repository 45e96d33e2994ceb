// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"encoding/binary"
	"fmt"
)

// checksum is the Internet checksum (RFC 1071) over b, going on from a sum.
func checksum(b []byte, sum uint32) uint16 {
	for len(b) >= 2 {
		sum += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func pseudoSum(src, dst []byte, proto uint8, length int) uint32 {
	sum := uint32(proto) + uint32(length)
	for _, a := range [][]byte{src, dst} {
		for i := 0; i < len(a); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(a[i:]))
		}
	}
	return sum
}

// verifyChecksums computes every checksum of a packet anew, from its network header on, those of a packet quoted in
// an ICMP error included as far as it is quoted whole.
func verifyChecksums(b []byte) error {
	if len(b) < 20 {
		return nil
	}
	switch b[0] >> 4 {
	case 4:
		ihl, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if ihl < 20 || ihl > len(b) {
			return nil
		}
		if got := checksum(b[:ihl], 0); got != 0 {
			return fmt.Errorf("IPv4 header checksum is off by %#04x", got)
		}
		if total < ihl || total > len(b) || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return nil
		}
		return verifyL4(b[9], b[ihl:total], pseudoSum(b[12:16], b[16:20], b[9], total-ihl))
	case 6:
		if len(b) < 40 {
			return nil
		}
		next, off, total := b[6], 40, 40+int(binary.BigEndian.Uint16(b[4:]))
		if total > len(b) {
			return nil
		}
		for next == extHop || next == extRouting || next == extDest || next == extAuth {
			if off+8 > total {
				return nil
			}
			size := (int(b[off+1]) + 1) * 8
			if next == extAuth {
				size = (int(b[off+1]) + 2) * 4
			}
			next, off = b[off], off+size
		}
		if off > total {
			return nil
		}
		return verifyL4(next, b[off:total], pseudoSum(b[8:24], b[24:40], next, total-off))
	}
	return nil
}

func verifyL4(proto uint8, b []byte, pseudo uint32) error {
	name := ""
	switch {
	case proto == protoTCP && len(b) >= 20:
		name = "TCP"
	case proto == protoUDP && len(b) >= 8:
		if b[6] == 0 && b[7] == 0 {
			return nil
		}
		name = "UDP"
	case proto == 1 && len(b) >= 8:
		name, pseudo = "ICMP", 0
	case proto == 58 && len(b) >= 8:
		name = "ICMPv6"
	default:
		return nil
	}
	if got := checksum(b, pseudo); got != 0 {
		return fmt.Errorf("%s checksum is off by %#04x", name, got)
	}
	isError := proto == 1 && (b[0] == 3 || b[0] == 11 || b[0] == 12) || proto == 58 && b[0] < 128
	if isError {
		if err := verifyChecksums(b[8:]); err != nil {
			return fmt.Errorf("quoted packet: %w", err)
		}
	}
	return nil
}
