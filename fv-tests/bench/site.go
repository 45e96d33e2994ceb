// SPDX-License-Identifier: Apache-2.0

package main

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

// A site is the place of one mode: a client pod, a node and a server pod, each a network namespace,
// the pods joined to the node by veth pairs as a CNI plugin would make them. The node routes between
// them and to an uplink that leads nowhere. All processes of the site are in cgroups below one.
type site struct {
	name   string
	client *namespace
	node   *namespace
	server *namespace
	cgroup cgroup
	bpffs  string // where the mode's maps and links are pinned; "" if it has none
}

// namespace is a named network namespace with a netlink handle in it.
type namespace struct {
	name   string
	handle netns.NsHandle
	nl     *netlink.Handle
}

func (n *namespace) path() string { return filepath.Join(netnsDir, n.name) }

const (
	netnsDir     = "/run/netns"
	netnsPrefix  = "flbench-"
	clientVeth   = "calic0"
	serverVeth   = "calis0"
	podInterface = "eth0"
	uplink       = "eth0"
)

var (
	hostMAC   = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	clientMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x10}
	serverMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x40}
	gateways  = map[family]netip.Addr{4: netip.MustParseAddr("169.254.1.1"), 6: netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")}
)

// newSite makes the namespaces and links of a site. The caller closes it, also after an error.
func newSite(name string) (*site, error) {
	s := &site{name: name}
	var err error
	if s.cgroup, err = newCgroup(name); err != nil {
		return s, err
	}
	for _, part := range []struct {
		role string
		into **namespace
	}{{"c", &s.client}, {"n", &s.node}, {"s", &s.server}} {
		ns, err := newNamespace(name + "-" + part.role)
		if err != nil {
			return s, err
		}
		*part.into = ns
	}
	if err := s.node.setUpNode(); err != nil {
		return s, fmt.Errorf("node of %s: %w", name, err)
	}
	for _, p := range s.pods() {
		if err := s.addPod(p); err != nil {
			return s, fmt.Errorf("%s pod of %s: %w", p.id, name, err)
		}
	}
	return s, nil
}

// pod is a workload of a site.
type pod struct {
	id        string
	namespace *namespace
	host      string // host side of its veth
	mac       net.HardwareAddr
	addrs     []netip.Addr
}

// pods are the site's workloads.
func (s *site) pods() []pod {
	return []pod{
		{"client", s.client, clientVeth, clientMAC, append(clientSources(4), clientSources(6)...)},
		{"server", s.server, serverVeth, serverMAC, serverAddrs()},
	}
}

// serverAddrs are those of the one server and of the many backends, which are one pod to the node's
// links and twelve to its services.
func serverAddrs() []netip.Addr {
	out := []netip.Addr{serverAddr[4], serverAddr[6]}
	for _, f := range []family{4, 6} {
		out = append(out, crowdAddrs(f)...)
	}
	return out
}

// nodeSources are the node's own addresses: as many as a client pod has, so that flows are as new.
func nodeSources(f family) []netip.Addr {
	var out []netip.Addr
	for i := range clientAddrs {
		out = append(out, addrPlus(nodeAddr[f], uint32(i)))
	}
	return out
}

func clientSources(f family) []netip.Addr {
	var out []netip.Addr
	for i := range clientAddrs {
		out = append(out, clientAddr(f, i))
	}
	return out
}

// addRoutes gives the node routes and neighbours for its pods; in felix-lite's modes the agent does.
func (s *site) addRoutes() error {
	for _, p := range s.pods() {
		for _, addr := range p.addrs {
			if err := s.node.routeToPod(p.host, p.mac, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// close removes the site's namespaces, and with them everything inside.
func (s *site) close() error {
	var errs []error
	for _, ns := range []*namespace{s.client, s.server, s.node} {
		if ns != nil {
			errs = append(errs, ns.close())
		}
	}
	return errors.Join(append(errs, s.cgroup.remove())...)
}

// newNamespace makes a named network namespace with the sysctls that all of them share. The name
// carries this process's id, so that a later run knows whether its maker lives.
func newNamespace(name string) (*namespace, error) {
	full := fmt.Sprintf("%s%d-%s", netnsPrefix, os.Getpid(), name)
	n := &namespace{name: full}
	err := onThread(func() error {
		h, err := netns.NewNamed(full)
		if err != nil {
			return fmt.Errorf("create network namespace %s: %w", full, err)
		}
		n.handle = h
		return setSysctls(map[string]string{
			// 2: without the random offset a port pair's timestamps never go back, whichever of its
			// addresses a SYN uses; with 1 reused pairs are stalled by TIME_WAIT.
			"net/ipv4/tcp_timestamps":             "2",
			"net/ipv4/tcp_no_metrics_save":        "1",
			"net/ipv4/tcp_max_tw_buckets":         "4096",
			"net/ipv4/ip_local_port_range":        "10000 64999",
			"net/ipv6/conf/all/accept_dad":        "0",
			"net/ipv6/conf/default/accept_dad":    "0",
			"net/ipv6/conf/default/addr_gen_mode": "1",
			"net/ipv6/conf/default/accept_ra":     "0",
		})
	})
	if err != nil {
		return n, err
	}
	nl, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	if err != nil {
		return n, fmt.Errorf("open netlink in %s: %w", full, err)
	}
	n.nl = nl
	return n, n.up("lo")
}

func (n *namespace) close() error {
	if n == nil {
		return nil
	}
	if n.nl != nil {
		n.nl.Close()
	}
	if n.handle > 0 {
		n.handle.Close()
	}
	if err := netns.DeleteNamed(n.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete network namespace %s: %w", n.name, err)
	}
	return nil
}

// setSysctls writes below /proc/sys for the calling thread's network namespace.
func setSysctls(values map[string]string) error {
	for name, value := range values {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
