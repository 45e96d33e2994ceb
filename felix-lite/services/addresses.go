// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// addresses knows whose an address is, so that a service can not take over another's by naming it
// as its external or load balancer address.
type addresses struct {
	uses  map[netip.Addr]*addressUse
	nodes map[string][]netip.Addr
	pods  map[model.ObjectName][]netip.Addr
}

// addressUse counts who has an address by right, and who would like to serve it.
type addressUse struct {
	nodes, pods, services int
	wanted                []*entry
}

func newAddresses() addresses {
	return addresses{uses: map[netip.Addr]*addressUse{}, nodes: map[string][]netip.Addr{}, pods: map[model.ObjectName][]netip.Addr{}}
}

// setNode and setPod return the services whose wishes have to be judged again.
func (a *addresses) setNode(name string, n *model.Node) []*entry {
	var now []netip.Addr
	if n != nil {
		for _, addr := range n.Addresses {
			now = append(now, addr.Addr.Unmap())
		}
	}
	old := a.nodes[name]
	if now == nil {
		delete(a.nodes, name)
	} else {
		a.nodes[name] = now
	}
	return a.replace(old, now, func(u *addressUse) *int { return &u.nodes })
}

func (a *addresses) setPod(name model.ObjectName, p *model.Pod) []*entry {
	var now []netip.Addr
	if p != nil && !p.HostNetwork && p.Phase != model.PodSucceeded && p.Phase != model.PodFailed {
		now = p.IPs
	}
	old := a.pods[name]
	if len(now) == 0 {
		delete(a.pods, name)
	} else {
		a.pods[name] = now
	}
	return a.replace(old, now, func(u *addressUse) *int { return &u.pods })
}

// setService replaces the service's cluster IPs and the external addresses it wants.
func (a *addresses) setService(e *entry, svc *model.Service) []*entry {
	var old, now []netip.Addr
	if e.svc != nil {
		old = e.svc.ClusterIPs
		for _, addr := range wantedExternals(e.svc) {
			u := a.use(addr)
			if i := slices.Index(u.wanted, e); i >= 0 {
				u.wanted = slices.Delete(u.wanted, i, i+1)
			}
			a.release(addr, u)
		}
	}
	if svc != nil {
		now = svc.ClusterIPs
	}
	touched := a.replace(old, now, func(u *addressUse) *int { return &u.services })
	for _, addr := range wantedExternals(svc) {
		if u := a.use(addr); !slices.Contains(u.wanted, e) {
			u.wanted = append(u.wanted, e)
		}
	}
	return touched
}

func (a *addresses) replace(old, now []netip.Addr, count func(*addressUse) *int) []*entry {
	if slices.Equal(old, now) {
		return nil
	}
	var touched []*entry
	for _, addr := range now {
		u := a.use(addr)
		*count(u)++
		touched = append(touched, u.wanted...)
	}
	for _, addr := range old {
		u := a.use(addr)
		*count(u)--
		touched = append(touched, u.wanted...)
		a.release(addr, u)
	}
	return touched
}

func (a *addresses) use(addr netip.Addr) *addressUse {
	u := a.uses[addr]
	if u == nil {
		u = &addressUse{}
		a.uses[addr] = u
	}
	return u
}

func (a *addresses) release(addr netip.Addr, u *addressUse) {
	if u.nodes == 0 && u.pods == 0 && u.services == 0 && len(u.wanted) == 0 {
		delete(a.uses, addr)
	}
}

// owner says who but svc has an address by right, or "".
func (a *addresses) owner(addr netip.Addr, svc *model.Service) string {
	u := a.uses[addr]
	if u == nil {
		return ""
	}
	services := u.services
	for _, own := range svc.ClusterIPs {
		if own == addr {
			services--
		}
	}
	switch {
	case u.nodes > 0:
		return "a node"
	case u.pods > 0:
		return "a pod"
	case services > 0:
		return "another service"
	}
	return ""
}

// wantedExternals are the external and load balancer addresses that a service asks for.
func wantedExternals(svc *model.Service) []netip.Addr {
	if svc == nil {
		return nil
	}
	out := make([]netip.Addr, 0, len(svc.ExternalIPs)+len(svc.LoadBalancerIPs))
	out = append(out, svc.ExternalIPs...)
	for _, ip := range svc.LoadBalancerIPs {
		if ip.Mode != model.IPModeProxy {
			out = append(out, ip.Addr)
		}
	}
	return out
}

func hasExternal(svc *model.Service) bool { return len(svc.ExternalIPs)+len(svc.LoadBalancerIPs) > 0 }

func hasNodePort(svc *model.Service) bool {
	return slices.ContainsFunc(svc.Ports, func(p model.ServicePort) bool { return p.NodePort != 0 })
}
