// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
)

// Rows of the counters of what carries the node's own traffic.
const (
	loSlot  = 20
	natSlot = 21
)

// startFallback gives the node its pair and the service's routes into it, as the agent does where this
// host's traffic is not balanced at connect time.
func (n *node) startFallback() error {
	return n.ns.do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		pair, _, err := hostnat.Ensure(h, hostnat.Spec{MTU: fabricMTU})
		if err != nil {
			return err
		}
		n.extra = []slotted{
			{attach.Interface{Ifindex: 1, Name: "lo", Class: layout.ClassLo}, loSlot, 0},
			{attach.Interface{Ifindex: pair.Out, Name: hostnat.OutName, Class: layout.ClassNAT}, natSlot, 0},
		}
		if err := n.attach(n.extra); err != nil {
			return err
		}
		if err := n.dp.set.Globals.Change(func(g *layout.Globals) {
			g.NatinIfindex, g.NatoutIfindex = uint32(pair.In), uint32(pair.Out)
			g.RouteEpoch++ // ways that were chosen without the pair
		}); err != nil {
			return err
		}
		in, err := netlink.LinkByName(hostnat.InName)
		if err != nil {
			return err
		}
		for i, gateway := range []netip.Addr{hostnat.Gateway4, hostnat.Gateway6} {
			if err := addNeighbour(in, gateway, net.HardwareAddr(pair.OutMAC[:])); err != nil {
				return err
			}
			if err := addRoute(&netlink.Route{LinkIndex: pair.In, Dst: ipNet(hostPrefix(serviceVIP.both()[i])), Gw: gateway.AsSlice(),
				Src: n.addrs.both()[i].AsSlice(), Flags: int(netlink.FLAG_ONLINK)}); err != nil {
				return fmt.Errorf("route of the service: %w", err)
			}
		}
		return nil
	})
}

// fallbackPaths are what a node asks of services, by the pair.
var fallbackPaths = []smokePath{
	{"node to service, backend on the node", "node-a", toVIP(portLocal), "a2", "", layout.CountRedirectNatout, 0},
	{"node to service, backend on the other node", "node-a", toVIP(portRemote), "b1", "", layout.CountTunnelKey, 0},
	{"node to service, backend is itself", "node-a", toVIP(portHost), "node-a", "", layout.CountUnnat, 0},
	{"node to service without backends", "node-a", toVIP(portEmpty), "", "", layout.DropNoBackend, 0},
	{"node to its own NodePort, backend on the node", "node-a", toNode(0, nodePort), "a2", "", layout.CountRedirectNatout, 0},
	{"node to its own NodePort, backend on the other node", "node-a", toNode(0, nodePortFar), "b1", "", layout.CountTunnelKey, 0},
	{"node to the other node's NodePort", "node-a", toNode(1, nodePort), "a2", "", layout.CountDNAT, 0},
}
