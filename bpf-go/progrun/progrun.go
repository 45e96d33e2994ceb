// SPDX-License-Identifier: Apache-2.0

// Package progrun runs a loaded TC program once on a built packet, through BPF_PROG_TEST_RUN, and
// gives back what it did to the packet. A program that tail-calls runs with all that it calls.
//
// Tests, and the commands that explain a verdict, call it. A run on live maps has all effects of a
// real packet but for sending it, unless the trace word of the context is set: see CBTrace.
package progrun

import (
	"fmt"
	"structs"
	"time"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Verdicts of TC programs that the datapath returns.
const (
	Unspec   int32 = -1 // TC_ACT_UNSPEC: pass, the next program runs
	OK       int32 = 0
	Shot     int32 = 2 // dropped
	Redirect int32 = 7
)

// Input is a packet with its context.
type Input struct {
	// Packet begins with the Ethernet header, at least 14 bytes.
	Packet []byte
	// Ifindex is the interface that the program is told; 0 is the loopback. It must exist in the
	// calling thread's network namespace.
	Ifindex uint32
	// IngressIfindex is where the packet came in.
	IngressIfindex uint32
	// Mark and CB are what an earlier program left. CB is indexed by layout.CB.
	Mark uint32
	CB   [5]uint32
	// GSOSize and GSOSegs make it a packet that is still to be segmented.
	GSOSize, GSOSegs uint32
	// Repeat runs the program more often and gives Output.Duration a meaning. 1 if zero.
	Repeat uint32
}

// Output is what the program made of it.
type Output struct {
	Verdict  int32
	Packet   []byte
	Mark     uint32
	CB       [5]uint32
	Ifindex  uint32
	Duration time.Duration // of one run, rounded down to nanoseconds
}

// CBFor builds the words that a preamble would hand on.
func CBFor(cfg layout.PreambleCfg, family layout.Family) [5]uint32 {
	var cb [5]uint32
	cb[layout.CBIface] = cfg.IfaceSlot
	cb[layout.CBFlags] = cfg.Flags
	cb[layout.CBPolicy] = cfg.Policy[family&1]
	cb[layout.CBEP] = cfg.EPSlot
	return cb
}

// skb is struct __sk_buff of the kernel's UAPI. Only the fields that the kernel takes from a caller
// are set; the others must be zero.
type skb struct {
	_              structs.HostLayout
	Len            uint32
	PktType        uint32
	Mark           uint32
	QueueMapping   uint32
	Protocol       uint32
	VLANPresent    uint32
	VLANTCI        uint32
	VLANProto      uint32
	Priority       uint32
	IngressIfindex uint32
	Ifindex        uint32
	TCIndex        uint32
	CB             [5]uint32
	Hash           uint32
	TCClassid      uint32
	Data           uint32
	DataEnd        uint32
	NAPIID         uint32
	Family         uint32
	RemoteIP4      uint32
	LocalIP4       uint32
	RemoteIP6      [4]uint32
	LocalIP6       [4]uint32
	RemotePort     uint32
	LocalPort      uint32
	DataMeta       uint32
	FlowKeys       uint64
	Tstamp         uint64
	WireLen        uint32
	GSOSegs        uint32
	SK             uint64
	GSOSize        uint32
	TstampType     uint32
	Hwtstamp       uint64
}

// headroom is how much longer than its input a packet may come out: tunnel headers, ICMP errors.
const headroom = 512

// Run runs the program on the packet.
func Run(program *ebpf.Program, in Input) (Output, error) {
	repeat := max(1, in.Repeat)
	var after skb
	options := ebpf.RunOptions{
		Data:    in.Packet,
		DataOut: make([]byte, len(in.Packet)+headroom),
		Context: &skb{
			Mark: in.Mark, CB: in.CB, Ifindex: in.Ifindex, IngressIfindex: in.IngressIfindex,
			GSOSize: in.GSOSize, GSOSegs: in.GSOSegs,
		},
		ContextOut: &after,
		Repeat:     repeat,
	}
	start := time.Now()
	verdict, err := program.Run(&options)
	if err != nil {
		return Output{}, fmt.Errorf("run %s on %d bytes: %w", program, len(in.Packet), err)
	}
	return Output{
		Verdict: int32(verdict), Packet: options.DataOut, Mark: after.Mark, CB: after.CB,
		Ifindex: after.Ifindex, Duration: time.Since(start) / time.Duration(repeat),
	}, nil
}
