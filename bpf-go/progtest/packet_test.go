// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

const (
	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132
	protoICMP = 0xfe // icmp or icmpv6, by family
	protoGRE  = 47
	protoRaw  = 0xff // no header behind the network's
)

// packet describes a packet of either family. Methods return changed copies, so that an expected packet reads as the
// sent one and what became of it.
type packet struct {
	src, dst string // "podA:40000"
	proto    uint8

	flags    string // TCP: S, A, F, R, P
	seq, ack uint32
	win      uint16
	scale    int  // TCP window scale option; 0: none
	clamped  bool // the segment size beside it is what fits into the tunnel

	hop     uint8 // 64 if zero
	df      bool
	frag    uint16 // IPv4: fragment offset field with the more-fragments bit; IPv6: a fragment header
	options int    // IPv4: bytes of options
	ext     []byte // IPv6: next-header values of extension headers, 8 bytes each

	icmp    [4]uint8 // type and code, IPv4 first
	info    uint32   // ICMP: second word: identifier and sequence, MTU
	quote   *packet  // ICMP errors: what they quote
	quoted  int      // bytes quoted; 0: all
	payload int      // bytes behind the L4 header
	noSum   bool     // UDP without a checksum
	first   uint16   // first word of the payload, where it matters

	swapped   bool   // Ethernet addresses are those of an answer
	ethertype uint16 // in place of the family's
	vlan      bool   // a tag in the packet
	bare      bool   // no Ethernet header
	disguise  *uint8 // protocol number in place of the true one
	mangle    func([]byte) []byte
}

func tcp(src, dst, flags string) packet {
	return packet{src: src, dst: dst, proto: protoTCP, flags: flags, seq: 1000, win: 64240, df: true}.acks(flags)
}

func (p packet) acks(flags string) packet {
	if strings.Contains(flags, "A") {
		p.ack = 5000
	}
	return p
}

func udp(src, dst string) packet { return packet{src: src, dst: dst, proto: protoUDP, payload: 32} }

func sctp(src, dst string) packet { return packet{src: src, dst: dst, proto: protoSCTP, payload: 16} }

// other is a packet of a protocol without ports.
func other(src, dst string, proto uint8) packet {
	return packet{src: src, dst: dst, proto: protoRaw, disguise: &proto, payload: 16}
}

func ping(src, dst string) packet {
	return packet{src: src, dst: dst, proto: protoICMP, icmp: [4]uint8{8, 0, 128, 0}, info: 0x1234 << 16, payload: 24}
}

func pong(src, dst string) packet {
	p := ping(src, dst)
	p.icmp = [4]uint8{0, 0, 129, 0}
	return p
}

// The errors, by their types and codes in both families.
var (
	portUnreachable = [4]uint8{3, 3, 1, 4}
	hostUnreachable = [4]uint8{3, 1, 1, 3}
	tooBig          = [4]uint8{3, 4, 2, 0}
	timeExceeded    = [4]uint8{11, 0, 3, 0}
	badParameter    = [4]uint8{12, 0, 4, 0}
)

// icmpError is an error about the packet quoted.
func icmpError(src, dst string, kind [4]uint8, quoted packet) packet {
	return packet{src: src, dst: dst, proto: protoICMP, icmp: kind, quote: &quoted}
}

// answer is an ICMP error as the datapath makes it: it quotes what it answers, up to a limit.
func answer(src string, kind [4]uint8, about packet) packet {
	dst, _, _ := strings.Cut(about.src, ":")
	p := icmpError(src, dst, kind, about)
	p.quoted = -1 // the datapath's own limit
	p.swapped = true
	return p
}

func (p packet) from(src string) packet        { p.src = src; return p }
func (p packet) to(dst string) packet          { p.dst = dst; return p }
func (p packet) ttl(n uint8) packet            { p.hop = n; return p }
func (p packet) at(seq, ack uint32) packet     { p.seq, p.ack = seq, ack; return p }
func (p packet) data(n int) packet             { p.payload = n; return p }
func (p packet) window(n uint16) packet        { p.win = n; return p }
func (p packet) mtu(n uint32) packet           { p.info = n; return p }
func (p packet) mayFragment() packet           { p.df = false; return p }
func (p packet) back() packet                  { p.swapped = true; return p }
func (p packet) quoting(n int) packet          { p.quoted = n; return p }
func (p packet) withExt(kinds ...uint8) packet { p.ext = kinds; return p }

