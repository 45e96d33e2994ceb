// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
)

// report collects what is wrong with one object.
type report struct {
	kind   Kind
	name   ObjectName
	errors []ObjectError
}

func (r *report) add(field, format string, args ...any) {
	r.errors = append(r.errors, ObjectError{Kind: r.kind, Name: r.name, Field: field, Message: fmt.Sprintf(format, args...)})
}

func newReport(o Object, namespaced bool) *report {
	r := &report{kind: o.Kind(), name: o.ObjectName()}
	if r.name.Name == "" {
		r.add("metadata.name", "must be set")
	}
	if namespaced && r.name.Namespace == "" {
		r.add("metadata.namespace", "must be set")
	}
	return r
}

// address checks that an address names one host that packets can be sent to.
func (r *report) address(field string, a netip.Addr) bool {
	switch {
	case !a.IsValid():
		r.add(field, "no valid address")
	case a.Zone() != "":
		r.add(field, "address %s must not have a zone", a)
	case a.Is4In6():
		r.add(field, "address %s must be written as IPv4", a)
	case a.IsUnspecified():
		r.add(field, "address %s is unspecified", a)
	case a.IsLoopback():
		r.add(field, "address %s is a loopback address", a)
	case a.IsMulticast():
		r.add(field, "address %s is a multicast address", a)
	case a.IsLinkLocalUnicast():
		r.add(field, "address %s is link-local", a)
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		r.add(field, "address %s is the broadcast address", a)
	default:
		return true
	}
	return false
}

func (r *report) prefix(field string, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		r.add(field, "no valid CIDR")
	case p.Addr().Is4In6():
		r.add(field, "CIDR %s must be written as IPv4", p)
	default:
		return true
	}
	return false
}

func (r *report) protocol(field string, p Protocol) {
	if p != TCP && p != UDP && p != SCTP {
		r.add(field, "unknown %s: must be TCP, UDP or SCTP", p)
	}
}

func (r *report) policy(field string, p TrafficPolicy) {
	if p != "" && p != PolicyCluster && p != PolicyLocal {
		r.add(field, "unknown policy %q: must be Cluster or Local", p)
	}
}

// Validate implements Object.
func (s *Service) Validate() []ObjectError {
	r := newReport(s, true)
	switch s.Type {
	case "", ClusterIP, NodePort, LoadBalancer, ExternalName:
	default:
		r.add("spec.type", "unknown type %q", s.Type)
	}
	s.validateAddresses(r)
	s.validatePorts(r)
	r.policy("spec.internalTrafficPolicy", s.InternalTrafficPolicy)
	r.policy("spec.externalTrafficPolicy", s.ExternalTrafficPolicy)
	if s.SessionAffinity != "" && s.SessionAffinity != AffinityNone && s.SessionAffinity != AffinityClientIP {
		r.add("spec.sessionAffinity", "unknown affinity %q: must be None or ClientIP", s.SessionAffinity)
	}
	if s.AffinityTimeout < 0 || s.AffinityTimeout.Seconds() > 86400 {
		r.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "must be between 1 and 86400, is %d", int64(s.AffinityTimeout.Seconds()))
	}
	return r.errors
}

func (s *Service) validateAddresses(r *report) {
	var seen [2]bool
	for i, a := range s.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		if !r.address(field, a) {
			continue
		}
		if f := FamilyOf(a); seen[f] {
			r.add(field, "a second %s address: one for each family", f)
		} else {
			seen[f] = true
		}
	}
	for i, a := range s.ExternalIPs {
		r.address(fmt.Sprintf("spec.externalIPs[%d]", i), a)
	}
	for i, ip := range s.LoadBalancerIPs {
		field := fmt.Sprintf("status.loadBalancer.ingress[%d]", i)
		r.address(field+".ip", ip.Addr)
		if ip.Mode != "" && ip.Mode != IPModeVIP && ip.Mode != IPModeProxy {
			r.add(field+".ipMode", "unknown mode %q: must be VIP or Proxy", ip.Mode)
		}
	}
	for i, p := range s.LoadBalancerSourceRanges {
		r.prefix(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), p)
	}
}

