// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// claim is a service port's wish to own a frontend.
type claim struct {
	key   FrontendKey
	flags Flags // without DropNoLocal, which depends on the endpoints
}

// Programmed reports whether a service is ours to program at all (kube-proxy's rule 1). It has
// frontends only in families in which it has a cluster IP.
func Programmed(svc *model.Service) bool {
	if svc == nil || svc.Type == model.ExternalName || svc.Headless || len(svc.ClusterIPs) == 0 {
		return false
	}
	if _, other := svc.Labels[model.LabelServiceProxyName]; other {
		return false
	}
	_, headless := svc.Labels[model.LabelHeadless]
	return !headless
}

// updateClaims computes anew which frontends a service asks for, in both families.
func (c *Calculator) updateClaims(e *entry) {
	before := e.refused
	e.refused = nil
	for _, t := range c.tables {
		externals := c.externals(e, t.family)
		var ports []*port
		if ip, ok := clusterIP(e.svc, t.family); ok {
			for i := range e.svc.Ports {
				sp := &e.svc.Ports[i]
				if sp.Port == 0 || slices.ContainsFunc(ports, func(p *port) bool { return p.is(sp) }) {
					continue
				}
				p := e.findPort(t.family, sp)
				if p == nil {
					p = &port{entry: e, name: sp.Name, proto: sp.Protocol, family: t.family}
				}
				p.created = e.svc.Created
				p.affinity = affinityTimeout(e.svc)
				t.replaceClaims(p, c.claimsOf(e.svc, sp, ip, externals))
				ports = append(ports, p)
			}
		}
		for _, p := range e.ports[t.family] {
			if !slices.Contains(ports, p) {
				p.gone = true
				t.replaceClaims(p, nil)
				t.queueLists(p)
			}
		}
		e.ports[t.family] = ports
	}
	for _, problem := range e.refused {
		if !slices.Contains(before, problem) {
			c.delta.Problems = append(c.delta.Problems, problem)
		}
	}
}

// clusterIP returns the cluster IP that a service is programmed with in a family.
func clusterIP(svc *model.Service, f model.Family) (netip.Addr, bool) {
	if !Programmed(svc) {
		return netip.Addr{}, false
	}
	for _, a := range svc.ClusterIPs {
		if a.IsValid() && model.FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// claimsOf lists the frontends of one service port. The same address may be named twice (as
// external IP and by the load balancer): the first one counts.
func (c *Calculator) claimsOf(svc *model.Service, sp *model.ServicePort, ip netip.Addr, externals []netip.Addr) []claim {
	claims := make([]claim, 0, 4)
	add := func(a netip.Addr, port uint16, flags Flags) {
		k := FrontendKey{Addr: a, Port: port, Proto: sp.Protocol}
		if !slices.ContainsFunc(claims, func(o claim) bool { return o.key == k }) {
			claims = append(claims, claim{key: k, flags: flags})
		}
	}
	var internal Flags
	if svc.InternalTrafficPolicy == model.PolicyLocal {
		internal = ITPLocal
	}
	external := External
	if svc.ExternalTrafficPolicy == model.PolicyLocal {
		external |= ETPLocal
	}
	add(ip, sp.Port, internal)
	for _, a := range externals {
		add(a, sp.Port, external)
	}
	if sp.NodePort != 0 {
		f := model.FamilyOf(ip)
		for _, a := range c.opts.nodePortAddresses(f) {
			add(a, sp.NodePort, external|IsNodePort)
		}
		add(Wildcard(f), sp.NodePort, external|IsNodePort)
	}
	return claims
}

// externals returns the external and load balancer addresses of a family that a service gets, and
// notes those that it does not get.
func (c *Calculator) externals(e *entry, f model.Family) []netip.Addr {
	svc := e.svc
	if _, ok := clusterIP(svc, f); !ok {
		return nil
	}
	var out []netip.Addr
	judge := func(field string, a netip.Addr, refusal string) {
		if refusal == "" {
			refusal = c.refusal(svc, a)
		}
		if refusal == "" {
			out = append(out, a)
			return
		}
		e.refused = append(e.refused, model.ObjectError{Kind: model.KindService, Name: e.name, Field: field, Message: refusal})
	}
	for i, a := range svc.ExternalIPs {
		if !a.IsValid() || model.FamilyOf(a) != f {
			continue
		}
		refusal := ""
		if !c.opts.ExternalIPs {
			refusal = fmt.Sprintf("%s is not served: external IPs are disabled", a)
		} else if len(c.opts.AllowedExternalCIDRs) > 0 && !within(a, c.opts.AllowedExternalCIDRs) {
			refusal = fmt.Sprintf("%s is not served: it is in none of the allowed external CIDRs", a)
		}
		judge(fmt.Sprintf("spec.externalIPs[%d]", i), a, refusal)
	}
	for i, ip := range svc.LoadBalancerIPs {
		if ip.Mode == model.IPModeProxy || !ip.Addr.IsValid() || model.FamilyOf(ip.Addr) != f {
			continue
		}
		refusal := ""
		if restricted(svc.LoadBalancerSourceRanges, f) {
			// Serving the address to everybody would be worse than not serving it.
			refusal = fmt.Sprintf("%s is not served: spec.loadBalancerSourceRanges can not be enforced yet", ip.Addr)
		}
		judge(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), ip.Addr, refusal)
	}
	return out
}

// refusal says why an external or load balancer address can not be served, or "".
func (c *Calculator) refusal(svc *model.Service, a netip.Addr) string {
	switch {
	case !servable(a) || a == Wildcard(model.FamilyOf(a)):
		return fmt.Sprintf("%s is not served: not an address that hosts can be reached at", a)
	case within(a, c.opts.ServiceCIDRs):
		return fmt.Sprintf("%s is not served: it is in the range of cluster IPs", a)
	}
	if owner := c.addrs.owner(a, svc); owner != "" {
		return fmt.Sprintf("%s is not served: it is the address of %s", a, owner)
	}
	return ""
}

// restricted reports whether source ranges leave out any source of a family. Ranges of the other
// family only would leave out all.
func restricted(ranges []netip.Prefix, f model.Family) bool {
	if len(ranges) == 0 {
		return false
	}
	return !slices.ContainsFunc(ranges, func(p netip.Prefix) bool {
		return p.IsValid() && p.Bits() == 0 && model.FamilyOf(p.Addr()) == f
	})
}

// nodePortAddresses are this node's addresses of a family on which NodePorts are served.
func (o *Options) nodePortAddresses(f model.Family) []netip.Addr {
	candidates := o.Addresses
	if o.NodePorts == NodePortPrimary {
		candidates = o.Primary
	}
	var out []netip.Addr
	for _, a := range candidates {
		a = a.Unmap().WithZone("")
		if !servable(a) || model.FamilyOf(a) != f || (o.NodePorts == NodePortCIDRs && !within(a, o.NodePortCIDRs)) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// servable reports whether packets to an address can come in from a network.
func servable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}

func within(a netip.Addr, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func affinityTimeout(svc *model.Service) uint32 {
	if svc.SessionAffinity != model.AffinityClientIP {
		return 0
	}
	timeout := svc.AffinityTimeout
	if timeout <= 0 {
		timeout = model.DefaultAffinityTimeout
	}
	return uint32(max(1, min(timeout.Seconds(), 1<<31)))
}
