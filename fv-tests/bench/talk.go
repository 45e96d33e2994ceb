// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/progrun"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// A talk is a whole short conversation of a client with a service, packet by packet by test runs: what
// each kind of packet costs, where the micro figures of established packets say nothing.

// step is one packet of a talk at one hook.
type step struct {
	name    string
	pod     int // 0: client's veth, 1: server's
	hook    layout.Hook
	back    bool // from server to client
	natted  bool // as seen behind the translation
	flags   tcpFlags
	seq     uint32
	ack     uint32
	payload int
}

var tcpTalk = []step{
	{name: "syn", flags: tcpFlags{syn: true}, seq: 1000},
	{name: "syn-ack", pod: 1, back: true, natted: true, flags: tcpFlags{syn: true, ack: true}, seq: 5000, ack: 1001},
	{name: "ack", flags: tcpFlags{ack: true}, seq: 1001, ack: 5001},
	{name: "request", flags: tcpFlags{ack: true}, seq: 1001, ack: 5001, payload: messageSize},
	{name: "its ack", pod: 1, back: true, natted: true, flags: tcpFlags{ack: true}, seq: 5001, ack: 1001 + messageSize},
	{name: "reply", pod: 1, back: true, natted: true, flags: tcpFlags{ack: true}, seq: 5001, ack: 1001 + messageSize, payload: messageSize},
	{name: "fin", flags: tcpFlags{ack: true, fin: true}, seq: 1001 + messageSize, ack: 5001 + messageSize},
	{name: "fin back", pod: 1, back: true, natted: true, flags: tcpFlags{ack: true, fin: true}, seq: 5001 + messageSize, ack: 1002 + messageSize},
	{name: "last ack", flags: tcpFlags{ack: true}, seq: 1002 + messageSize, ack: 5002 + messageSize},
}

var udpTalk = []step{
	{name: "request", payload: messageSize},
	{name: "reply", pod: 1, back: true, natted: true, payload: messageSize},
}

// talks measures whole conversations: many side by side, the same packet of each in turn, so that the
// kernel's clock is read over a batch.
func (b *microBuild) talks(f family, l listener, steps []step, batch int, port uint16, best map[string]time.Duration) error {
	marks := make([]uint32, batch)
	for _, s := range steps {
		program := b.prog[fmt.Sprintf("%d/%d", s.pod, s.hook)]
		before, err := program.Stats()
		if err != nil {
			return err
		}
		for i := range batch {
			client := netip.AddrPortFrom(clientAddr(f, 0), port+uint16(i))
			service := netip.AddrPortFrom(measuredVIP(10, f), l.servicePort)
			if s.natted {
				service = netip.AddrPortFrom(serverAddr[f], l.targetPort)
			}
			from, to := client, service
			if s.back {
				from, to = service, client
			}
			packet, err := microPacket(f, l.proto, from, to, s.flags, s.seq, s.ack, s.payload)
			if err != nil {
				return err
			}
			in := progrun.Input{Packet: packet}
			if s.hook == layout.HookEgress {
				in.Mark = marks[i]
			}
			out, err := progrun.Run(program, in)
			if err != nil {
				return err
			}
			if out.Verdict == 2 { // TC_ACT_SHOT
				return fmt.Errorf("%s %s: %s was dropped", f, l.name, s.name)
			}
			marks[i] = out.Mark
		}
		after, err := program.Stats()
		if err != nil {
			return err
		}
		took := (after.Runtime - before.Runtime) / time.Duration(batch)
		if old, ok := best[s.name]; !ok || took < old {
			best[s.name] = took
		}
	}
	return nil
}

// workloads writes the routes, services and preambles that a talk needs.
func (b *microBuild) workloads() error {
	h := b.hand
	for i, addrs := range [][]netip.Addr{{clientAddr(4, 0), clientAddr(6, 0)}, {serverAddr[4], serverAddr[6]}} {
		route := maps.Route{Flags: layout.RTLocal | layout.RTWorkload | layout.RTPool, Ifindex: uint32(i + 1), EPSlot: uint32(i + 1)}
		for _, a := range addrs {
			if err := h.set.Routes.Put(netip.PrefixFrom(a, a.BitLen()), route); err != nil {
				return err
			}
		}
		for _, hook := range variants.Hooks {
			p, err := b.preamble(uint32(i+1), hook)
			if err != nil {
				return err
			}
			b.prog[fmt.Sprintf("%d/%d", i, hook)] = p
		}
	}
	return fillServices(h.set, 10, 1, nil)
}

// talk compares builds by whole conversations.
func talk(all []*microBuild, turns int) error {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return err
	}
	defer stats.Close()
	for _, f := range []family{4, 6} {
		for _, c := range []struct {
			l     listener
			steps []step
		}{{listeners[listenShort], tcpTalk}, {listeners[listenUDP], udpTalk}} {
			best := make([]map[string]time.Duration, len(all))
			for turn := range turns {
				for _, i := range rand.Perm(len(all)) {
					if best[i] == nil {
						best[i] = map[string]time.Duration{}
					}
					if err := all[i].talks(f, c.l, c.steps, 20, uint16(10000+20*turn), best[i]); err != nil {
						return fmt.Errorf("%s: %w", all[i].name, err)
					}
				}
			}
			for i, b := range all {
				sum := time.Duration(0)
				line := ""
				for _, s := range c.steps {
					sum += best[i][s.name]
					line += fmt.Sprintf(" %s %d,", s.name, best[i][s.name].Nanoseconds())
				}
				fmt.Printf("  %s %-5s %-12s %d ns:%s\n", f, c.l.name, b.name, sum.Nanoseconds(), line)
			}
		}
	}
	return nil
}
