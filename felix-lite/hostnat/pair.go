// SPDX-License-Identifier: Apache-2.0

package hostnat

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/internal/sysctl"
)

// Names of the pair's two ends.
const (
	InName  = interfaces.NATInName  // where routes lead to
	OutName = interfaces.NATOutName // where packets come out, and the programs are
)

// OutAddress stands on bpfout.cali: loose reverse-path filtering drops all that enters by an interface
// without an address.
var OutAddress = netip.MustParsePrefix("169.254.1.3/32")

// Spec is what the pair must look like.
type Spec struct {
	MTU int // the uplink's
}

// Pair is what it is. Zero: it is not there.
type Pair struct {
	In, Out int // interface indices
	OutMAC  [6]byte
}

// setting is one sysctl of an interface.
type setting struct {
	path, value string
	optional    bool // not every kernel has it
}

// quiet keeps the kernel from giving an end IPv6 addresses and from asking whether somebody has them already: the first
// packets would be lost meanwhile. To be set before the interface is up.
func quiet(name string) []setting {
	six := "net/ipv6/conf/" + name + "/"
	return []setting{{six + "addr_gen_mode", "1", true}, {six + "accept_dad", "0", true}, {six + "accept_ra", "0", true}}
}

// outSettings let in by bpfout.cali what carries a source address of this host's or a service's, and let it go on to a
// pod. Strict filtering in conf/all still gives loose filtering here: the greater of the two numbers holds.
func outSettings() []setting {
	four, six := "net/ipv4/conf/"+OutName+"/", "net/ipv6/conf/"+OutName+"/"
	return []setting{
		{four + "accept_local", "1", false}, {four + "rp_filter", "2", false}, {four + "forwarding", "1", false},
		{six + "forwarding", "1", true}, {six + "force_forwarding", "1", true},
	}
}

// Ensure creates the pair or repairs it, and reports whether anything was changed. Ends that can not be repaired in
// place, or that do not belong together, mean a new pair.
func Ensure(h *netlink.Handle, spec Spec) (Pair, bool, error) {
	in, out, why, err := find(h)
	if err != nil {
		return Pair{}, false, err
	}
	changed := false
	if why != "" {
		if changed, err = Remove(h); err != nil {
			return Pair{}, changed, err
		}
		if in, out, err = create(h, spec); err != nil {
			return Pair{}, changed, err
		}
		changed = true
	}
	for _, l := range []netlink.Link{in, out} {
		did, err := repair(h, l, spec)
		changed = changed || did
		if err != nil {
			return Pair{}, changed, err
		}
	}
	p := Pair{In: in.Attrs().Index, Out: out.Attrs().Index}
	copy(p.OutMAC[:], out.Attrs().HardwareAddr)
	return p, changed, nil
}

// find looks both ends up; why says, if not empty, for what reason they can not be used.
func find(h *netlink.Handle) (in, out netlink.Link, why string, err error) {
	if in, err = lookUp(h, InName); err != nil {
		return nil, nil, "", err
	}
	if out, err = lookUp(h, OutName); err != nil {
		return nil, nil, "", err
	}
	switch {
	case in == nil || out == nil:
		why = "an end is missing"
	case in.Type() != "veth" || out.Type() != "veth":
		why = "an end is no veth device"
	case in.Attrs().ParentIndex != out.Attrs().Index || out.Attrs().ParentIndex != in.Attrs().Index:
		why = "the ends belong to others"
	}
	return in, out, why, nil
}

// lookUp returns nil where there is no such interface.
func lookUp(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	return l, nil
}

func create(h *netlink.Handle, spec Spec) (in, out netlink.Link, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = InName, spec.MTU
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: OutName, PeerMTU: uint32(spec.MTU)}); err != nil {
		return nil, nil, fmt.Errorf("create %s and %s: %w", InName, OutName, err)
	}
	in, out, why, err := find(h)
	if err == nil && why != "" {
		err = fmt.Errorf("look up %s and %s after creating them: %s", InName, OutName, why)
	}
	return in, out, err
}

// repair brings everything that can be changed on a living end to what it should be.
func repair(h *netlink.Handle, l netlink.Link, spec Spec) (bool, error) {
	name, attrs := l.Attrs().Name, l.Attrs()
	settings := quiet(name)
	if name == OutName {
		settings = append(settings, outSettings()...)
	}
	changed, err := apply(settings)
	if err != nil {
		return changed, err
	}
	if attrs.MTU != spec.MTU {
		if err := h.LinkSetMTU(l, spec.MTU); err != nil {
			return changed, fmt.Errorf("set MTU %d on %s: %w", spec.MTU, name, err)
		}
		changed = true
	}
	if name == OutName {
		did, err := ensureAddress(h, l)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(l); err != nil {
			return changed, fmt.Errorf("set %s up: %w", name, err)
		}
		changed = true
	}
	return changed, nil
}

func apply(settings []setting) (bool, error) {
	changed := false
	for _, s := range settings {
		did, err := sysctl.Set(s.path, s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return changed, err
		}
		changed = changed || did
	}
	return changed, nil
}

func ensureAddress(h *netlink.Handle, l netlink.Link) (bool, error) {
	addrs, err := h.AddrList(l, netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("list addresses of %s: %w", OutName, err)
	}
	want := net.IPNet{IP: OutAddress.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
	for _, a := range addrs {
		if a.IPNet.String() == want.String() {
			return false, nil
		}
	}
	if err := h.AddrAdd(l, &netlink.Addr{IPNet: &want, Scope: unix.RT_SCOPE_LINK}); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("add %s to %s: %w", OutAddress, OutName, err)
	}
	return true, nil
}

// Remove deletes whatever carries one of the pair's names, and reports whether there was anything.
func Remove(h *netlink.Handle) (bool, error) {
	removed := false
	for _, name := range []string{InName, OutName} {
		l, err := lookUp(h, name)
		if err != nil {
			return removed, err
		}
		if l == nil {
			continue // it went with its peer, or never was
		}
		if err := h.LinkDel(l); err != nil && !isNotFound(err) {
			return removed, fmt.Errorf("delete %s: %w", name, err)
		}
		removed = true
	}
	return removed, nil
}

// Present reports whether an end of the pair is there.
func Present(h *netlink.Handle) (bool, error) {
	for _, name := range []string{InName, OutName} {
		if l, err := lookUp(h, name); l != nil || err != nil {
			return l != nil, err
		}
	}
	return false, nil
}

// isNotFound recognises the ways in which the kernel says that an interface is gone.
func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return err != nil && (errors.As(err, &notFound) || errors.Is(err, unix.ENODEV))
}
