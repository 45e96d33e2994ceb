// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/config"
)

// globals is what the agent knows of cali_globals2. The bank, the epoch and the end of the adoption
// window are not part of it: they change by rules of their own.
type globals struct {
	tunnelIfindex uint32
	tunnelMTU     uint32
	natIn, natOut uint32 // of the pair for host traffic; 0 unless it may be used
	podMTU        uint16
	host4, host6  netip.Addr
	underlay6     bool
	sockets       bool // balanced at connect time
	cfg           *config.Config
}

// write sets the fields. An own address that is not known (yet) does not replace one that was.
func (v globals) write(g *layout.Globals) {
	g.TunnelIfindex = v.tunnelIfindex
	g.TunnelMTU = v.tunnelMTU
	g.PodMTU = v.podMTU
	g.NatinIfindex, g.NatoutIfindex = v.natIn, v.natOut
	g.VNI = v.cfg.VXLANVNI
	g.VXLANPortBE = layout.PortBE(v.cfg.VXLANPort)
	g.PSNATStart = v.cfg.SourceNATPorts.First
	g.PSNATCount = uint16(v.cfg.SourceNATPorts.Count())
	if a, err := layout.AddrFrom[layout.AddrV4](v.host4); v.host4.IsValid() && err == nil {
		g.HostIP4 = a.W[0]
	}
	if a, err := layout.AddrFrom[layout.AddrV6](v.host6); v.host6.IsValid() && err == nil {
		g.HostIP6 = a.W
	}
	g.Flags = 0
	if v.underlay6 {
		g.Flags |= uint32(layout.GFUnderlayV6)
	}
	if v.sockets {
		g.Flags |= uint32(layout.GFCTLB)
	}
	if v.cfg.IPv4Enabled {
		g.Flags |= uint32(layout.GFV4)
	}
	if v.cfg.IPv6Enabled {
		g.Flags |= uint32(layout.GFV6)
	}
}
