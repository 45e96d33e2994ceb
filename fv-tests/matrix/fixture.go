// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// servicePort is the port of every service of the matrix; backends listen on probe.Port.
const servicePort = 80

// backendPlaces are the services of each family, one for each place a backend can be, and how many
// backends each has.
var backendPlaces = []Backend{SameNode, OtherNode, Itself, None, SameHost, OtherHost}

// spread is one more service of each family, with a backend on each node: for loads, not for cells.
const spread Backend = "both nodes"

// Options returns a lab for the matrix. Each pod has one family only, so that no IPv6 cell can lean on
// IPv4: on node 1 a client, a client with a sidecar and a backend of each family, on node 2 a backend of
// each; and on both a backend in the host's network. The second outside client is in a range that is
// excluded from masquerading.
func Options(site Site, underlay string) lab.Options {
	pod := func(role string, ipv6 bool) lab.PodSpec {
		spec := lab.PodSpec{Name: podName(role, ipv6), IPv4: !ipv6, IPv6: ipv6, Labels: map[string]string{}}
		switch role {
		case "near", "far":
			spec.Labels["group"] = podName("spread", ipv6)
		case "mesh":
			spec.Annotations = map[string]string{"felix-lite.io/socket-lb": "disabled"}
		case "nearhost", "farhost":
			spec.HostNetwork = true
		}
		return spec
	}
	nodes := []lab.NodeSpec{{Zone: "zone1"}, {Zone: "zone2"}}
	for i, roles := range [][]string{{"client", "near", "mesh", "nearhost"}, {"far", "farhost"}} {
		for _, role := range roles {
			nodes[i].Pods = append(nodes[i].Pods, pod(role, false), pod(role, true))
		}
	}
	excluded4, excluded6 := lab.OutsideNets(2)
	o := lab.Options{
		Overlay: site.Overlay, Underlay: underlay, Outside: 2, CTLB: string(site.Mode), Nodes: nodes,
		AgentConfig: map[string]any{
			"natOutgoingExclusionCIDRs": []string{excluded4.String(), excluded6.String()},
			"netfilterRefreshInterval":  "1s",
		},
	}
	if site.Mode == NoHooks {
		o.CTLB = string(Enabled)
		o.AgentConfig["disabledFeatures"] = hooks()
	}
	return o
}

// hooks are the features without which nothing is balanced at connect time.
func hooks() []string {
	var names []string
	for _, name := range features.Names() {
		if strings.HasPrefix(name, "ctlb-") || strings.HasPrefix(name, "cgroup-") {
			names = append(names, name)
		}
	}
	return names
}

func podName(role string, ipv6 bool) string {
	if ipv6 {
		return role + "6"
	}
	return role + "4"
}

// backendPod is the pod that backs a service, "" where there is none.
func backendPod(b Backend, ipv6 bool) string {
	switch b {
	case SameNode:
		return podName("near", ipv6)
	case OtherNode:
		return podName("far", ipv6)
	case Itself:
		return podName("client", ipv6)
	case SameHost:
		return podName("nearhost", ipv6)
	case OtherHost:
		return podName("farhost", ipv6)
	}
	return ""
}

// server is the place whose prober must answer the cell.
func (c Cell) server(l *lab.Lab) *lab.Place {
	switch {
	case c.redirected():
		return c.client(l)
	case c.Backend == SameHost:
		return &l.Nodes[0].Place
	case c.Backend == OtherHost:
		return &l.Nodes[1].Place
	case c.To == OutAddress:
		return &l.Clients[0].Place
	case c.To == ExcludedOut:
		return &l.Clients[1].Place
	case c.Backend == None:
		return nil
	}
	return &l.Pod(backendPod(c.Backend, c.IPv6)).Place
}

// service is one service of the matrix: its backends stand in one place.
type service struct {
	backend Backend
	ipv6    bool
	number  int // among all services: makes addresses and node ports differ
}

func serviceFor(b Backend, ipv6 bool) service {
	s := service{backend: b, ipv6: ipv6}
	s.number = slices.Index(backendPlaces, b) + 1
	if b == spread {
		s.number = len(backendPlaces) + 1
	}
	if ipv6 {
		s.number += 100
	}
	return s
}

func (s service) nodePort() int { return 30000 + s.number }

// address of a frontend kind, with its port.
func (s service) address(l *lab.Lab, to Frontend) netip.AddrPort {
	switch to {
	case NodePort:
		return netip.AddrPortFrom(l.Nodes[0].Address(s.ipv6), uint16(s.nodePort()))
	case NodePortOther:
		return netip.AddrPortFrom(l.Nodes[1].Address(s.ipv6), uint16(s.nodePort()))
	case NodePortLocal:
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if s.ipv6 {
			loopback = netip.IPv6Loopback()
		}
		return netip.AddrPortFrom(loopback, uint16(s.nodePort()))
	case ExternalIP:
		return netip.AddrPortFrom(s.in(lab.ExternalNet4, lab.ExternalNet6), servicePort)
	case LoadBalancer:
		return netip.AddrPortFrom(s.in(lab.LoadBalancerNet4, lab.LoadBalancerNet6), servicePort)
	}
	return netip.AddrPortFrom(s.in(lab.ServiceCIDR4, lab.ServiceCIDR6), servicePort)
}

