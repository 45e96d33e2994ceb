// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// Micro figures: the kernel runs the programs on a packet of an established, translated flow again
// and again (BPF_PROG_TEST_RUN). No traffic, no caches shared with anything: a floor, and steady
// enough to judge a change of a few instructions even on a busy machine, by the fastest of many runs.

// microRepeat is how often the kernel runs a packet by itself: fewer than its hop limit allows.
const microRepeat = 200

// bouncing makes two flows of which each is translated into the other, so that a packet that is run
// again and again is an established packet every time.
func bouncing[A layout.Address](set *maps.Conntrack[A], proto uint8, client, vip, backend netip.AddrPort, now uint32) error {
	src, err := layout.AddrFrom[A](client.Addr())
	if err != nil {
		return err
	}
	for _, hop := range [][2]netip.AddrPort{{vip, backend}, {backend, vip}} {
		from, err := layout.AddrFrom[A](hop[0].Addr())
		if err != nil {
			return err
		}
		to, err := layout.AddrFrom[A](hop[1].Addr())
		if err != nil {
			return err
		}
		key, swapped := ctKey(src, from, layout.PortBE(client.Port()), layout.PortBE(hop[0].Port()), proto)
		flags := layout.CTFApproved0 | layout.CTFApproved1
		if swapped {
			flags |= layout.CTFKeySwapped
		}
		value := layout.CTValue[A]{
			LastSeen: now, Timeout: 1 << 24, Flags: uint32(flags), Type: uint8(layout.CTNATFwd),
			TCPState: uint8(layout.CTEstablished), Fwd: [2]uint8{uint8(layout.FwdPeer), uint8(layout.FwdPeer)},
			Epoch: 1, Ifindex: [2]uint32{1, 1}, NATSrc: src, NATDst: to,
			NATSportBE: layout.PortBE(client.Port()), NATDportBE: layout.PortBE(hop[1].Port()),
		}
		if err := set.Confirmed.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

// ctKey makes a flow's key as the datapath does: the end that compares lower, by raw words, is first.
func ctKey[A layout.Address](src, dst A, sport, dport uint16, proto uint8) (layout.CTKey[A], bool) {
	if lower(dst, src) || src == dst && dport < sport {
		return layout.CTKey[A]{AddrA: dst, AddrB: src, PortABE: dport, PortBBE: sport, Proto: proto}, true
	}
	return layout.CTKey[A]{AddrA: src, AddrB: dst, PortABE: sport, PortBBE: dport, Proto: proto}, false
}

func lower[A layout.Address](a, b A) bool {
	x, y := layout.AnyFrom(a.Addr()), layout.AnyFrom(b.Addr())
	for i := range x.W {
		if x.W[i] != y.W[i] {
			return x.W[i] < y.W[i]
		}
	}
	return false
}

// tcpFlags of a built packet.
type tcpFlags struct{ syn, ack, fin bool }

// microPacket is a packet from one address to another.
func microPacket(f family, proto uint8, client, vip netip.AddrPort, flags tcpFlags, seq, ackSeq uint32, payload int) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr(clientMAC), DstMAC: hostMAC}
	parts := []gopacket.SerializableLayer{eth}
	var network gopacket.NetworkLayer
	ipProto := layers.IPProtocolUDP
	if proto == protoTCP {
		ipProto = layers.IPProtocolTCP
	}
	if f == 4 {
		ip := &layers.IPv4{Version: 4, TTL: 255, Protocol: ipProto, SrcIP: client.Addr().AsSlice(), DstIP: vip.Addr().AsSlice()}
		eth.EthernetType, network = layers.EthernetTypeIPv4, ip
		parts = append(parts, ip)
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: ipProto, SrcIP: client.Addr().AsSlice(), DstIP: vip.Addr().AsSlice()}
		eth.EthernetType, network = layers.EthernetTypeIPv6, ip
		parts = append(parts, ip)
	}
	if proto == protoTCP {
		tcp := &layers.TCP{SrcPort: layers.TCPPort(client.Port()), DstPort: layers.TCPPort(vip.Port()), SYN: flags.syn, ACK: flags.ack, FIN: flags.fin, Seq: seq, Ack: ackSeq, Window: 500}
		if flags.syn {
			tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}},
				{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}}}
		}
		if err := tcp.SetNetworkLayerForChecksum(network); err != nil {
			return nil, err
		}
		parts = append(parts, tcp)
	} else {
		udp := &layers.UDP{SrcPort: layers.UDPPort(client.Port()), DstPort: layers.UDPPort(vip.Port())}
		if err := udp.SetNetworkLayerForChecksum(network); err != nil {
			return nil, err
		}
		parts = append(parts, udp)
	}
	parts = append(parts, gopacket.Payload(make([]byte, payload)))
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...)
	return buf.Bytes(), err
}

