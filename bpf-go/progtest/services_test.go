// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

func TestServices(t *testing.T) { play(t, slices.Concat(serviceFixtures, zeroSum)) }

// direct makes node2's pods reachable without the tunnel.
var direct = routeTo("podR", func(*run) maps.Route {
	return maps.Route{Flags: layout.RTWorkload | layout.RTPool, NodeID: 2, NextHop: addrOf("node2", layout.FamilyV4)}
})

// hairpin is podA asking a service whose backend it is.
var hairpin = flow{client: "podA:40000", asked: "vip:80", backend: "podA:8080", shown: "node1:40000"}

// remoteOpen opens a connection to a service whose backend is on another node.
var remoteOpen = steps{
	{
		at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
		want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
		counted: plus(newService, layout.CountRedirectTunnel),
	},
	{
		at: "from_tunnel", outer: "node2", send: toRemote.in("SA", serverISN, 1001),
		want: redirect, out: becomes(toRemote.inXlated("SA", serverISN, 1001)),
		counted: plus(viaPeer, layout.CountUnnat),
	},
	{
		at: "from_wep podA", send: toRemote.out("A", 1001, 5001),
		want: redirect, out: becomes(toRemote.outXlated("A", 1001, 5001)), marked: layout.MarkBypass,
		counted: counters{layout.CountPromoted, layout.CountDNAT, layout.CountRedirectTunnel},
	},
}

// goneFor takes a service's only backend away, and gives it another.
func goneFor(gone, next string) func(*run) {
	return func(r *run) {
		forgetBackend(gone)(r)
		svc("vip:80", protoTCP, next).replaces()(r)
	}
}

