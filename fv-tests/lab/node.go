// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Node is one node of the cluster: a namespace with an uplink, its own bpffs and cgroup, and an agent.
type Node struct {
	Place
	Index    int          `json:"index"` // counted from 1
	Zone     string       `json:"zone,omitempty"`
	PodCIDR4 netip.Prefix `json:"podCIDR4"`
	PodCIDR6 netip.Prefix `json:"podCIDR6"`
	Agent    ProcessID    `json:"agent"`
	NextPod  int          `json:"nextPod"` // next address of the pod ranges

	lab      *Lab
	mapsOnce sync.Mutex
	maps     *maps.Set
}

func (l *Lab) newNode(i int, spec NodeSpec) *Node {
	name := "node" + strconv.Itoa(i)
	v4, v6 := podCIDRs(i)
	return &Node{
		Place: Place{
			Name: name, Namespace: l.namespace(name),
			IPv4: nodeAddress(i, false), IPv6: nodeAddress(i, true),
			Dir: filepath.Join(l.dir(), name),
		},
		Index: i, Zone: spec.Zone, PodCIDR4: v4, PodCIDR6: v6, NextPod: 2, lab: l,
	}
}

// BPFRoot is the mount point of the node's bpffs.
func (n *Node) BPFRoot() string { return filepath.Join(n.Dir, "bpf") }

// RunDirectory is the agent's run directory: endpoint and status files.
func (n *Node) RunDirectory() string { return filepath.Join(n.Dir, "run") }

// ManifestDirectory is watched by the agent.
func (n *Node) ManifestDirectory() string { return filepath.Join(n.Dir, "manifests") }

// cgroup is the node's subtree: to its agent it is the host's cgroup root. The agent's, the node's own
// and the pods' processes each have a cgroup below it.
func (n *Node) cgroup() (cgroupDir, error) {
	cg, err := labCgroup(n.lab.Name)
	if err != nil {
		return "", err
	}
	return cg.child(n.Name), nil
}

// LogFile holds all output of the node's agent, over restarts.
func (n *Node) LogFile() string { return filepath.Join(n.Dir, "agent.log") }

func (n *Node) configFile() string { return filepath.Join(n.Dir, "config.yaml") }

// build makes the node up to the point where an agent can be started.
func (n *Node) build() error {
	for _, dir := range []string{
		filepath.Join(n.RunDirectory(), "endpoints"), filepath.Join(n.RunDirectory(), "endpoint-status"),
		n.ManifestDirectory(),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := n.Namespace.create(); err != nil {
		return err
	}
	if err := n.Namespace.sysctls(map[string]string{
		"net/ipv4/ip_forward":          "1",
		"net/ipv6/conf/all/forwarding": "1",
	}); err != nil {
		return err
	}
	if err := mountBPF(n.BPFRoot()); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	cg, err := n.cgroup()
	if err != nil {
		return err
	}
	if err := cg.child("pods").create(); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// connect plugs the node into the fabric.
func (n *Node) connect() error {
	router, err := n.lab.router().handle()
	if err != nil {
		return err
	}
	defer router.Close()
	h, err := n.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := n.plug(router, nodeBridge, n.Name, uplinkName); err != nil {
		return err
	}
	// The node's own address is what its sockets use: of IPv4 that is the first, of IPv6 the last.
	addrs := []netip.Prefix{netip.PrefixFrom(n.IPv4, 24)}
	if n.lab.Options.SecondaryIP {
		addrs = append(addrs, netip.PrefixFrom(nth(nodeNet4, 100+n.Index), 24), netip.PrefixFrom(nth(nodeNet6, 256+n.Index), 64))
	}
	addrs = append(addrs, netip.PrefixFrom(n.IPv6, 64))
	if err := configure(h, uplinkName, addrs...); err != nil {
		return err
	}
	for _, gw := range []netip.Addr{routerIn(nodeNet4), routerIn(nodeNet6)} {
		if err := addRoute(h, uplinkName, netip.Prefix{}, gw, false); err != nil {
			return err
		}
	}
	if n.lab.Options.SecondUplink {
		if err := n.plug(router, uplink2Bridge, n.Name+"-b", uplink2Name); err != nil {
			return err
		}
		err := configure(h, uplink2Name, netip.PrefixFrom(nth(uplink2Net4, 10+n.Index), 24), netip.PrefixFrom(nth(uplink2Net6, 16+n.Index), 64))
		if err != nil {
			return err
		}
	}
	if id := n.lab.Options.VLAN; id != 0 {
		if err := addVLAN(h, uplinkName, id, nth(vlanNet4, 10+n.Index), nth(vlanNet6, 16+n.Index)); err != nil {
			return err
		}
	}
	return n.kernelRoutes(router, h)
}

// plug joins a bridge of the router and a device of the node.
func (n *Node) plug(router *netlink.Handle, bridge, port, dev string) error {
	err := addVeth(router, vethSpec{
		name: port, mtu: n.lab.Options.MTU, mac: macFor("router/" + port),
		peer: dev, peerMAC: macFor(n.Name + "/" + dev), peerNamespace: n.Namespace,
	})
	if err != nil {
		return err
	}
	br, err := router.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	link, err := router.LinkByName(port)
	if err != nil {
		return fmt.Errorf("bridge port %s: %w", port, err)
	}
	if err := router.LinkSetMaster(link, br); err != nil {
		return fmt.Errorf("bridge port %s: %w", port, err)
	}
	if err := router.LinkSetUp(link); err != nil {
		return fmt.Errorf("bridge port %s: %w", port, err)
	}
	return nil
}

// kernelRoutes adds what belongs to the fabric rather than to the agent: the router's way to the pods
// where pod addresses are routed, and, without agents, the nodes' ways to each other's pods.
func (n *Node) kernelRoutes(router, h *netlink.Handle) error {
	o := n.lab.Options
	if o.NoAgent || o.Overlay == "Direct" {
		for _, cidr := range []netip.Prefix{n.PodCIDR4, n.PodCIDR6} {
			if err := addRoute(router, nodeBridge, cidr, nodeAddress(n.Index, cidr.Addr().Is6()), false); err != nil {
				return err
			}
		}
	}
	if !o.NoAgent {
		return nil
	}
	for i := range o.Nodes {
		if i+1 == n.Index {
			continue
		}
		v4, v6 := podCIDRs(i + 1)
		for _, cidr := range []netip.Prefix{v4, v6} {
			if err := addStandInRoute(h, uplinkName, cidr, nodeAddress(i+1, cidr.Addr().Is6())); err != nil {
				return err
			}
		}
	}
	return nil
}

// podMTU is the largest packet a pod may send: the fabric's, less what the tunnel adds.
func (n *Node) podMTU() int {
	o := n.lab.Options
	switch {
	case o.NoAgent || o.Overlay == "Direct":
		return o.MTU
	case o.Underlay == "IPv6":
		return o.MTU - 70
	default:
		return o.MTU - 50
	}
}
