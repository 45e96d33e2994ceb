// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/sysctl"
)

// TunnelName is the overlay's device; every node has one, whatever the overlay mode, because
// NodePort traffic for another node's backend always goes through it. Its hardware address is the
// kernel's random one and must differ from node to node: a VXLAN device drops packets that show its
// own address as their source.
const TunnelName = "vxlan.calico"

// tunnelAddress is what the device carries because loose reverse-path filtering drops everything
// that enters by an interface without an address.
var tunnelAddress = netip.MustParsePrefix("169.254.1.4/32")

// TunnelSpec is what the overlay's device must look like.
type TunnelSpec struct {
	Port uint16 // UDP port, own and remote
	MTU  int    // largest inner packet
}

// EnsureTunnel creates the overlay's device or repairs it, and returns its interface index and
// whether anything was changed. Attributes that can not be changed in place mean a new device.
func EnsureTunnel(h *netlink.Handle, spec TunnelSpec) (int, bool, error) {
	changed := false
	link, err := h.LinkByName(TunnelName)
	if err != nil && !isNotFound(err) {
		return 0, false, fmt.Errorf("look up %s: %w", TunnelName, err)
	}
	if err == nil && tunnelDiffers(link, spec) != "" {
		if err := h.LinkDel(link); err != nil && !isNotFound(err) {
			return 0, false, fmt.Errorf("delete %s (%s): %w", TunnelName, tunnelDiffers(link, spec), err)
		}
		link, changed = nil, true
	}
	if link == nil || err != nil {
		if err := createTunnel(h, spec); err != nil {
			return 0, changed, err
		}
		if link, err = h.LinkByName(TunnelName); err != nil {
			return 0, true, fmt.Errorf("look up %s after creating it: %w", TunnelName, err)
		}
		changed = true
	}
	repaired, err := repairTunnel(h, link, spec)
	return link.Attrs().Index, changed || repaired, err
}

// tunnelDiffers names the attribute for which an existing device can not be kept; empty: none.
func tunnelDiffers(link netlink.Link, spec TunnelSpec) string {
	vx, ok := link.(*netlink.Vxlan)
	switch {
	case !ok:
		return "is a " + link.Type() + " device"
	case !vx.FlowBased:
		return "is not flow-based"
	case vx.Port != int(spec.Port):
		return fmt.Sprintf("has port %d instead of %d", vx.Port, spec.Port)
	case !vx.UDP6ZeroCSumRx:
		return "refuses IPv6 packets without a UDP checksum"
	case vx.Learning:
		return "learns addresses"
	}
	return ""
}

func createTunnel(h *netlink.Handle, spec TunnelSpec) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = TunnelName
	attrs.MTU = spec.MTU
	dev := &netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: int(spec.Port), UDP6ZeroCSumRx: true}
	if err := h.LinkAdd(dev); err != nil {
		return fmt.Errorf("create %s: %w", TunnelName, explainPort(h, spec.Port, err))
	}
	return nil
}

// explainPort says who has the port, where that is why the kernel refuses. It does so when the device
// is made or, where the other device differs in its flags, not before it is set up.
func explainPort(h *netlink.Handle, port uint16, err error) error {
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	if holder := portHolder(h, port); holder != "" {
		return fmt.Errorf("UDP port %d is held by interface %s: %w", port, holder, err)
	}
	return fmt.Errorf("UDP port %d is in use: %w", port, err)
}

// portHolder names the VXLAN device that uses the port already: there can be one of its kind.
func portHolder(h *netlink.Handle, port uint16) string {
	links, err := h.LinkList()
	if err != nil {
		return ""
	}
	for _, l := range links {
		if vx, ok := l.(*netlink.Vxlan); ok && vx.Port == int(port) && vx.Name != TunnelName {
			return vx.Name
		}
	}
	return ""
}

// repairTunnel brings everything that can be changed on a living device to what the spec says.
func repairTunnel(h *netlink.Handle, link netlink.Link, spec TunnelSpec) (bool, error) {
	changed := false
	attrs := link.Attrs()
	if attrs.Flags&net.FlagUp == 0 {
		// No link-local address, so no duplicate address detection that would eat first packets.
		if _, err := sysctl.Set("net/ipv6/conf/"+TunnelName+"/addr_gen_mode", "1"); err != nil && !isNotFound(err) {
			return changed, err
		}
	}
	if attrs.MTU != spec.MTU {
		if err := h.LinkSetMTU(link, spec.MTU); err != nil {
			return changed, fmt.Errorf("set MTU %d on %s: %w", spec.MTU, TunnelName, err)
		}
		changed = true
	}
	did, err := sysctl.Set("net/ipv4/conf/"+TunnelName+"/rp_filter", "2")
	if err != nil {
		return changed, err
	}
	changed = changed || did
	if did, err = ensureTunnelAddress(h, link); err != nil {
		return changed, err
	}
	changed = changed || did
	if attrs.Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(link); err != nil {
			return changed, fmt.Errorf("set %s up: %w", TunnelName, explainPort(h, spec.Port, err))
		}
		changed = true
	}
	return changed, nil
}

func ensureTunnelAddress(h *netlink.Handle, link netlink.Link) (bool, error) {
	addrs, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("list addresses of %s: %w", TunnelName, err)
	}
	want := net.IPNet{IP: tunnelAddress.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
	for _, a := range addrs {
		if a.IPNet.String() == want.String() {
			return false, nil
		}
	}
	addr := &netlink.Addr{IPNet: &want, Scope: unix.RT_SCOPE_LINK}
	if err := h.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("add %s to %s: %w", tunnelAddress, TunnelName, err)
	}
	return true, nil
}

// RemoveTunnel deletes the overlay's device; an absent one is not an error.
func RemoveTunnel(h *netlink.Handle) (bool, error) {
	link, err := h.LinkByName(TunnelName)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", TunnelName, err)
	}
	if err := h.LinkDel(link); err != nil && !isNotFound(err) {
		return false, fmt.Errorf("delete %s: %w", TunnelName, err)
	}
	return true, nil
}
