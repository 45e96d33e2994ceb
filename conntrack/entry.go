// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Entry is one conntrack entry in the words of people. Leg 0 is the end that sent the first packet, leg 1 the other;
// arrays are indexed by leg. Spans are seconds. Its JSON has all of it and can be read back.
type Entry struct {
	Family   string `json:"family"` // v4, v6
	HalfOpen bool   `json:"halfOpen"`
	Proto    string `json:"protocol"`
	Zone     uint8  `json:"zone,omitempty"`
	Type     string `json:"type"`  // normal, nat-fwd, nat-rev
	State    string `json:"state"` // new, replied, established, closing, closed, reset

	Source      netip.AddrPort `json:"source"`      // leg 0's end, as this entry sees it
	Destination netip.AddrPort `json:"destination"` // leg 1's end, as this entry sees it
	// What this entry's packets are rewritten to: leg 0's for nat-fwd, leg 1's for nat-rev. Also what the twin
	// entry sees. Invalid for normal entries.
	NATSource      netip.AddrPort `json:"natSource,omitzero"`
	NATDestination netip.AddrPort `json:"natDestination,omitzero"`
	// Asked is the service that leg 0's socket asked for, where it was balanced at connect time.
	Asked netip.AddrPort `json:"asked,omitzero"`

	Flags   []string `json:"flags,omitempty"`
	Age     float64  `json:"age"`     // since the flow was created
	Idle    float64  `json:"idle"`    // since it was last seen
	Timeout float64  `json:"timeout"` // the idle time at which it is dead
	Dead    bool     `json:"dead"`

	Packets   [2]uint64 `json:"packets"`
	Bytes     [2]uint64 `json:"bytes"`
	Approved  [2]bool   `json:"approved"` // the end has judged the flow
	RuleOut   uint16    `json:"ruleOut,omitempty"`
	RuleIn    uint16    `json:"ruleIn,omitempty"`
	PolicyGen [2]uint32 `json:"policyGeneration,omitzero"`

	Ifindex   [2]uint32 `json:"ifindex"`
	Endpoint  [2]uint16 `json:"endpointSlot,omitzero"`
	Forward   [2]string `json:"forward"` // how packets of each leg leave
	Epoch     uint32    `json:"epoch"`
	ServiceID uint32    `json:"serviceID,omitempty"`
	BackendID uint32    `json:"backendID,omitempty"`
	// TunnelPeer is the node to which replies go by the tunnel.
	TunnelPeer netip.Addr `json:"tunnelPeer,omitzero"`
	Legs       [2]Leg     `json:"legs,omitzero"`

	// Problem is what in the raw entry can not be right.
	Problem string `json:"problem,omitempty"`
}

// Leg is what TCP's judge knows of the packets one end sent.
type Leg struct {
	End    uint32 `json:"end"`
	Ack    uint32 `json:"ack"`
	Window uint16 `json:"window"`
	Scale  uint8  `json:"scale"`
	Flags  string `json:"flags"`
}

// Translated tells whether the entry has a twin.
func (e *Entry) Translated() bool { return e.NATSource.IsValid() }

// decode makes an Entry of a raw one.
func decode[A layout.Address](t tableOf[A], k *layout.CTKey[A], v *layout.CTValue[A], now ticks) Entry {
	flags := layout.CTFlag(v.Flags)
	a := netip.AddrPortFrom(k.AddrA.Addr(), layout.PortOf(k.PortABE))
	b := netip.AddrPortFrom(k.AddrB.Addr(), layout.PortOf(k.PortBBE))
	if flags&layout.CTFKeySwapped != 0 {
		a, b = b, a
	}
	e := Entry{
		Family: familyName[A](), HalfOpen: t.half, Proto: protoName(k.Proto), Zone: k.Zone,
		Type: layout.CTType(v.Type).String(), State: layout.CTState(v.TCPState).String(),
		Source: a, Destination: b,
		Age:     now.seconds(now.age(v.Created)),
		Idle:    now.seconds(uint64(now.idle(v.LastSeen))),
		Timeout: now.seconds(uint64(v.Timeout)),
		Dead:    now.dead(v.LastSeen, v.Timeout),
		Packets: v.Packets, Bytes: v.Bytes,
		Approved: [2]bool{flags&layout.CTFApproved0 != 0, flags&layout.CTFApproved1 != 0},
		RuleOut:  v.RuleOut, RuleIn: v.RuleIn, PolicyGen: v.PolicyGen,
		Ifindex: v.Ifindex, Endpoint: v.EPSlot, Epoch: v.Epoch,
		Forward:   [2]string{layout.Fwd(v.Fwd[0]).String(), layout.Fwd(v.Fwd[1]).String()},
		ServiceID: v.SvcID, BackendID: v.BackendID,
	}
	if flags != 0 {
		e.Flags = strings.Split(flags.String(), ",")
	}
	if t := layout.CTType(v.Type); t == layout.CTNATFwd || t == layout.CTNATRev {
		e.NATSource = netip.AddrPortFrom(v.NATSrc.Addr(), layout.PortOf(v.NATSportBE))
		e.NATDestination = netip.AddrPortFrom(v.NATDst.Addr(), layout.PortOf(v.NATDportBE))
	}
	if layout.CTType(v.Type) == layout.CTNormal && v.NATSportBE != 0 {
		e.Asked = netip.AddrPortFrom(v.NATSrc.Addr(), layout.PortOf(v.NATSportBE))
	}
	if flags&layout.CTFTunPeer != 0 {
		e.TunnelPeer = v.TunPeer.Addr(flags&layout.CTFTunV6 != 0)
	}
	for i, l := range v.Leg {
		e.Legs[i] = Leg{l.End, l.ACK, l.Win, l.Scale, layout.LegFlag(l.Flags).String()}
	}
	switch {
	case !ordered(k.AddrA, k.AddrB, k.PortABE, k.PortBBE):
		e.Problem = "sides of the key are not in order"
	case k.Spare != 0:
		e.Problem = "spare bytes of the key are not zero"
	case v.Spare != [12]uint32{}:
		e.Problem = "spare bytes of the value are not zero"
	}
	return e
}

func familyName[A layout.Address]() string {
	var a A
	return a.Family().String()
}

// protoName is how a protocol is shown.
func protoName(p uint8) string {
	for _, known := range protocols {
		if known.number == p {
			return known.name
		}
	}
	return strconv.Itoa(int(p))
}

var protocols = []struct {
	number uint8
	name   string
}{
	{1, "icmp"},
	{6, "tcp"},
	{17, "udp"},
	{58, "icmpv6"},
	{132, "sctp"},
}
