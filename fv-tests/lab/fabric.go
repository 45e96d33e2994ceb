// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The router namespace joins everything: one bridge for each node segment (its address is the
// nodes' gateway), one link to each outside client.
const (
	nodeBridge    = "br-nodes"
	uplink2Bridge = "br-second"
	podTable      = 100 // the router's routes to pods, for RoutePodsFor
)

func (l *Lab) router() Namespace { return l.namespace("router") }

func (l *Lab) namespace(place string) Namespace {
	return Namespace("fl-" + l.Name + "-" + place)
}

// buildFabric makes the router and the outside clients.
func (l *Lab) buildFabric() error {
	if err := l.router().create(); err != nil {
		return err
	}
	if err := l.router().sysctls(map[string]string{
		"net/ipv4/ip_forward":             "1",
		"net/ipv6/conf/all/forwarding":    "1",
		"net/ipv4/conf/all/rp_filter":     "0", // inherited from the machine, and floods have any source
		"net/ipv4/conf/default/rp_filter": "0",
	}); err != nil {
		return err
	}
	h, err := l.router().handle()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := l.addBridge(h, nodeBridge, nodeNet4, nodeNet6); err != nil {
		return err
	}
	if l.Options.SecondUplink {
		if err := l.addBridge(h, uplink2Bridge, uplink2Net4, uplink2Net6); err != nil {
			return err
		}
	}
	if l.Options.VLAN != 0 {
		if err := addVLAN(h, nodeBridge, l.Options.VLAN, routerIn(vlanNet4), routerIn(vlanNet6)); err != nil {
			return fmt.Errorf("router: %w", err)
		}
	}
	for k := 1; k <= l.Options.Outside; k++ {
		if err := l.addClient(h, k); err != nil {
			return err
		}
	}
	for _, p := range []netip.Prefix{ExternalNet4, ExternalNet6, LoadBalancerNet4, LoadBalancerNet6} {
		if err := l.RouteVia(p, 1); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) addBridge(h *netlink.Handle, name string, v4, v6 netip.Prefix) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: l.Options.MTU, HardwareAddr: macFor(name)}}
	if err := h.LinkAdd(br); err != nil {
		return fmt.Errorf("router: bridge %s: %w", name, err)
	}
	return configure(h, name, netip.PrefixFrom(routerIn(v4), v4.Bits()), netip.PrefixFrom(routerIn(v6), v6.Bits()))
}

// addClient makes the k-th outside client with its link to the router.
func (l *Lab) addClient(router *netlink.Handle, k int) error {
	v4, v6 := OutsideNets(k)
	name := fmt.Sprintf("out%d", k)
	c := &Client{
		Place: Place{
			Name: name, Namespace: l.namespace(name), IPv4: nth(v4, 10), IPv6: nth(v6, 16),
			Dir: filepath.Join(l.dir(), name),
		},
		Gateway4: routerIn(v4), Gateway6: routerIn(v6),
	}
	if err := c.Namespace.create(); err != nil {
		return err
	}
	h, err := c.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	err = addVeth(router, vethSpec{
		name: name, mtu: l.Options.OutsideMTU, mac: macFor("router/" + name),
		peer: uplinkName, peerMAC: macFor(name), peerNamespace: c.Namespace,
	})
	if err != nil {
		return fmt.Errorf("client %s: %w", name, err)
	}
	if err := configure(router, name, netip.PrefixFrom(c.Gateway4, 24), netip.PrefixFrom(c.Gateway6, 64)); err != nil {
		return fmt.Errorf("client %s: %w", name, err)
	}
	if err := configure(h, uplinkName, netip.PrefixFrom(c.IPv4, 24), netip.PrefixFrom(c.IPv6, 64)); err != nil {
		return fmt.Errorf("client %s: %w", name, err)
	}
	for _, gw := range []netip.Addr{c.Gateway4, c.Gateway6} {
		if err := addRoute(h, uplinkName, netip.Prefix{}, gw, false); err != nil {
			return fmt.Errorf("client %s: %w", name, err)
		}
	}
	l.Clients = append(l.Clients, c)
	return nil
}

// ForgetNeighbour makes the router ask anew where an address of the nodes' segment is, as a gratuitous
// ARP or an unsolicited advertisement of its new owner would.
func (l *Lab) ForgetNeighbour(addr netip.Addr) error {
	h, err := l.router().handle()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(nodeBridge)
	if err != nil {
		return fmt.Errorf("router: %w", err)
	}
	err = h.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: addr.AsSlice()})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("router: forget %s: %w", addr, err)
	}
	return nil
}

// RouteVia makes the router send a prefix to a node, counted from 1: how external and load balancer
// addresses reach the cluster. An existing route for the prefix is replaced.
func (l *Lab) RouteVia(dst netip.Prefix, node int) error {
	h, err := l.router().handle()
	if err != nil {
		return err
	}
	defer h.Close()
	gateway := nodeAddress(node, dst.Addr().Is6())
	if err := addRoute(h, nodeBridge, dst, gateway, false); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	return nil
}

// RouteViaClient makes the router send a prefix to an outside client.
func (l *Lab) RouteViaClient(dst netip.Prefix, c *Client) error {
	h, err := l.router().handle()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := addRoute(h, c.Name, dst, c.Address(dst.Addr().Is6()), false); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	return nil
}

