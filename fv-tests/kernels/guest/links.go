// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// world is the network of the smoke test.
type world struct {
	fabric, outside *namespace
	nodes           []*node
	servers         []*echoServer
}

// buildWorld makes all namespaces and interfaces, and the routes that an agent would make. There
// are no programs yet.
func buildWorld() (*world, error) {
	w := &world{nodes: []*node{describeNode(1, "node-a", "a1", "a2"), describeNode(2, "node-b", "b1")}}
	if err := w.build(); err != nil {
		w.close()
		return nil, fmt.Errorf("build network: %w", err)
	}
	return w, nil
}

func (w *world) build() (err error) {
	if w.fabric, err = newNamespace("fabric"); err != nil {
		return err
	}
	if err := w.fabric.do(makeBridge); err != nil {
		return err
	}
	if w.outside, err = newNamespace("outside"); err != nil {
		return err
	}
	if err := w.plug(w.outside, "outside", outsideAddr); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if n.ns, err = newNamespace(n.name); err != nil {
			return err
		}
		if err := w.plug(n.ns, n.name, n.addrs); err != nil {
			return err
		}
		if err := n.ns.do(n.makeTunnel); err != nil {
			return err
		}
		for _, p := range n.pods {
			if err := n.addPod(p); err != nil {
				return err
			}
		}
	}
	for _, n := range w.nodes {
		for _, other := range w.nodes {
			if other != n {
				if err := n.ns.do(func() error { return n.routeTo(other) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *world) close() {
	for _, s := range w.servers {
		s.close()
	}
	for _, n := range w.nodes {
		for _, p := range n.pods {
			closeNamespace(p.ns)
		}
		closeNamespace(n.ns)
	}
	closeNamespace(w.outside)
	closeNamespace(w.fabric)
}

func closeNamespace(n *namespace) {
	if n != nil {
		n.close()
	}
}

func makeBridge() error {
	bridge := &netlink.Bridge{LinkAttrs: attrs("br0", fabricMTU)}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	return setUp("br0")
}

// plug joins a namespace to the fabric by an eth0 with the given addresses.
func (w *world) plug(ns *namespace, port string, addresses addrs) error {
	err := w.fabric.do(func() error {
		veth := &netlink.Veth{LinkAttrs: attrs(port, fabricMTU), PeerName: uplink, PeerNamespace: netlink.NsFd(int(ns.handle))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make %s: %w", port, err)
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(veth, bridge); err != nil {
			return fmt.Errorf("plug in %s: %w", port, err)
		}
		return setUp(port)
	})
	if err != nil {
		return err
	}
	return ns.do(func() error {
		if err := setUp(uplink); err != nil {
			return err
		}
		return addAddresses(uplink, netip.PrefixFrom(addresses.v4, 24), netip.PrefixFrom(addresses.v6, 64))
	})
}

// makeTunnel makes the flow-based VXLAN device, and lets the node forward.
func (n *node) makeTunnel() error {
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := sysctl(name, "1"); err != nil {
			return err
		}
	}
	vxlan := &netlink.Vxlan{LinkAttrs: attrs(tunnel, podMTU), FlowBased: true, Port: vxlanPort, UDP6ZeroCSumRx: true}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return fmt.Errorf("make %s: %w", tunnel, err)
	}
	if err := sysctl("net/ipv4/conf/"+tunnel+"/rp_filter", "2"); err != nil {
		return err
	}
	if err := setUp(tunnel); err != nil {
		return err
	}
	link, err := netlink.LinkByName(tunnel)
	if err != nil {
		return err
	}
	// Of link scope: no packet for beyond the node may take it as its source.
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(hostPrefix(tunnelAddr4)), Scope: unix.RT_SCOPE_LINK}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", tunnelAddr4, tunnel, err)
	}
	n.tunnelIndex = link.Attrs().Index
	up, err := netlink.LinkByName(uplink)
	if err != nil {
		return err
	}
	n.uplinkIndex = up.Attrs().Index
	for _, gateway := range []netip.Addr{tunnelGateway4, tunnelGateway6} {
		if err := addNeighbour(link, gateway, tunnelMAC); err != nil {
			return err
		}
	}
	return nil
}

// addPod makes a pod's namespace and interface pair, as a CNI plugin does, and the node's route and
// neighbour entries, as the agent does.
func (n *node) addPod(p *pod) (err error) {
	if p.ns, err = newNamespace(p.name); err != nil {
		return err
	}
	err = n.ns.do(func() error {
		veth := &netlink.Veth{LinkAttrs: attrs(p.host, podMTU), PeerName: uplink,
			PeerHardwareAddr: p.mac, PeerMTU: podMTU, PeerNamespace: netlink.NsFd(int(p.ns.handle))}
		veth.HardwareAddr = hostMAC
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make %s: %w", p.host, err)
		}
		if err := setUp(p.host); err != nil {
			return err
		}
		p.index = veth.Attrs().Index
		for _, a := range p.addrs.both() {
			if err := addNeighbour(veth, a, p.mac); err != nil {
				return err
			}
			if err := addRoute(&netlink.Route{LinkIndex: p.index, Dst: ipNet(hostPrefix(a)), Scope: netlink.SCOPE_LINK}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.ns.do(p.configure)
}

// configure is the pod's own side.
func (p *pod) configure() error {
	link, err := netlink.LinkByName(uplink)
	if err != nil {
		return err
	}
	if err := setUp(uplink); err != nil {
		return err
	}
	if err := addAddresses(uplink, hostPrefix(p.addrs.v4), hostPrefix(p.addrs.v6)); err != nil {
		return err
	}
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		if err := addNeighbour(link, gateway, hostMAC); err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if gateway.Is4() {
			route.Dst = &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		} else {
			route.Dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		}
		if err := addRoute(route); err != nil {
			return err
		}
	}
	return nil
}

// routeTo lets the kernel's own packets to another node's pods go by the tunnel device; the program
// at its egress gives them their key.
func (n *node) routeTo(other *node) error {
	for i, cidr := range other.cidrs {
		gateway := []netip.Addr{tunnelGateway4, tunnelGateway6}[i]
		route := &netlink.Route{LinkIndex: n.tunnelIndex, Dst: ipNet(cidr), Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := addRoute(route); err != nil {
			return err
		}
	}
	return nil
}

func attrs(name string, mtu int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, mtu
	return a
}

func addAddresses(name string, prefixes ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
			return fmt.Errorf("add address %s to %s: %w", p, name, err)
		}
	}
	return nil
}

func addNeighbour(link netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	neighbour := &netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}
	if err := netlink.NeighSet(neighbour); err != nil {
		return fmt.Errorf("add neighbour %s: %w", addr, err)
	}
	return nil
}

func addRoute(route *netlink.Route) error {
	route.Protocol = routeProtocol
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add route to %s: %w", route.Dst, err)
	}
	return nil
}