func (s *Service) validatePorts(r *report) {
	type numbered struct {
		port  uint16
		proto Protocol
	}
	names := map[string]int{}
	ports := map[numbered]int{}
	nodePorts := map[numbered]int{}
	for i, p := range s.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		r.protocol(field+".protocol", p.Protocol)
		if p.Port == 0 {
			r.add(field+".port", "must be between 1 and 65535")
		}
		if p.Name == "" && len(s.Ports) > 1 {
			r.add(field+".name", "must be set: the service has several ports")
		} else if j, dup := names[p.Name]; dup {
			r.add(field+".name", "%q is already the name of spec.ports[%d]", p.Name, j)
		}
		names[p.Name] = i
		if j, dup := ports[numbered{p.Port, p.Protocol}]; dup {
			r.add(field+".port", "%d/%s is already spec.ports[%d]", p.Port, p.Protocol, j)
		}
		ports[numbered{p.Port, p.Protocol}] = i
		if p.NodePort == 0 {
			continue
		}
		if j, dup := nodePorts[numbered{p.NodePort, p.Protocol}]; dup {
			r.add(field+".nodePort", "%d/%s is already the node port of spec.ports[%d]", p.NodePort, p.Protocol, j)
		}
		nodePorts[numbered{p.NodePort, p.Protocol}] = i
	}
}

// Validate implements Object.
func (s *EndpointSlice) Validate() []ObjectError {
	r := newReport(s, true)
	if s.Service.Name == "" {
		r.add("metadata.labels["+LabelServiceName+"]", "must name the slice's service")
	}
	for i, p := range s.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		r.protocol(field+".protocol", p.Protocol)
		if p.Port == 0 {
			r.add(field+".port", "must be between 1 and 65535")
		}
	}
	for i, e := range s.Endpoints {
		field := fmt.Sprintf("endpoints[%d].addresses[0]", i)
		if r.address(field, e.Addr) && FamilyOf(e.Addr) != s.Family {
			r.add(field, "address %s is not %s, the slice's address type", e.Addr, s.Family)
		}
	}
	return r.errors
}

// Validate implements Object.
func (n *Node) Validate() []ObjectError {
	r := newReport(n, false)
	for i, a := range n.Addresses {
		if !a.Addr.IsValid() {
			r.add(fmt.Sprintf("status.addresses[%d].address", i), "no valid address")
		}
	}
	for i, p := range n.PodCIDRs {
		r.prefix(fmt.Sprintf("spec.podCIDRs[%d]", i), p)
	}
	return r.errors
}

// Validate implements Object.
func (p *Pod) Validate() []ObjectError {
	r := newReport(p, true)
	for i, a := range p.IPs {
		if !a.IsValid() {
			r.add(fmt.Sprintf("status.podIPs[%d].ip", i), "no valid address")
		}
	}
	for i, c := range p.Ports {
		r.protocol(fmt.Sprintf("spec.containers[].ports[%d].protocol", i), c.Protocol)
	}
	return r.errors
}

// Validate implements Object.
func (n *Namespace) Validate() []ObjectError { return newReport(n, false).errors }

// Validate implements Object.
func (e *WorkloadEndpoint) Validate() []ObjectError {
	r := newReport(e, false)
	if e.HostInterface == "" {
		r.add("hostInterface", "must be set")
	} else if len(e.HostInterface) > 15 {
		r.add("hostInterface", "%q is longer than 15 characters", e.HostInterface)
	}
	if e.PodMAC == (MAC{}) {
		r.add("podMAC", "must be set")
	}
	if len(e.Addresses) == 0 {
		r.add("addresses", "must have at least one address")
	}
	for i, a := range e.Addresses {
		r.address(fmt.Sprintf("addresses[%d]", i), a)
	}
	for i, p := range e.SourcePrefixes {
		r.prefix(fmt.Sprintf("sourcePrefixes[%d]", i), p)
	}
	return r.errors
}