// microBuild is one build under test.
type microBuild struct {
	name string
	hand *hand
	prog map[string]*ebpf.Program // by hook: main with its preamble, and so on
	best map[string]time.Duration
}

// runMicro is -micro: the builds that -build names.
func runMicro(o options) error {
	var builds []buildMode
	var names []string
	for _, build := range strings.Split(o.builds, ",") {
		if name, dir, ok := strings.Cut(build, "="); ok {
			builds, names = append(builds, parseBuild(dir)), append(names, name)
		}
	}
	return micro(builds, names, 300)
}

// micro compares builds by test runs and prints the fastest of many for each kind of packet.
func micro(builds []buildMode, names []string, turns int) error {
	var all []*microBuild
	defer func() {
		for _, b := range all {
			_ = b.hand.close()
		}
	}()
	for i, m := range builds {
		b := &microBuild{name: names[i], hand: &hand{buildMode: m}, best: map[string]time.Duration{}}
		all = append(all, b)
		if err := b.set(); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	kinds := map[string][]byte{}
	for _, f := range []family{4, 6} {
		for _, l := range []listener{listeners[listenUDP], listeners[listenRR]} {
			p, err := microPacket(f, l.proto, microClient(f), netip.AddrPortFrom(measuredVIP(10, f), l.servicePort), tcpFlags{ack: true}, 1, 1, messageSize)
			if err != nil {
				return err
			}
			kinds[fmt.Sprintf("%s %s", f, l.name)] = p
		}
	}
	for range turns {
		for _, i := range rand.Perm(len(all)) {
			if err := all[i].turn(kinds); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
		}
	}
	if err := talk(all, turns/3); err != nil {
		return err
	}
	for _, kind := range []string{"v4 udp", "v4 rr", "v6 udp", "v6 rr"} {
		for _, b := range all {
			fmt.Printf("  %-8s %-16s %d ns\n", kind, b.name, b.best[kind].Nanoseconds())
		}
	}
	return nil
}

// actRedirect is TC_ACT_REDIRECT, the verdict of a packet on the fast path.
const actRedirect = 7

func microClient(f family) netip.AddrPort { return netip.AddrPortFrom(clientAddr(f, 0), 40000) }

func (b *microBuild) turn(kinds map[string][]byte) error {
	for kind, packet := range kinds {
		verdict, took, err := b.prog["preamble"].Benchmark(packet, microRepeat, nil)
		if err != nil {
			return err
		}
		if verdict != actRedirect {
			continue // once a second an established packet also refreshes its flow's other entry
		}
		if best, ok := b.best[kind]; !ok || took < best {
			b.best[kind] = took
		}
	}
	return nil
}

// set loads the build and makes its flows.
func (b *microBuild) set() error {
	h := b.hand
	if err := h.open(); err != nil {
		return err
	}
	if err := h.install(); err != nil {
		return err
	}
	if err := h.set.Globals.Change(func(g *layout.Globals) { g.RouteEpoch, g.PodMTU = 1, 1500 }); err != nil {
		return err
	}
	now, err := h.clock.Jiffies()
	if err != nil {
		return err
	}
	for _, l := range []listener{listeners[listenUDP], listeners[listenRR]} {
		backend := func(f family) netip.AddrPort { return netip.AddrPortFrom(serverAddr[f], l.targetPort) }
		vip := func(f family) netip.AddrPort { return netip.AddrPortFrom(measuredVIP(10, f), l.servicePort) }
		if err := bouncing(h.set.ConntrackV4, l.proto, microClient(4), vip(4), backend(4), uint32(now)); err != nil {
			return err
		}
		if err := bouncing(h.set.ConntrackV6, l.proto, microClient(6), vip(6), backend(6), uint32(now)); err != nil {
			return err
		}
	}
	p, err := b.preamble(1, layout.HookIngress)
	if err != nil {
		return err
	}
	b.prog = map[string]*ebpf.Program{"preamble": p}
	return b.workloads()
}

// preamble loads a workload's preamble.
func (b *microBuild) preamble(slot uint32, hook layout.Hook) (*ebpf.Program, error) {
	cfg := layout.PreambleCfg{IfaceSlot: slot, Flags: wepFlags, EPSlot: slot, Hook: uint32(hook), FailClosed: 1, Policy: [2]uint32{1, 1}}
	for j, f := range variants.Families {
		cfg.Main[j] = variants.Variant{Hook: hook, Class: layout.ClassWEP, Family: f}.Slot(layout.SlotMain)
	}
	o, err := b.hand.load("preamble", cfg)
	if err != nil {
		return nil, err
	}
	return o.Programs["cali_preamble"], nil
}