var serviceFixtures = []fixture{
	{
		name:     "a pod's connection to a service with its backend on the node goes straight from pod to pod",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: toService.open(
			toService.sends("PA", 1001, 5001),
			toService.answers("PA", 5001, 1001),
		),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | peer podB, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd established | 3/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a pod's datagram to a service goes to a backend on the node, and the first reply confirms the flow",
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:53"),
				want: redirect, out: becomes(udp("podA:40000", "podB:5353").ttl(63)), marked: layout.MarkSeen,
				counted: plus(newService, viaVeth...),
			},
			{
				at: "to_wep podB", send: udp("podA:40000", "podB:5353").ttl(63), mark: layout.MarkSeen,
				want: pass, marked: layout.MarkSeen, counted: judged,
			},
			{
				at: "from_wep podB", send: udp("podB:5353", "podA:40000").data(90),
				want: redirect, out: becomes(udp("vip:53", "podA:40000").data(90).ttl(63)),
				counted: plus(viaPeer, layout.CountPromoted, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:53").data(31),
				want: redirect, out: becomes(udp("podA:40000", "podB:5353").data(31).ttl(63)),
				counted: plus(viaPeer, layout.CountFastPath, layout.CountDNAT),
			},
		},
		entries: []string{
			"udp podA:40000 > podB:5353 => vip:53 > podA:40000 | nat-rev established | 1/1 packets | peer podB, peer podA | approved-0 approved-1",
			"udp podA:40000 > vip:53 => podA:40000 > podB:5353 | nat-fwd established | 2/0 packets | peer podB, peer podA | approved-0 approved-1",
		},
	},
	{
		name: "a datagram without a checksum is translated and still has none", only: onlyV4,
		services: []service{svc("vip:53", protoUDP, "podB:5353")},
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "vip:53").withoutSum(),
			want: redirect, out: becomes(udp("podA:40000", "podB:5353").withoutSum().ttl(63)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		keep: true,
	},
	{
		name:     "a backend of another node is reached through the tunnel, and its answer comes back by it",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: append(slices.Clone(remoteOpen), step{
			at: "from_tunnel", outer: "node2", send: toRemote.in("PA", 5001, 1001),
			want: redirect, out: becomes(toRemote.inXlated("PA", 5001, 1001)),
			counted: plus(viaPeer, layout.CountUnnat, layout.CountFastPath),
		}),
		entries: []string{
			"tcp podA:40000 > podR:8080 => vip:80 > podA:40000 | nat-rev established | 1/2 packets | tunnel, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podR:8080 | nat-fwd established | 2/0 packets | tunnel, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a backend of another node is reached by the FIB where the overlay is direct",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		prepare:  direct,
		steps: []step{
			{
				at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
				want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: plus(newService, layout.CountRedirectNeigh),
			},
			{
				at: "from_hep", send: toRemote.in("SA", serverISN, 1001),
				want: redirect, out: becomes(toRemote.inXlated("SA", serverISN, 1001)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
		},
		entries: []string{
			"tcp podA:40000 > podR:8080 => vip:80 > podA:40000 | nat-rev replied half-open | 1/1 packets | fib, peer podA | approved-0 approved-1",
			"tcp podA:40000 > vip:80 => podA:40000 > podR:8080 | nat-fwd replied half-open | 1/0 packets | fib, peer podA | approved-0 approved-1",
		},
	},
	{
		name:     "a pod that is its own backend sees the node as its client",
		services: []service{svc("vip:80", protoTCP, "podA:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: hairpin.out("S", clientISN, 0),
				want: redirect, out: becomes(hairpin.outXlated("S", clientISN, 0)),
				counted: plus(plus(newService, viaPeer...), layout.CountHairpin),
			},
			{
				at: "from_wep podA", send: hairpin.in("SA", serverISN, 1001),
				want: redirect, out: becomes(hairpin.inXlated("SA", serverISN, 1001)),
				counted: plus(viaPeer, layout.CountUnnat),
			},
			{
				at: "from_wep podA", send: hairpin.out("A", 1001, 5001),
				want: redirect, out: becomes(hairpin.outXlated("A", 1001, 5001)),
				counted: plus(viaPeer, layout.CountPromoted, layout.CountDNAT),
			},
		},
		entries: []string{
			"tcp node1:40000 > podA:8080 => vip:80 > podA:40000 | nat-rev established | 1/1 packets | peer podA, peer podA | approved-0 approved-1 hairpin snat",
			"tcp podA:40000 > vip:80 => node1:40000 > podA:8080 | nat-fwd established | 2/0 packets | peer podA, peer podA | approved-0 approved-1 hairpin snat",
		},
	},
	{
		name:     "a SYN to a service without backends is answered by a reset from the service's address",
		services: []service{svc("vip:80", protoTCP)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("podA:40000", "vip:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropNoBackend),
		}},
	},
	{
		name:     "a datagram to a service without backends is answered by port unreachable from the service's address",
		services: []service{svc("vip:53", protoUDP)},
		steps: []step{{
			at: "from_wep podA", send: udp("podA:40000", "vip:53"),
			want: redirect, out: becomes(answer("vip", portUnreachable, udp("podA:40000", "vip:53"))),
			marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropNoBackend),
		}},
	},
	{
		name:     "a refused SYN's options, extension headers and data are no part of the reset, but data is acknowledged",
		services: []service{svc("vip:80", protoTCP)},
		steps: []step{
			refusal(tcp("podA:40000", "vip:80", "S").withOptions(12).withExt(extHop, extDest).withScale(7), 0),
			refusal(tcp("podA:40001", "vip:80", "S").data(10), 10),
			refusal(tcp("podA:40002", "vip:80", "S").padded(), 0),
		},
	},
	{
		name:     "a refused datagram is quoted without what pads its frame, and may have one byte",
		services: []service{svc("vip:53", protoUDP)},
		steps: []step{
			unreachable(udp("podA:40000", "vip:53").data(1)),
			unreachable(udp("podA:40000", "vip:53").data(0)),
			unreachable(udp("podA:40000", "vip:53").withOptions(8).withExt(extDest)),
			func() step {
				s := unreachable(udp("podA:40000", "vip:53").data(4))
				s.send = s.send.padded()
				return s
			}(),
		},
	},
	{
		name:     "a SYN that is sent again keeps its backend, whatever the service has become",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			toService.syn(),
			{
				before: svc("vip:80", protoTCP, "podR:8080").replaces(),
				at:     "from_wep podA", send: toService.out("S", clientISN, 0),
				want: redirect, out: becomes(toService.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
				counted: plus(viaVeth, layout.CountDNAT),
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 2/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "another connection by a port whose SYN nobody has answered is balanced anew",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
				want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: plus(newService, layout.CountRedirectTunnel),
			},
			{
				before: svc("vip:80", protoTCP, "podB:8080").replaces(),
				at:     "from_wep podA", send: toService.out("S", 77000, 0),
				want: redirect, out: becomes(toService.outXlated("S", 77000, 0)), marked: layout.MarkSeen,
				counted: plus(plus(newService, viaVeth...), layout.CountReopened),
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "a SYN that nobody has answered is balanced anew when it is sent again and its backend has gone",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: []step{
			remoteOpen[0],
			{
				before: goneFor("podR:8080", "podB:8080"),
				at:     "from_wep podA", send: toService.out("S", clientISN, 0),
				want: redirect, out: becomes(toService.outXlated("S", clientISN, 0)), marked: layout.MarkSeen,
				counted: plus(plus(newService, viaVeth...), layout.CountReopened),
			},
		},
		keep: true,
	},
	{
		name:     "another connection by the port of an open one is balanced anew when the backend has gone",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: append(slices.Clone(remoteOpen), step{
			before: goneFor("podR:8080", "podB:8080"),
			at:     "from_wep podA", send: toService.out("S", 9_000_000, 0),
			want: redirect, out: becomes(toService.outXlated("S", 9_000_000, 0)), marked: layout.MarkSeen,
			counted: plus(plus(newService, viaVeth...), layout.CountReopened),
		}),
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "an open connection goes on with a backend that the service does not have any more",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: append(slices.Clone(remoteOpen),
			step{
				before: goneFor("podR:8080", "podB:8080"),
				at:     "from_wep podA", send: toRemote.out("PA", 1001, 5001),
				want: redirect, out: becomes(toRemote.outXlated("PA", 1001, 5001)), marked: layout.MarkBypass,
				counted: counters{layout.CountFastPath, layout.CountDNAT, layout.CountRedirectTunnel},
			},
			step{ // as it was sent before the answer came
				at: "from_wep podA", send: toRemote.out("S", clientISN, 0),
				want: redirect, out: becomes(toRemote.outXlated("S", clientISN, 0)), marked: layout.MarkBypass,
				counted: counters{layout.CountDNAT, layout.CountRedirectTunnel},
			}),
		keep: true,
	},
	{
		name:     "a SYN by the port of an open connection is the backend's to answer while the service has it",
		services: []service{svc("vip:80", protoTCP, "podR:8080")},
		steps: append(slices.Clone(remoteOpen), step{
			at: "from_wep podA", send: toRemote.out("S", 9_000_000, 0),
			want: redirect, out: becomes(toRemote.outXlated("S", 9_000_000, 0)), marked: layout.MarkBypass,
			counted: counters{layout.CountDNAT, layout.CountRedirectTunnel},
		}),
		keep: true,
	},
	{
		name:     "a frontend that counts backends which are not there drops and says so",
		services: []service{svc("vip:80", protoTCP, "podB:8080").withoutBackends()},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: dropped, counted: counters{layout.DropBackendMissing},
		}},
	},
	{
		name:     "a service of one protocol is none of another's, and another port is no service",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			{
				at: "from_wep podA", send: udp("podA:40000", "vip:80"),
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
			},
			{
				at: "from_wep podA", send: tcp("podA:40000", "vip:81", "S"),
				want: pass, marked: layout.MarkStack, counted: plus(newFlow, toStack...),
			},
		},
		entries: []string{
			"tcp podA:40000 > vip:81 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
			"udp podA:40000 > vip:80 | normal new half-open | 1/0 packets | stack, stack podA | approved-0 approved-1 via-stack",
		},
	},
	{
		name:     "internal traffic policy Local uses the node's backends only",
		services: []service{svc("vip:80", protoTCP, "podR:8080").with(layout.FEITPLocal).locally("podB:8080")},
		steps:    []step{toService.syn()},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "internal traffic policy Local without a backend on the node drops, it does not refuse",
		services: []service{svc("vip:80", protoTCP, "podR:8080").with(layout.FEITPLocal | layout.FEDropNoLocal)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: dropped, counted: counters{layout.DropNoLocalBackend},
		}},
	},
	{
		name:     "internal traffic policy Local without any backend refuses",
		services: []service{svc("vip:80", protoTCP).with(layout.FEITPLocal)},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"),
			want: redirect, out: becomes(resetFor(tcp("podA:40000", "vip:80", "S"))), marked: layout.MarkBypass,
			counted: plus(sentRST, layout.DropNoBackend),
		}},
	},
	{
		name:     "SCTP is translated where the port stays the same",
		services: []service{svc("vip:80", protoSCTP, "podB:80")},
		steps: []step{{
			at: "from_wep podA", send: sctp("podA:40000", "vip:80"),
			want: redirect, out: becomes(sctp("podA:40000", "podB:80").ttl(63)), marked: layout.MarkSeen,
			counted: plus(newService, viaVeth...),
		}},
		entries: []string{
			"sctp podA:40000 > podB:80 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"sctp podA:40000 > vip:80 => podA:40000 > podB:80 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
	{
		name:     "SCTP to a backend on another port is dropped: its checksum can not be patched",
		services: []service{svc("vip:80", protoSCTP, "podB:8080")},
		steps: []step{{
			at: "from_wep podA", send: sctp("podA:40000", "vip:80"),
			want: dropped, counted: plus(newFlow, layout.CountServiceNew, layout.DropRewrite),
		}},
		keep: true,
	},
	{
		name:     "policy that denies keeps a pod from a service, and leaves no entry",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{{
			at: "from_wep podA", send: tcp("podA:40000", "vip:80", "S"), deny: true,
			want: dropped, counted: counters{layout.CountServiceNew, layout.DropPolicy},
		}},
	},
	{
		name:     "policy that denies keeps a service's client out of a backend",
		services: []service{svc("vip:80", protoTCP, "podB:8080")},
		steps: []step{
			toService.syn(),
			{
				at: "to_wep podB", send: toService.outXlated("S", clientISN, 0), mark: layout.MarkSeen, deny: true,
				want: dropped, counted: counters{layout.DropPolicy},
			},
		},
		entries: []string{
			"tcp podA:40000 > podB:8080 => vip:80 > podA:40000 | nat-rev new half-open | 1/0 packets | peer podB, peer podA | approved-0",
			"tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | peer podB, peer podA | approved-0",
		},
	},
}

// refusal is a SYN to a service without backends and the reset that answers it.
func refusal(syn packet, data uint32) step {
	reset := resetFor(tcp(syn.src, syn.dst, "S"))
	reset.ack += data
	return step{
		at: "from_wep podA", send: syn, want: redirect, out: &reset, marked: layout.MarkBypass,
		counted: plus(sentRST, layout.DropNoBackend),
	}
}

// unreachable is a datagram to a service without backends and the error that answers it.
func unreachable(p packet) step {
	return step{
		at: "from_wep podA", send: p, want: redirect, out: becomes(answer("vip", portUnreachable, p)),
		marked: layout.MarkBypass, counted: plus(sentICMP, layout.DropNoBackend),
	}
}

// zeroSum are datagrams to a service whose checksum comes out as zero behind the translation, one for each family.
var zeroSum = func() []fixture {
	var both []fixture
	for _, f := range []struct {
		only family
		in   layout.Family
		sum  int // where the checksum stands
	}{{onlyV4, layout.FamilyV4, 20 + 6}, {onlyV6, layout.FamilyV6, 40 + 6}} {
		behind := udp("podA:40000", "podB:5353").starting(1).ttl(63)
		// The word that is missing to all ones is what the checksum says.
		word := binary.BigEndian.Uint16(behind.l3(f.in)[f.sum:]) + 1
		both = append(both, fixture{
			name: "a datagram whose checksum comes out as zero does not become one without", only: f.only, keep: true,
			services: []service{svc("vip:53", protoUDP, "podB:5353")},
			steps: []step{{
				at: "from_wep podA", send: udp("podA:40000", "vip:53").starting(word), want: redirect,
				out: becomes(behind.starting(word).allOnes(f.in)), marked: layout.MarkSeen, counted: plus(newService, viaVeth...),
			}},
		})
	}
	return both
}()

// allOnes makes sure that the datagram's checksum is the zero that is sent as all ones (RFC 768).
func (p packet) allOnes(f layout.Family) packet {
	at := ethLen + map[layout.Family]int{layout.FamilyV4: 20, layout.FamilyV6: 40}[f] + 6
	return p.broken(func(b []byte) []byte {
		if sum := binary.BigEndian.Uint16(b[at:]); sum != 0 && sum != 0xffff {
			panic("the checksum is not zero")
		}
		b[at], b[at+1] = 0xff, 0xff
		return b
	})
}