// RoutePodsFor makes the router know the pods' addresses, but only for what a client sends: answers to
// pods that are not masqueraded. Everybody else's packets to pods still need the overlay.
func (l *Lab) RoutePodsFor(c *Client) error {
	h, err := l.router().handle()
	if err != nil {
		return err
	}
	defer h.Close()
	br, err := h.LinkByName(nodeBridge)
	if err != nil {
		return fmt.Errorf("router: %w", err)
	}
	for _, ipv6 := range []bool{false, true} {
		rule := netlink.NewRule()
		rule.Family, rule.Table, rule.Priority = unix.AF_INET, podTable, podTable
		if ipv6 {
			rule.Family = unix.AF_INET6
		}
		addr := c.Address(ipv6)
		rule.Src = ipNet(netip.PrefixFrom(addr, addr.BitLen()))
		if err := h.RuleAdd(rule); err != nil {
			return fmt.Errorf("router: rule for %s: %w", addr, err)
		}
		for _, n := range l.Nodes {
			cidr := n.PodCIDR4
			if ipv6 {
				cidr = n.PodCIDR6
			}
			err := h.RouteReplace(&netlink.Route{
				LinkIndex: br.Attrs().Index, Table: podTable, Dst: ipNet(cidr), Gw: n.Address(ipv6).AsSlice(),
			})
			if err != nil {
				return fmt.Errorf("router: route %s: %w", cidr, err)
			}
		}
	}
	return nil
}

// GatewayMAC is the link address of the router as an outside client sees it.
func (l *Lab) GatewayMAC(c *Client) (string, error) {
	h, err := l.router().handle()
	if err != nil {
		return "", err
	}
	defer h.Close()
	link, err := h.LinkByName(c.Name)
	if err != nil {
		return "", fmt.Errorf("router: interface %s: %w", c.Name, err)
	}
	return link.Attrs().HardwareAddr.String(), nil
}

// vethSpec is a pair of devices; each end is born in its own namespace, so that it gets that
// namespace's sysctls.
type vethSpec struct {
	name          string
	mtu           int
	mac           net.HardwareAddr
	peer          string
	peerMAC       net.HardwareAddr
	peerNamespace Namespace
}

// addVeth makes the pair; name stands in the handle's namespace.
func addVeth(h *netlink.Handle, s vethSpec) error {
	target, err := netns.GetFromPath(s.peerNamespace.Path())
	if err != nil {
		return fmt.Errorf("veth %s: %w", s.name, err)
	}
	defer target.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = s.name, s.mtu, s.mac
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = s.peer, s.peerMAC, uint32(s.mtu)
	veth.PeerNamespace = netlink.NsFd(int(target))
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth %s: %w", s.name, err)
	}
	return nil
}

// addVLAN makes a tagged interface on a parent and gives it addresses.
func addVLAN(h *netlink.Handle, parent string, id int, v4, v6 netip.Addr) error {
	p, err := h.LinkByName(parent)
	if err != nil {
		return fmt.Errorf("vlan %d on %s: %w", id, parent, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = fmt.Sprintf("%s.%d", parent, id), p.Attrs().Index
	if err := h.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id}); err != nil {
		return fmt.Errorf("vlan %d on %s: %w", id, parent, err)
	}
	return configure(h, attrs.Name, netip.PrefixFrom(v4, 24), netip.PrefixFrom(v6, 64))
}

// configure brings a device up and gives it addresses.
func configure(h *netlink.Handle, name string, addrs ...netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	for _, p := range addrs {
		if !p.IsValid() {
			continue
		}
		addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if err := h.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("interface %s: address %s: %w", name, p, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: set up: %w", name, err)
	}
	return nil
}

// standInMetric is that of routes which stand in for an agent's: where its own come, those are used.
const standInMetric = 9999

// addRoute sets a route; the zero prefix is the default route. Without a gateway it is a link route.
func addRoute(h *netlink.Handle, dev string, dst netip.Prefix, gateway netip.Addr, onlink bool) error {
	return addRouteMetric(h, dev, dst, gateway, onlink, 0)
}

// addStandInRoute sets a route of a lab without agents.
func addStandInRoute(h *netlink.Handle, dev string, dst netip.Prefix, gateway netip.Addr) error {
	return addRouteMetric(h, dev, dst, gateway, false, standInMetric)
}

func addRouteMetric(h *netlink.Handle, dev string, dst netip.Prefix, gateway netip.Addr, onlink bool, metric int) error {
	link, err := h.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("route %s: %w", dst, err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Priority: metric}
	if dst.IsValid() {
		r.Dst = ipNet(dst)
	} else if gateway.Is4() {
		r.Dst = &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	} else {
		r.Dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	if gateway.IsValid() {
		r.Gw = gateway.AsSlice()
	} else if dst.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	if onlink {
		r.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := h.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s via %s dev %s: %w", dst, gateway, dev, err)
	}
	return nil
}

// addNeighbour sets a permanent neighbour entry.
func addNeighbour(h *netlink.Handle, dev string, addr netip.Addr, mac net.HardwareAddr) error {
	link, err := h.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", addr, err)
	}
	err = h.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("neighbour %s on %s: %w", addr, dev, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// nodeAddress is the i-th node's address on the node segment, counted from 1.
func nodeAddress(i int, ipv6 bool) netip.Addr {
	if ipv6 {
		return nth(nodeNet6, 16+i)
	}
	return nth(nodeNet4, 10+i)
}

// mountBPF mounts a bpffs of its own.
func mountBPF(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("bpffs: %w", err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs at %s: %w", dir, err)
	}
	return nil
}
