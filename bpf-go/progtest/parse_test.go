// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestOddPackets(t *testing.T) {
	play(t, slices.Concat(foreignFixtures, fragmentFixtures, extFixtures))
}

func TestBrokenPackets(t *testing.T) { play(t, brokenFixtures) }

// refusedFor is a pod's packet that is dropped for a reason.
func refusedFor(p packet, reason layout.Counter) step {
	return step{at: "from_wep podA", send: p, want: dropped, counted: counters{reason}}
}

// cutTo is a SYN whose frame ends after n bytes.
func cutTo(n int, reason layout.Counter) step {
	s := refusedFor(tcp("podA:40000", "vip:80", "S"), reason)
	s.cut = n
	return s
}

// leftAlone is a packet that nobody has anything to do with.
func leftAlone(at string, p packet) step {
	return step{at: at, send: p, want: pass, counted: toStack}
}

// toPodB is what a pod's packet to podB that is carried like any other looks like.
func toPodB(p packet) step { return plain(p, newFlow...) }

var foreignFixtures = []fixture{
	{
		name:  "a pod's packet of another Ethertype is dropped",
		steps: []step{refusedFor(udp("podA:40000", "podB:53").typed(0x88cc), layout.DropNotIP)},
	},
	{
		name: "a host interface's packet of another Ethertype is left alone",
		steps: []step{
			leftAlone("from_hep", udp("client:40000", "node1:53").typed(0x88cc)),
			leftAlone("to_hep", udp("node1:40000", "client:53").typed(0x88cc)),
		},
	},
	{
		name: "a pod's VLAN tag is refused, in the packet or beside it",
		steps: []step{
			refusedFor(udp("podA:40000", "podB:53").tagged(), layout.DropVLAN),
			{
				at: "from_wep podA", send: udp("podA:40000", "podB:53"), tag: true,
				want: dropped, counted: counters{layout.DropVLAN},
			},
		},
	},
	{
		name: "a host interface's tagged packet is the VLAN interface's", services: []service{external("node1:30080", protoTCP, "podB:8080")},
		steps: []step{
			{at: "from_hep", send: fromOutside.out("S", 1, 0).tagged(), want: pass, counted: counters{layout.CountVLANPass}},
			{at: "from_hep", send: fromOutside.out("S", 1, 0), tag: true, want: pass, counted: counters{layout.CountVLANPass}},
			{at: "to_hep", send: tcp("node1:1", "client:2", "S"), tag: true, want: pass, counted: counters{layout.CountVLANPass}},
		},
	},
	{
		name: "multicast is never touched",
		steps: []step{
			leftAlone("from_wep podA", udp("podA:5353", "mcast:5353")),
			leftAlone("to_wep podA", udp("node1:5353", "mcast:5353")),
			leftAlone("from_hep", udp("client:5353", "mcast:5353")),
		},
	},
	{
		name: "broadcast is never touched", only: onlyV4,
		steps: []step{leftAlone("from_wep podA", udp("podA:68", "anynode:67"))},
	},
	{
		name: "neighbour discovery, router discovery and multicast membership are never touched", only: onlyV6,
		steps: []step{
			leftAlone("from_wep podA", ping("podA", "node1").typeV6(133)),
			leftAlone("from_wep podA", ping("podA", "node1").typeV6(134)),
			leftAlone("from_wep podA", ping("podA", "node1").typeV6(135)),
			leftAlone("to_wep podA", ping("node1", "podA").typeV6(136)),
			leftAlone("from_wep podA", ping("podA", "node1").typeV6(137)),
			leftAlone("from_wep podA", ping("podA", "mcast").typeV6(143).withExt(extHop)),
			leftAlone("from_wep podA", ping("podA", "node1").typeV6(131)),
			leftAlone("from_hep", ping("router", "node1").typeV6(135)),
		},
	},
	{
		name: "the host's own packets and those that only pass are nobody's flow",
		steps: []step{
			leftAlone("from_hep", tcp("client:50000", "node1:22", "S")),
			leftAlone("from_hep", udp("client:50000", "node1:40000")),
			leftAlone("from_hep", tcp("client:50000", "router:22", "A")),
			leftAlone("to_hep", tcp("node1:22", "client:50000", "SA")),
			leftAlone("to_hep", tcp("node1:45000", "vip:80", "S")),
		},
	},
	{
		name:  "a protocol without ports is a flow by its addresses",
		steps: []step{toPodB(other("podA", "podB", protoGRE))},
		entries: []string{
			"47 podA > podB | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a frame that is padded behind the packet is carried, padding and all", services: oneService,
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S").padded(),
			want: redirect, out: becomes(tcp("podA:40000", "podB:8080", "S").ttl(63).padded()), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "a packet with IPv4 options reaches its service", only: onlyV4, services: oneService,
		steps: []step{
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S").withOptions(4), want: redirect,
				out: becomes(tcp("podA:40000", "podB:8080", "S").withOptions(4).ttl(63)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			{
				at: "from_wep podA", send: tcp("podA:40001", "vip:80", "S").withOptions(40).withScale(7), want: redirect,
				out: becomes(tcp("podA:40001", "podB:8080", "S").withOptions(40).withScale(7).ttl(63)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			{
				at: "from_wep podA", send: ping("podA", "podB").withOptions(12), want: redirect,
				out: becomes(ping("podA", "podB").withOptions(12).ttl(63)), marked: layout.MarkSeen,
				counted: plus(newFlow, viaVeth...),
			},
		},
		keep: true,
	},
}

var fragmentFixtures = []fixture{
	{
		name: "fragments of a pod are dropped: the first, a later one, the last",
		steps: []step{
			refusedFor(udp("podA:40000", "podB:53").fragment(moreFragments), layout.DropFragment),
			refusedFor(udp("podA:40000", "podB:53").fragment(moreFragments|185), layout.DropFragment),
			refusedFor(udp("podA:40000", "podB:53").fragment(185), layout.DropFragment),
		},
	},
	{
		name: "a packet that says it is the only fragment is dropped as one", only: onlyV6,
		steps: []step{refusedFor(udp("podA:40000", "podB:53").withExt(extFragment), layout.DropFragment)},
	},
	{
		name: "a fragment header behind others is found", only: onlyV6,
		steps: []step{refusedFor(udp("podA:40000", "podB:53").withExt(extHop, extDest, extFragment), layout.DropFragment)},
	},
	{
		name: "fragments to a pod are dropped at its own interface and at the host's",
		steps: []step{
			{
				at: "to_wep podB", send: udp("node1:40000", "podB:53").fragment(moreFragments),
				want: dropped, counted: counters{layout.DropFragment},
			},
			{
				at: "from_hep", send: udp("client:40000", "podB:53").fragment(185),
				want: dropped, counted: counters{layout.DropFragment},
			},
		},
	},
	{
		name: "the host's own fragments are the kernel's to put together",
		steps: []step{
			leftAlone("from_hep", udp("client:40000", "node1:53").fragment(moreFragments)),
			leftAlone("from_hep", udp("client:40000", "node1:53").fragment(185)),
			leftAlone("to_hep", udp("node1:53", "client:40000").fragment(185)),
		},
	},
}

// withHeaders is a SYN to the service behind extension headers: translated like one without.
func withHeaders(kinds ...uint8) step {
	return step{
		at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S").withExt(kinds...), want: redirect,
		out: becomes(tcp("podA:40000", "podB:8080", "S").withExt(kinds...).ttl(63)), marked: layout.MarkSeen,
		counted: plus(newService, viaVeth...),
	}
}

// behindHeaders are fixtures of SYNs behind extension headers.
func behindHeaders(name string, kinds ...uint8) fixture {
	return fixture{
		name: "a SYN behind " + name + " reaches its service", only: onlyV6, services: oneService,
		steps: []step{withHeaders(kinds...)}, keep: true,
	}
}

var extFixtures = []fixture{
	behindHeaders("hop-by-hop options", extHop),
	behindHeaders("a routing header", extRouting),
	behindHeaders("destination options", extDest),
	behindHeaders("an authentication header", extAuth),
	behindHeaders("one of each kind", extHop, extDest, extRouting, extAuth, extDest),
	behindHeaders("eight extension headers", extHop, extDest, extDest, extDest, extDest, extDest, extDest, extDest),
	{
		name: "nine extension headers are too many", only: onlyV6, services: oneService,
		steps: []step{refusedFor(tcp("podA:40000", "vip:80", "S").
			withExt(extHop, extDest, extDest, extDest, extDest, extDest, extDest, extDest, extDest), layout.DropExtHeaders)},
	},
	{
		name: "what the host sends behind many extension headers is its business", only: onlyV6,
		steps: []step{leftAlone("to_hep", tcp("node1:22", "client:50000", "SA").
			withExt(extHop, extDest, extDest, extDest, extDest, extDest, extDest, extDest, extDest))},
	},
	{
		name: "a confirmed flow goes on when its packets have extension headers", only: onlyV6, services: oneService,
		steps: toService.open(
			step{
				at: "from_wep podA", send: toService.out("PA", 1001, 5001).withExt(extHop), want: redirect,
				out: becomes(toService.outXlated("PA", 1001, 5001).withExt(extHop)), counted: plus(viaPeer, layout.CountDNAT),
			},
			step{
				at: "from_wep podB", send: toService.in("PA", 5001, 1001).withExt(extDest), want: redirect,
				out: becomes(toService.inXlated("PA", 5001, 1001).withExt(extDest)), counted: plus(viaPeer, layout.CountUnnat),
			},
		),
		keep: true,
	},
	{
		name: "an extension header that is cut off is dropped", only: onlyV6,
		steps: []step{
			refusedFor(other("podA", "podB", extHop).data(4), layout.DropShort),
			refusedFor(other("podA", "podB", extDest).data(0), layout.DropShort),
		},
	},
	{
		name: "an extension header that is longer than the packet is dropped", only: onlyV6,
		steps: []step{
			refusedFor(tcp("podA:40000", "vip:80", "S").withExt(extHop).setByte(ethLen+41, 200), layout.DropExtHeaders),
			refusedFor(tcp("podA:40000", "vip:80", "S").withExt(extHop).setByte(ethLen+41, 2), layout.DropShort),
		},
	},
	{
		name: "an unknown next header is the protocol, and what follows it is not read", only: onlyV6,
		services: []service{svc("vip:80", protoTCP, "podB:8080"), svc("vip:80", 253, "podB:8080").number(2)},
		steps: []step{
			toPodB(tcp("podA:40000", "podB:80", "S").inside(253)),
			plain(tcp("podA:40000", "podB:80", "S").inside(253).withExt(extHop)), // the same flow
			toPodB(tcp("podA:40000", "podB:80", "S").inside(extNone)),
			toPodB(tcp("podA:40000", "podB:80", "S").inside(135)), // mobility: not walked, so a protocol
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S").inside(253),
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
			},
		},
		entries: []string{
			"135 podA > podB | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"253 podA > podB | normal new half-open | 2/0 packets | peer podB, peer podA | approved-0",
			"253 podA > vip | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
			"59 podA > podB | normal new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name: "an error behind extension headers is found to be one", only: onlyV6, services: remoteDNS,
		steps: append(slices.Clone(remoteUDP), aboutFlow("from_tunnel",
			icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "podR:5353")).withExt(extDest),
			icmpError("node2", "podA", hostUnreachable, udp("podA:40000", "vip:53")).withExt(extDest)).through("node2")),
		keep: true,
	},
}

// Offsets in frames.
const (
	v4Version = ethLen
	v4Length  = ethLen + 2
	v6Version = ethLen
	v6Length  = ethLen + 4
	v4TCPOff  = ethLen + 20 + 12
	v6TCPOff  = ethLen + 40 + 12
)

// headless is a packet whose L4 header has n bytes only, by its own account and in fact.
func headless(proto uint8, n int) packet { return other("podA", "podB", proto).data(n) }

var brokenFixtures = []fixture{
	{
		name: "a packet whose L4 header is cut off by its own account is dropped",
		steps: []step{
			refusedFor(headless(protoTCP, 19), layout.DropShort),
			refusedFor(headless(protoTCP, 0), layout.DropShort),
			refusedFor(headless(protoUDP, 7), layout.DropShort),
			refusedFor(headless(protoSCTP, 11), layout.DropShort),
		},
	},
	{
		name: "an ICMP message of less than eight bytes is dropped", only: onlyV4,
		steps: []step{refusedFor(headless(1, 7), layout.DropShort)},
	},
	{
		name: "an ICMPv6 message of less than eight bytes is dropped", only: onlyV6,
		steps: []step{refusedFor(headless(58, 7), layout.DropShort)},
	},
	{
		name: "a frame shorter than a network header is dropped", only: onlyV4,
		steps: []step{
			cutTo(ethLen+19, layout.DropShort),
			cutTo(ethLen+1, layout.DropShort),
		},
	},
	{
		name: "a frame shorter than a network header is dropped, also of IPv6", only: onlyV6,
		steps: []step{
			cutTo(ethLen+39, layout.DropShort),
			cutTo(ethLen+1, layout.DropShort),
		},
	},
	{
		name: "a frame that ends before its packet does is dropped",
		steps: []step{
			refusedFor(udp("podA:40000", "podB:53").data(200).cut(ethLen+80), layout.DropMalformed),
		},
	},
	{
		name: "an IPv4 header that contradicts itself is dropped", only: onlyV4,
		steps: []step{
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Version, 0x44), layout.DropMalformed), // 16 bytes
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Version, 0x40), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Version, 0x65), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Version, 0x05), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Version, 0x4f), layout.DropMalformed), // 60 of 40 bytes
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Length+1, 19), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Length+1, 0), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Length+1, 41), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4Length, 1), layout.DropMalformed),
		},
	},
	{
		name: "an IPv6 header that contradicts itself is dropped", only: onlyV6,
		steps: []step{
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6Version, 0x40), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6Version, 0x00), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6Length+1, 21), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6Length, 0xff), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6Length+1, 0), layout.DropShort), // no payload at all
		},
	},
	{
		name: "an IPv4 packet that claims to be the longest there can be is dropped", only: onlyV4,
		steps: []step{refusedFor(tcp("podA:40000", "vip:80", "S").setBytes(v4Length, 0xff, 0xff), layout.DropMalformed)},
	},
	{
		name: "an IPv6 packet that claims to be the longest there can be is dropped", only: onlyV6,
		steps: []step{refusedFor(tcp("podA:40000", "vip:80", "S").setBytes(v6Length, 0xff, 0xff), layout.DropMalformed)},
	},
	{
		name: "a TCP header that is longer than its segment, or shorter than it can be, is dropped", only: onlyV4,
		steps: []step{
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4TCPOff, 0x40), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4TCPOff, 0x60), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v4TCPOff, 0x00), layout.DropMalformed),
		},
	},
	{
		name: "a TCP header over IPv6 that is longer than its segment, or shorter than it can be, is dropped", only: onlyV6,
		steps: []step{
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6TCPOff, 0x40), layout.DropMalformed),
			refusedFor(tcp("podA:40000", "vip:80", "S").setByte(v6TCPOff, 0xf0), layout.DropMalformed),
		},
	},
	{
		name: "what the host sends is its business, however odd",
		steps: []step{
			leftAlone("to_hep", headless(protoTCP, 10)),
			leftAlone("to_hep", udp("node1:40000", "client:53").data(200).cut(ethLen+80)),
			leftAlone("to_tunnel", headless(protoUDP, 3)),
		},
	},
	{
		name: "what comes by the wire broken is dropped",
		steps: []step{
			{at: "from_hep", send: headless(protoTCP, 10), want: dropped, counted: counters{layout.DropShort}},
			{
				at: "from_hep", send: udp("client:40000", "node1:53").data(200).cut(ethLen + 80),
				want: dropped, counted: counters{layout.DropMalformed},
			},
			{at: "from_tunnel", send: headless(protoUDP, 3), want: dropped, counted: counters{layout.DropShort}},
		},
	},
}
