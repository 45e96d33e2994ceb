// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Service converts a Service, whether or not it is one that gets programmed.
func Service(s *corev1.Service) (*model.Service, []model.ObjectError) {
	out := &model.Service{
		Name:                     objectName(&s.ObjectMeta),
		UID:                      strings.Clone(string(s.UID)),
		Created:                  s.CreationTimestamp.Time,
		Labels:                   copyMap(s.Labels, ofServices),
		Annotations:              copyMap(s.Annotations, ours),
		Type:                     model.ServiceType(strings.Clone(string(s.Spec.Type))),
		Selector:                 copyMap(s.Spec.Selector, everything),
		SessionAffinity:          model.Affinity(strings.Clone(string(s.Spec.SessionAffinity))),
		PublishNotReadyAddresses: s.Spec.PublishNotReadyAddresses,
		ExternalTrafficPolicy:    model.TrafficPolicy(strings.Clone(string(s.Spec.ExternalTrafficPolicy))),
	}
	if out.Type == "" {
		out.Type = model.ClusterIP
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		out.InternalTrafficPolicy = model.TrafficPolicy(strings.Clone(string(*p)))
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		out.TrafficDistribution = strings.Clone(*d)
	}
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		out.AffinityTimeout = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	}

	p := &problems{kind: model.KindService, name: out.Name}
	out.HealthCheckNodePort = p.port("spec.healthCheckNodePort", s.Spec.HealthCheckNodePort, 0)
	p.serviceAddresses(s, out)
	p.servicePorts(s, out)

	p.addValidation(out.Validate())
	if len(p.errors) == 0 {
		return out, nil
	}
	return pruneService(out), p.errors
}

func (p *problems) serviceAddresses(s *corev1.Service, out *model.Service) {
	ips, field := s.Spec.ClusterIPs, "spec.clusterIPs"
	if len(ips) == 0 && s.Spec.ClusterIP != "" {
		ips = []string{s.Spec.ClusterIP}
	}
	if len(ips) > 0 && ips[0] == corev1.ClusterIPNone {
		out.Headless = true
	} else if out.Type != model.ExternalName {
		out.ClusterIPs = p.addresses(field, ips)
	}
	out.ExternalIPs = p.addresses("spec.externalIPs", s.Spec.ExternalIPs)
	out.LoadBalancerSourceRanges = p.prefixes("spec.loadBalancerSourceRanges", s.Spec.LoadBalancerSourceRanges)
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP == "" { // a host name: resolved by clients, not by us
			continue
		}
		lb := model.LoadBalancerIP{Addr: p.address(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)}
		if !lb.Addr.IsValid() {
			continue
		}
		if in.IPMode != nil {
			lb.Mode = model.IPMode(strings.Clone(string(*in.IPMode)))
		}
		out.LoadBalancerIPs = append(out.LoadBalancerIPs, lb)
	}
}

func (p *problems) servicePorts(s *corev1.Service, out *model.Service) {
	for i, sp := range s.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		proto := p.protocol(field+".protocol", sp.Protocol)
		port := model.ServicePort{
			Name:     strings.Clone(sp.Name),
			Protocol: proto,
			Port:     p.port(field+".port", sp.Port, 1),
			NodePort: p.port(field+".nodePort", sp.NodePort, 0),
		}
		if sp.AppProtocol != nil {
			port.AppProtocol = strings.Clone(*sp.AppProtocol)
		}
		if sp.TargetPort.Type == intstr.String {
			port.TargetPort.Name = strings.Clone(sp.TargetPort.StrVal)
		} else {
			port.TargetPort.Number = p.port(field+".targetPort", sp.TargetPort.IntVal, 0)
		}
		out.Ports = append(out.Ports, port)
	}
}

// port checks the range of a port number; a bad one gives 0.
func (p *problems) port(field string, n int32, least int32) uint16 {
	if n < least || n > 65535 {
		p.add(field, "%d is not between %d and 65535", n, max(least, 1))
		return 0
	}
	return uint16(n)
}

// protocol understands the name of a protocol; an unknown one gives 0.
func (p *problems) protocol(field string, name corev1.Protocol) model.Protocol {
	proto, err := model.ParseProtocol(string(name))
	if err != nil {
		p.add(field, "%s", err)
	}
	return proto
}

// pruneService leaves out what the service does not validate with. Each part is tried beside those
// already kept, so of two that exclude each other the first stays. It returns nil if not even the
// bare service is valid.
func pruneService(s *model.Service) *model.Service {
	out := *s
	out.ClusterIPs, out.ExternalIPs, out.LoadBalancerIPs, out.LoadBalancerSourceRanges, out.Ports = nil, nil, nil, nil, nil
	valid := func(try model.Service) bool { return len(try.Validate()) == 0 }
	if !valid(out) {
		// An unknown type, policy or affinity: there is no safe way to guess what was meant.
		return nil
	}
	for _, a := range s.ClusterIPs {
		try := model.Service{Name: s.Name, ClusterIPs: append(slices.Clip(out.ClusterIPs), a)}
		if valid(try) {
			out.ClusterIPs = try.ClusterIPs
		}
	}
	out.ExternalIPs = keep(s.ExternalIPs, func(a netip.Addr) bool {
		return valid(model.Service{Name: s.Name, ExternalIPs: []netip.Addr{a}})
	})
	out.LoadBalancerIPs = keep(s.LoadBalancerIPs, func(ip model.LoadBalancerIP) bool {
		return valid(model.Service{Name: s.Name, LoadBalancerIPs: []model.LoadBalancerIP{ip}})
	})
	out.LoadBalancerSourceRanges = keepRanges(s, valid)
	for _, port := range s.Ports {
		try := model.Service{Name: s.Name, Ports: append(slices.Clip(out.Ports), port)}
		if valid(try) {
			out.Ports = try.Ports
		}
	}
	return &out
}

// keepRanges drops ranges that can not be understood. A list that gets empty by that, in one family
// or in both, would open the service to everybody: ranges that no client is in take their place.
func keepRanges(s *model.Service, valid func(model.Service) bool) []netip.Prefix {
	out := keep(s.LoadBalancerSourceRanges, func(r netip.Prefix) bool {
		return valid(model.Service{Name: s.Name, LoadBalancerSourceRanges: []netip.Prefix{r}})
	})
	if len(out) < len(s.LoadBalancerSourceRanges) {
		out = append(out, nobody...)
	}
	return out
}

// nobody are source ranges that no packet's source is in.
var nobody = []netip.Prefix{
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
}