func (p packet) withoutSum() packet     { p.noSum = true; return p }
func (p packet) withScale(n int) packet { p.scale = n; return p }
func (p packet) withClampedMSS() packet { p.clamped = true; return p }

func (p packet) withOptions(n int) packet      { p.options = n; return p }
func (p packet) fragment(field uint16) packet  { p.frag = field; return p }
func (p packet) typed(ethertype uint16) packet { p.ethertype = ethertype; return p }
func (p packet) tagged() packet                { p.vlan = true; return p }
func (p packet) unfragmented() packet          { p.df = true; return p }
func (p packet) typeV6(n uint8) packet         { p.icmp[2], p.icmp[3] = n, 0; return p }

// inside makes the packet's protocol another one; what it carries stays.
func (p packet) inside(proto uint8) packet { p.disguise = &proto; return p }

// padded fills the frame up behind the packet.
func (p packet) padded() packet {
	return p.broken(func(b []byte) []byte { return append(b, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff) })
}

func (p packet) starting(word uint16) packet { p.first = word; return p }

// moreFragments is the bit of the fragment field that says so.
const moreFragments = 0x2000

// resetFor is the reset that answers a SYN.
func resetFor(syn packet) packet {
	return tcp(syn.dst, syn.src, "RA").at(0, syn.seq+1).window(0).mayFragment().back()
}

// cut shortens the frame to n bytes, whatever the headers say.
func (p packet) cut(n int) packet {
	return p.broken(func(b []byte) []byte { return b[:min(n, len(b))] })
}

// broken edits the finished frame.
func (p packet) broken(edit func([]byte) []byte) packet { p.mangle = edit; return p }

// setByte changes one byte of the finished frame.
func (p packet) setByte(offset int, value byte) packet {
	return p.broken(func(b []byte) []byte { b[offset] = value; return b })
}

// setBytes changes bytes of the finished frame.
func (p packet) setBytes(offset int, values ...byte) packet {
	return p.broken(func(b []byte) []byte { copy(b[offset:], values); return b })
}

var (
	senderMAC   = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	receiverMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
)

const ethLen = 14

// frame builds the packet of a family.
func (p packet) frame(f layout.Family) []byte {
	l3 := p.l3(f)
	if p.bare {
		return p.finish(l3)
	}
	src, dst := senderMAC, receiverMAC
	if p.swapped {
		src, dst = dst, src
	}
	b := slices.Concat(dst, src)
	if p.vlan {
		b = append(b, 0x81, 0x00, 0x00, 0x05)
	}
	typ := p.ethertype
	if typ == 0 {
		typ = uint16(layers.EthernetTypeIPv4)
		if f == layout.FamilyV6 {
			typ = uint16(layers.EthernetTypeIPv6)
		}
	}
	b = binary.BigEndian.AppendUint16(b, typ)
	return p.finish(append(b, l3...))
}

func (p packet) finish(b []byte) []byte {
	if p.mangle != nil {
		return p.mangle(b)
	}
	return b
}

// l3 builds the packet from its network header on.
func (p packet) l3(f layout.Family) []byte {
	src, sport := endOf(p.src, f)
	dst, dport := endOf(p.dst, f)
	ttl := p.hop
	if ttl == 0 {
		ttl = 64
	}
	var stack []gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	proto := layers.IPProtocol(p.number(f))
	if f == layout.FamilyV4 {
		ip := &layers.IPv4{Version: 4, TTL: ttl, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		if p.df {
			ip.Flags = layers.IPv4DontFragment
		}
		if p.frag != 0 {
			ip.Flags, ip.FragOffset = layers.IPv4Flag(p.frag>>13), p.frag&0x1fff
		}
		for range p.options {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1})
		}
		stack, network = append(stack, ip), ip
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		stack, network = append(stack, ip), ip
		ext := p.ext
		if p.frag != 0 {
			ext = append(slices.Clone(ext), extFragment)
		}
		if len(ext) > 0 {
			ip.NextHeader = layers.IPProtocol(ext[0])
			stack = append(stack, gopacket.Payload(p.extHeaders(ext, uint8(proto))))
		}
	}
	stack = append(stack, p.l4(f, network, sport, dport)...)
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, options, stack...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func (p packet) number(f layout.Family) uint8 {
	if p.disguise != nil {
		return *p.disguise
	}
	if p.proto != protoICMP {
		return p.proto
	}
	if f == layout.FamilyV6 {
		return uint8(layers.IPProtocolICMPv6)
	}
	return uint8(layers.IPProtocolICMPv4)
}