// in picks the service's address of a range.
func (s service) in(v4, v6 netip.Prefix) netip.Addr {
	p := v4
	if s.ipv6 {
		p = v6
	}
	addr := p.Masked().Addr()
	for range s.number {
		addr = addr.Next()
	}
	return addr
}

// manifest is the Service object. The service without backends selects what does not exist.
func (s service) manifest() string {
	selector := "name: " + backendPod(s.backend, s.ipv6)
	switch s.backend {
	case None:
		selector = "name: nobody"
	case spread:
		selector = "group: " + podName("spread", s.ipv6)
	}
	family := "IPv4"
	if s.ipv6 {
		family = "IPv6"
	}
	name := fmt.Sprintf("%s-%s", strings.ReplaceAll(string(s.backend), " ", "-"), strings.ToLower(family))
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, uid: "00000000-0000-0000-0000-%012[2]d"}
spec:
  type: LoadBalancer
  ipFamilies: [%[3]s]
  ipFamilyPolicy: SingleStack
  clusterIP: %[4]q
  clusterIPs: [%[4]q]
  externalIPs: [%[5]q]
  selector: {%[6]s}
  ports:
  - {name: tcp, protocol: TCP, port: %[7]d, targetPort: %[8]d, nodePort: %[9]d}
  - {name: udp, protocol: UDP, port: %[7]d, targetPort: %[8]d, nodePort: %[9]d}
status:
  loadBalancer: {ingress: [{ip: %[10]q, ipMode: VIP}]}
`, name, s.number, family, s.in(lab.ServiceCIDR4, lab.ServiceCIDR6), s.in(lab.ExternalNet4, lab.ExternalNet6),
		selector, servicePort, probe.Port, s.nodePort(), s.in(lab.LoadBalancerNet4, lab.LoadBalancerNet6))
}

// Manifests are all services of the matrix.
func Manifests() []byte {
	var b strings.Builder
	for _, ipv6 := range []bool{false, true} {
		for _, place := range backendPlaces {
			b.WriteString(serviceFor(place, ipv6).manifest())
		}
		b.WriteString(serviceFor(spread, ipv6).manifest())
	}
	return []byte(b.String())
}

// target is what the cell's client talks to.
func (c Cell) target(l *lab.Lab) netip.AddrPort {
	switch c.To {
	case PodAddress, NodeAddress, OutAddress, ExcludedOut:
		return netip.AddrPortFrom(c.server(l).Address(c.IPv6), probe.Port)
	}
	return serviceFor(c.Backend, c.IPv6).address(l, c.To)
}

// client is the place the cell's traffic starts at.
func (c Cell) client(l *lab.Lab) *lab.Place {
	switch c.From {
	case FromOutside:
		return &l.Clients[0].Place
	case FromNode:
		return &l.Nodes[0].Place
	case FromMesh:
		return &l.Pod(podName("mesh", c.IPv6)).Place
	}
	return &l.Pod(podName("client", c.IPv6)).Place
}

// seenAs is the address under which the backend sees the client.
func (c Cell) seenAs(l *lab.Lab) netip.Addr {
	if _, m, err := c.mechanism(); err == nil && m.sees == itsNode {
		return l.Nodes[0].Address(c.IPv6)
	}
	return c.client(l).Address(c.IPv6)
}

// pathMTU is the largest packet that goes the cell's whole way in one piece. Pods behind the overlay,
// and anything that is forwarded to another node with its client's address, travel in the tunnel.
func (c Cell) pathMTU(l *lab.Lab) int {
	mtu, overhead := l.Options.MTU, 50
	if l.Options.Underlay == "IPv6" {
		overhead = 70
	}
	forwarded := c.From == FromOutside && (c.Backend == OtherNode || c.Backend == OtherHost) ||
		c.From == FromNode && c.To == NodePortOther && !c.atConnect()
	// A service that the host asks by packet may have its backend anywhere: its route takes what any of
	// the ways takes.
	byRoute := c.From == FromNode && c.Connect != "" && c.To != NodePort && !c.atConnect()
	pods := c.From == FromPod || c.From == FromMesh || c.Backend == SameNode || c.Backend == OtherNode
	if forwarded || c.Site.Overlay == "VXLAN" && (pods || byRoute) {
		return mtu - overhead
	}
	return mtu
}
