// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// Pod is one pod: a namespace whose eth0 is a veth to its node.
type Pod struct {
	Place
	NodeName      string            `json:"node"`
	K8sNamespace  string            `json:"namespace"`
	UID           string            `json:"uid"`
	ContainerID   string            `json:"containerID"`
	HostInterface string            `json:"hostInterface"`
	MAC           string            `json:"mac"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
	HostNetwork   bool              `json:"hostNetwork,omitempty"`
	NotReady      bool              `json:"notReady,omitempty"` // what its object says: see Publish

	node *Node
}

// newPod gives the pod its names and addresses; nothing is made yet.
func (n *Node) newPod(spec PodSpec) (*Pod, error) {
	if !validName.MatchString(spec.Name) {
		return nil, fmt.Errorf("pod name %q: want up to 16 of a-z, 0-9 and -", spec.Name)
	}
	if spec.Namespace == "" {
		spec.Namespace = "default"
	}
	if _, err := n.lab.Place(spec.Name); err == nil {
		return nil, fmt.Errorf("pod %s: the name is taken", spec.Name)
	}
	if !spec.IPv4 && !spec.IPv6 {
		spec.IPv4, spec.IPv6 = true, true
	}
	id := shortHash(fmt.Sprint(n.lab.Name, spec.Namespace, spec.Name, n.NextPod))
	p := &Pod{
		Place: Place{
			Name: spec.Name, Namespace: n.lab.namespace(spec.Name), Dir: filepath.Join(n.Dir, "pods", spec.Name),
		},
		NodeName: n.Name, K8sNamespace: spec.Namespace,
		UID:         fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:32]),
		ContainerID: id, HostInterface: hostInterfaceName(spec.Namespace, spec.Name),
		MAC: macFor("pod/" + id).String(), Labels: map[string]string{"name": spec.Name}, node: n,
		Annotations: spec.Annotations, HostNetwork: spec.HostNetwork,
	}
	for k, v := range spec.Labels {
		p.Labels[k] = v
	}
	if spec.HostNetwork {
		p.Place = Place{Name: spec.Name, Namespace: n.Namespace, Dir: n.Dir}
		if spec.IPv4 {
			p.IPv4 = n.IPv4
		}
		if spec.IPv6 {
			p.IPv6 = n.IPv6
		}
		return p, nil
	}
	if spec.IPv4 {
		p.IPv4 = nth(n.PodCIDR4, n.NextPod)
	}
	if spec.IPv6 {
		p.IPv6 = nth(n.PodCIDR6, n.NextPod)
	}
	n.NextPod++
	return p, nil
}

// AddPod makes a pod on a running node: namespace, veth, prober, manifests on every node, and last the
// endpoint file that tells the agent. It returns when the prober answers and the agent says ready; only
// then does the pod's object say so too, as a kubelet would have it. While the node's agent is dead the
// pod is made all the same and stays NotReady: see MarkReady.
func (l *Lab) AddPod(ctx context.Context, node *Node, spec PodSpec) (*Pod, error) {
	p, err := node.newPod(spec)
	if err != nil {
		return nil, err
	}
	if err := p.Namespace.create(); err != nil {
		return nil, err
	}
	p.NotReady = true
	l.Pods = append(l.Pods, p)
	if err := p.build(); err != nil {
		return nil, err
	}
	if err := l.startProber(&p.Place); err != nil {
		return nil, err
	}
	if err := l.Publish(); err != nil {
		return nil, err
	}
	if err := l.save(); err != nil {
		return nil, err
	}
	if err := p.waitProber(ctx); err != nil {
		return nil, err
	}
	if !l.Options.NoAgent && !node.AgentRuns() {
		return p, nil
	}
	return p, l.MarkReady(ctx, p)
}

// MarkReady waits until the pod is programmed and lets its object say Ready, so that it becomes a
// backend of the services that select it.
func (l *Lab) MarkReady(ctx context.Context, p *Pod) error {
	if !l.Options.NoAgent {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	p.NotReady = false
	if err := l.Publish(); err != nil {
		return err
	}
	return l.save()
}

// RemovePod takes a pod away as a kubelet does: the object and the endpoint file first, then the
// processes, the interface and the namespace.
func (l *Lab) RemovePod(ctx context.Context, p *Pod) error {
	l.Pods = without(l.Pods, p)
	if err := l.Publish(); err != nil {
		return err
	}
	if err := os.Remove(p.endpointFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	cg, err := labCgroup(l.Name)
	if err != nil {
		return err
	}
	sub := cg.child(p.NodeName, "pods", p.Name)
	err = WaitFor(ctx, "pod "+p.Name+"'s processes to end", func() (bool, string) {
		sub.kill()
		err := sub.removeTree() // busy until the last process is gone for good
		return err == nil, fmt.Sprint(err)
	})
	if err != nil {
		return err
	}
	if err := p.deleteLink(); err != nil {
		return err
	}
	if err := p.Namespace.remove(); err != nil {
		return err
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	return l.save()
}

func (p *Pod) deleteLink() error {
	h, err := p.node.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(p.HostInterface)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("pod %s: delete %s: %w", p.Name, p.HostInterface, err)
	}
	return nil
}

// build connects the pod to its node and writes its endpoint file.
func (p *Pod) build() error {
	if err := p.connect(); err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if p.node.lab.Options.NoAgent {
		return p.kernelRoute()
	}
	return p.writeEndpoint()
}

// connect makes the veth pair and everything inside the pod, as the CNI plugin does: host routes only,
// a gateway that is no address of the node, and its MAC as a permanent neighbour.
func (p *Pod) connect() error {
	h, err := p.node.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	hostMAC, _ := net.ParseMAC(hostVethMAC)
	podMAC, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	err = addVeth(h, vethSpec{
		name: p.HostInterface, mtu: p.node.podMTU(), mac: hostMAC,
		peer: podInterface, peerMAC: podMAC, peerNamespace: p.Namespace,
	})
	if err != nil {
		return err
	}
	link, err := h.LinkByName(p.HostInterface)
	if err != nil {
		return err
	}
	if err := h.LinkSetIP6AddrGenMode(link, nl.IN6_ADDR_GEN_MODE_NONE); err != nil {
		return fmt.Errorf("interface %s: no generated address: %w", p.HostInterface, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: set up: %w", p.HostInterface, err)
	}
	return p.configureInside(hostMAC)
}

func (p *Pod) configureInside(gatewayMAC net.HardwareAddr) error {
	h, err := p.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	// Only the pod's own families exist in it: a test in one cannot lean on the other.
	if !p.IPv6.IsValid() {
		if err := p.Namespace.sysctls(map[string]string{"net/ipv6/conf/eth0/disable_ipv6": "1"}); err != nil {
			return err
		}
	}
	for _, family := range []struct{ addr, gateway netip.Addr }{
		{p.IPv4, netip.MustParseAddr(podGateway4)}, {p.IPv6, netip.MustParseAddr(podGateway6)},
	} {
		if !family.addr.IsValid() {
			continue
		}
		own := netip.PrefixFrom(family.addr, family.addr.BitLen())
		if err := configure(h, podInterface, own); err != nil {
			return err
		}
		if family.gateway.Is4() { // a link-local IPv6 gateway needs no route of its own
			gw := netip.PrefixFrom(family.gateway, family.gateway.BitLen())
			if err := addRoute(h, podInterface, gw, netip.Addr{}, false); err != nil {
				return err
			}
		}
		if err := addRoute(h, podInterface, netip.Prefix{}, family.gateway, false); err != nil {
			return err
		}
		if err := addNeighbour(h, podInterface, family.gateway, gatewayMAC); err != nil {
			return err
		}
	}
	return nil
}

// kernelRoute stands in for the agent's routetable in a lab without agents.
func (p *Pod) kernelRoute() error {
	h, err := p.node.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	for _, addr := range []netip.Addr{p.IPv4, p.IPv6} {
		if !addr.IsValid() {
			continue
		}
		if err := addStandInRoute(h, p.HostInterface, netip.PrefixFrom(addr, addr.BitLen()), netip.Addr{}); err != nil {
			return err
		}
		if err := addNeighbour(h, p.HostInterface, addr, mac); err != nil {
			return err
		}
	}
	return nil
}

func without(pods []*Pod, p *Pod) []*Pod {
	var rest []*Pod
	for _, other := range pods {
		if other != p {
			rest = append(rest, other)
		}
	}
	return rest
}

// FlashPod makes what a pod is to the agent, an endpoint file and a veth, and takes the veth away at
// once, before or after the file: an interface that disappears during attach.
func (n *Node) FlashPod(name string, fileFirst bool) error {
	p, err := n.newPod(PodSpec{Name: name, IPv4: true})
	if err != nil {
		return err
	}
	if err := p.Namespace.create(); err != nil {
		return err
	}
	steps := []func() error{p.connect, p.writeEndpoint, p.deleteLink}
	if fileFirst {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range append(steps, p.Namespace.remove) {
		if err := step(); err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
	}
	if err := os.Remove(p.endpointFile()); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	return nil
}