// Kinds of IPv6 extension headers.
const (
	extHop      = 0
	extRouting  = 43
	extFragment = 44
	extAuth     = 51
	extNone     = 59
	extDest     = 60
)

// extHeaders are 8 bytes for each kind, but 12 for an authentication header, whose length counts in other units.
func (p packet) extHeaders(kinds []byte, last uint8) []byte {
	var b []byte
	for i, kind := range kinds {
		next := last
		if i+1 < len(kinds) {
			next = kinds[i+1]
		}
		switch kind {
		case extFragment:
			b = append(b, next, 0)
			b = binary.BigEndian.AppendUint16(b, p.frag&0x1fff<<3|p.frag>>13&1)
			b = binary.BigEndian.AppendUint32(b, 77)
		case extAuth:
			b = append(b, next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1)
		default:
			b = append(b, next, 0, 1, 4, 0, 0, 0, 0) // PadN of 6
		}
	}
	return b
}

func (p packet) l4(f layout.Family, network gopacket.NetworkLayer, sport, dport uint16) []gopacket.SerializableLayer {
	body := make([]byte, p.payload)
	for i := range body {
		body[i] = byte(i*7 + 1)
	}
	if p.first != 0 {
		binary.BigEndian.PutUint16(body, p.first)
	}
	payload := gopacket.Payload(body)
	if p.frag&0x1fff != 0 { // a later fragment has no L4 header
		return []gopacket.SerializableLayer{payload}
	}
	switch p.proto {
	case protoTCP:
		l := &layers.TCP{
			SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Seq: p.seq, Ack: p.ack, Window: p.win,
			SYN: strings.Contains(p.flags, "S"), ACK: strings.Contains(p.flags, "A"), PSH: strings.Contains(p.flags, "P"),
			FIN: strings.Contains(p.flags, "F"), RST: strings.Contains(p.flags, "R"),
		}
		if p.scale != 0 {
			mss := []byte{5, 0xb4} // 1460
			if p.clamped {
				mss = binary.BigEndian.AppendUint16(nil, tunnelMTU-[]uint16{40, 60}[f])
			}
			l.Options = []layers.TCPOption{
				{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: mss},
				{OptionType: layers.TCPOptionKindNop},
				{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{byte(p.scale)}},
			}
		}
		must(l.SetNetworkLayerForChecksum(network))
		return []gopacket.SerializableLayer{l, payload}
	case protoUDP:
		l := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		must(l.SetNetworkLayerForChecksum(network))
		if p.noSum {
			return []gopacket.SerializableLayer{withoutSum{l}, payload}
		}
		return []gopacket.SerializableLayer{l, payload}
	case protoSCTP:
		b := binary.BigEndian.AppendUint16(nil, sport)
		b = binary.BigEndian.AppendUint16(b, dport)
		return []gopacket.SerializableLayer{gopacket.Payload(append(b, 0, 0, 0, 9, 0, 0, 0, 0)), payload}
	case protoICMP:
		return []gopacket.SerializableLayer{p.icmpMessage(f, network, body)}
	}
	return []gopacket.SerializableLayer{payload}
}

// withoutSum is UDP over IPv4 whose sender computed no checksum.
type withoutSum struct{ *layers.UDP }

func (u withoutSum) SerializeTo(b gopacket.SerializeBuffer, o gopacket.SerializeOptions) error {
	o.ComputeChecksums = false
	return u.UDP.SerializeTo(b, o)
}

// Most bytes of a packet that the datapath's own errors quote (reply.h).
var quoteMax = [2]int{128, 256}

func (p packet) icmpMessage(f layout.Family, network gopacket.NetworkLayer, body []byte) gopacket.Payload {
	kind := p.icmp[2*int(f):]
	b := []byte{kind[0], kind[1], 0, 0}
	b = binary.BigEndian.AppendUint32(b, p.info)
	if p.quote != nil {
		quoted := p.quote.l3(f)
		switch {
		case p.quoted < 0:
			quoted = quoted[:min(quoteMax[f], len(quoted)&^3)]
		case p.quoted > 0:
			quoted = quoted[:min(p.quoted, len(quoted))]
		}
		b = append(b, quoted...)
	}
	b = append(b, body...)
	var sum uint32
	if f == layout.FamilyV6 {
		ip := network.(*layers.IPv6)
		sum = pseudoSum(ip.SrcIP, ip.DstIP, uint8(layers.IPProtocolICMPv6), len(b))
	}
	binary.BigEndian.PutUint16(b[2:], checksum(b, sum))
	return b
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
