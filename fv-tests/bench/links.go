// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func ipNet(a netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
}

func (n *namespace) up(name string) error {
	link, err := n.nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := n.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// setUpNode turns forwarding on and gives the node its uplink, one end of a veth pair whose other end
// stays unused beside it.
func (n *namespace) setUpNode() error {
	err := inNamespace(n.handle, func() error {
		settings := map[string]string{
			"net/ipv4/ip_forward":              "1",
			"net/ipv6/conf/all/forwarding":     "1",
			"net/ipv6/conf/default/forwarding": "1",
		}
		// The kernel's conntrack has room for some seconds of a benchmark's connections, not for the minutes
		// that it remembers them.
		for _, name := range []string{"tcp_timeout_time_wait", "udp_timeout"} {
			path := "net/netfilter/nf_conntrack_" + name
			if _, err := os.Stat(filepath.Join("/proc/sys", path)); err == nil {
				settings[path] = "10"
			}
		}
		return setSysctls(settings)
	})
	if err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: uplink}, PeerName: "wire0"}
	if err := n.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add uplink: %w", err)
	}
	for _, name := range []string{uplink, "wire0"} {
		if err := n.up(name); err != nil {
			return err
		}
	}
	for f, bits := range map[family]int{4: 24, 6: 64} {
		for _, a := range nodeSources(f) {
			if err := n.address(uplink, a, bits); err != nil {
				return err
			}
		}
		if err := n.defaultRoute(f); err != nil {
			return err
		}
	}
	return nil
}

// defaultRoute leads to a gateway that is not there, but whose MAC is known: what the node sends to an
// address that no rule and no program serves leaves, as on any node.
func (n *namespace) defaultRoute(f family) error {
	link, err := n.nl.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("find %s: %w", uplink, err)
	}
	index, gateway := link.Attrs().Index, addrPlus(nodeAddr[f], 252)
	neigh := &netlink.Neigh{LinkIndex: index, IP: gateway.AsSlice(), HardwareAddr: hostMAC, State: netlink.NUD_PERMANENT}
	if err := n.nl.NeighSet(neigh); err != nil {
		return fmt.Errorf("add neighbour %s: %w", gateway, err)
	}
	route := &netlink.Route{LinkIndex: index, Dst: ipNet(zeroAddr(f), 0), Gw: gateway.AsSlice()}
	if err := n.nl.RouteReplace(route); err != nil {
		return fmt.Errorf("add default route via %s: %w", gateway, err)
	}
	return nil
}

func (n *namespace) address(link string, a netip.Addr, bits int) error {
	l, err := n.nl.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find %s: %w", link, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(a, bits)}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := n.nl.AddrReplace(l, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", a, link, err)
	}
	return nil
}

// addPod joins a pod's namespace to the node: a veth pair, the pod's addresses, a default route
// through a link-local gateway whose MAC is known to both ends for good.
func (s *site) addPod(p pod) error {
	veth := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: p.host, HardwareAddr: hostMAC},
		PeerName:         podInterface,
		PeerHardwareAddr: p.mac,
		PeerNamespace:    netlink.NsFd(int(p.namespace.handle)),
	}
	if err := s.node.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth %s: %w", p.host, err)
	}
	if err := s.node.up(p.host); err != nil {
		return err
	}
	if err := p.namespace.up(podInterface); err != nil {
		return err
	}
	eth0, err := p.namespace.nl.LinkByName(podInterface)
	if err != nil {
		return err
	}
	index := eth0.Attrs().Index
	for _, a := range p.addrs {
		if err := p.namespace.address(podInterface, a, a.BitLen()); err != nil {
			return err
		}
	}
	for f, gateway := range gateways {
		neigh := &netlink.Neigh{LinkIndex: index, IP: gateway.AsSlice(), HardwareAddr: hostMAC, State: netlink.NUD_PERMANENT}
		if err := p.namespace.nl.NeighSet(neigh); err != nil {
			return fmt.Errorf("add neighbour %s: %w", gateway, err)
		}
		route := &netlink.Route{LinkIndex: index, Dst: ipNet(zeroAddr(f), 0), Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := p.namespace.nl.RouteReplace(route); err != nil {
			return fmt.Errorf("add default route via %s: %w", gateway, err)
		}
	}
	return nil
}

func zeroAddr(f family) netip.Addr {
	if f == 4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// routeToPod adds the route and the permanent neighbour that lead to a pod.
func (n *namespace) routeToPod(host string, mac net.HardwareAddr, pod netip.Addr) error {
	link, err := n.nl.LinkByName(host)
	if err != nil {
		return fmt.Errorf("find %s: %w", host, err)
	}
	index := link.Attrs().Index
	neigh := &netlink.Neigh{LinkIndex: index, IP: pod.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}
	if err := n.nl.NeighSet(neigh); err != nil {
		return fmt.Errorf("add neighbour %s: %w", pod, err)
	}
	route := &netlink.Route{LinkIndex: index, Dst: ipNet(pod, pod.BitLen()), Scope: netlink.SCOPE_LINK}
	if pod.Is6() {
		route.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := n.nl.RouteReplace(route); err != nil {
		return fmt.Errorf("add route to %s: %w", pod, err)
	}
	return nil
}
