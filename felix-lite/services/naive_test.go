// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"sort"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// world is the state of a cluster as the naive evaluator sees it: everything, at once.
type world struct {
	services map[model.ObjectName]*model.Service
	slices   map[model.ObjectName]*model.EndpointSlice
	nodes    map[string]*model.Node
	pods     map[model.ObjectName]*model.Pod
	opts     Options
	zone     string // own zone as last told
}

func newWorld(o Options) *world {
	return &world{
		services: map[model.ObjectName]*model.Service{}, slices: map[model.ObjectName]*model.EndpointSlice{},
		nodes: map[string]*model.Node{}, pods: map[model.ObjectName]*model.Pod{}, opts: o, zone: o.Zone,
	}
}

func (w *world) apply(changes []model.Change) {
	for _, ch := range changes {
		switch o := ch.Object.(type) {
		case *model.Service:
			w.services[ch.Name] = o
		case *model.EndpointSlice:
			w.slices[ch.Name] = o
		case *model.Node:
			w.nodes[ch.Name.Name] = o
			if o.Name == w.opts.NodeName && o.Zone != "" {
				w.zone = o.Zone
			}
		case *model.Pod:
			w.pods[ch.Name] = o
		case nil:
			switch ch.Kind {
			case model.KindService:
				delete(w.services, ch.Name)
			case model.KindEndpointSlice:
				delete(w.slices, ch.Name)
			case model.KindNode:
				delete(w.nodes, ch.Name.Name)
			case model.KindPod:
				delete(w.pods, ch.Name)
			}
		}
	}
}

// portName identifies a service port in the naive evaluator.
type portName struct {
	svc    model.ObjectName
	port   string
	proto  model.Protocol
	family model.Family
}

// target is a backend as a packet sees it.
type target struct {
	at     netip.AddrPort
	weight uint16
}

// truth is what the maps must say, free of ids and order.
type truth struct {
	owner    map[FrontendKey]portName
	flags    map[FrontendKey]Flags
	affinity map[portName]uint32
	cluster  map[portName]map[target]bool
	local    map[portName]map[target]bool
}

// evaluate computes the truth from scratch, rule by rule, without regard to cost.
func (w *world) evaluate() truth {
	t := truth{
		owner: map[FrontendKey]portName{}, flags: map[FrontendKey]Flags{}, affinity: map[portName]uint32{},
		cluster: map[portName]map[target]bool{}, local: map[portName]map[target]bool{},
	}
	type wish struct {
		svc   *model.Service
		port  portName
		key   FrontendKey
		flags Flags
	}
	var wishes []wish
	for _, svc := range w.services {
		if skipped(svc) {
			continue
		}
		for _, ip := range svc.ClusterIPs {
			f := model.FamilyOf(ip)
			for _, sp := range svc.Ports {
				name := portName{svc.Name, sp.Name, sp.Protocol, f}
				itp, etp := Flags(0), External
				if svc.InternalTrafficPolicy == model.PolicyLocal {
					itp = ITPLocal
				}
				if svc.ExternalTrafficPolicy == model.PolicyLocal {
					etp |= ETPLocal
				}
				ask := func(a netip.Addr, port uint16, fl Flags) {
					for _, have := range wishes {
						if have.port == name && have.key == (FrontendKey{a, port, sp.Protocol}) {
							return
						}
					}
					wishes = append(wishes, wish{svc, name, FrontendKey{a, port, sp.Protocol}, fl})
				}
				ask(ip, sp.Port, itp)
				for _, a := range svc.ExternalIPs {
					if model.FamilyOf(a) == f && w.opts.ExternalIPs && !w.takenBySomebody(a, svc) {
						ask(a, sp.Port, etp)
					}
				}
				for _, lb := range svc.LoadBalancerIPs {
					if model.FamilyOf(lb.Addr) == f && lb.Mode != model.IPModeProxy && len(svc.LoadBalancerSourceRanges) == 0 && !w.takenBySomebody(lb.Addr, svc) {
						ask(lb.Addr, sp.Port, etp)
					}
				}
				if sp.NodePort != 0 {
					for _, a := range w.opts.Addresses {
						if model.FamilyOf(a) == f && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
							ask(a, sp.NodePort, etp|IsNodePort)
						}
					}
					ask(Wildcard(f), sp.NodePort, etp|IsNodePort)
				}
			}
		}
	}
	sort.SliceStable(wishes, func(i, j int) bool {
		a, b := wishes[i], wishes[j]
		if ax, bx := a.flags&External != 0, b.flags&External != 0; ax != bx {
			return bx
		}
		if !a.svc.Created.Equal(b.svc.Created) {
			return a.svc.Created.Before(b.svc.Created)
		}
		if a.svc.Name != b.svc.Name {
			return a.svc.Name.String() < b.svc.Name.String()
		}
		return a.port.port < b.port.port
	})
	used := map[portName]*model.Service{}
	local := map[portName]bool{}
	for _, wi := range wishes {
		if wi.flags&(ITPLocal|ETPLocal) != 0 {
			local[wi.port] = true
		}
		if _, taken := t.owner[wi.key]; taken {
			continue
		}
		t.owner[wi.key], t.flags[wi.key] = wi.port, wi.flags
		used[wi.port] = wi.svc
	}
	for p, svc := range used {
		if svc.SessionAffinity == model.AffinityClientIP {
			t.affinity[p] = uint32(svc.AffinityTimeout.Seconds())
			if t.affinity[p] == 0 {
				t.affinity[p] = 10800
			}
		}
		t.cluster[p], t.local[p] = w.endpoints(p, local[p])
	}
	for k, p := range t.owner {
		if t.flags[k]&(ETPLocal|ITPLocal) != 0 && len(t.local[p]) == 0 && len(t.cluster[p]) > 0 {
			t.flags[k] |= DropNoLocal
		}
	}
	return t
}

func skipped(svc *model.Service) bool {
	_, proxy := svc.Labels["service.kubernetes.io/service-proxy-name"]
	_, headless := svc.Labels["service.kubernetes.io/headless"]
	return proxy || headless || svc.Headless || svc.Type == model.ExternalName || len(svc.ClusterIPs) == 0
}

func (w *world) takenBySomebody(a netip.Addr, svc *model.Service) bool {
	for _, n := range w.nodes {
		for _, na := range n.Addresses {
			if na.Addr == a {
				return true
			}
		}
	}
	for _, p := range w.pods {
		for _, ip := range p.IPs {
			if ip == a && !p.HostNetwork && p.Phase != model.PodSucceeded && p.Phase != model.PodFailed {
				return true
			}
		}
	}
	for _, o := range w.services {
		for _, ip := range o.ClusterIPs {
			if ip == a && o.Name != svc.Name {
				return true
			}
		}
	}
	return false
}

// endpoints follows kube-proxy's description: filter, fall back, filter again for the local list.
func (w *world) endpoints(p portName, withLocal bool) (cluster, local map[target]bool) {
	best := map[netip.AddrPort]model.Endpoint{}
	var names []model.ObjectName
	for n := range w.slices {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
	score := func(e model.Endpoint) (s int) {
		if e.Ready {
			s += 10
		} else if e.Serving {
			s += 5
		}
		if !e.Terminating {
			s++
		}
		return s
	}
	for _, n := range names {
		s := w.slices[n]
		if s.Service != p.svc || s.Family != p.family || s.Headless {
			continue
		}
		for _, sp := range s.Ports {
			if sp.Name != p.port || sp.Protocol != p.proto {
				continue
			}
			for _, e := range s.Endpoints {
				at := netip.AddrPortFrom(e.Addr, sp.Port)
				if have, ok := best[at]; !ok || score(e) > score(have) {
					best[at] = e
				}
			}
		}
	}
	pick := func(keep func(model.Endpoint) bool) map[target]bool {
		out := map[target]bool{}
		for at, e := range best {
			if keep(e) {
				out[target{at, max(1, e.Weight)}] = true
			}
		}
		return out
	}
	ready := func(e model.Endpoint) bool { return e.Ready }
	draining := func(e model.Endpoint) bool { return e.Serving && e.Terminating }
	here := func(e model.Endpoint) bool { return e.Node == w.opts.NodeName }
	has := func(list []string, s string) bool {
		for _, x := range list {
			if x == s {
				return true
			}
		}
		return false
	}
	all := pick(ready)
	cluster = all
	nodeHinted := pick(func(e model.Endpoint) bool { return e.Ready && len(e.NodeHints) > 0 })
	zoneHinted := pick(func(e model.Endpoint) bool { return e.Ready && len(e.ZoneHints) > 0 })
	toNode := pick(func(e model.Endpoint) bool { return e.Ready && has(e.NodeHints, w.opts.NodeName) })
	toZone := pick(func(e model.Endpoint) bool { return e.Ready && has(e.ZoneHints, w.zone) })
	switch {
	case len(all) == 0:
		cluster = pick(draining)
	case len(nodeHinted) == len(all) && len(toNode) > 0:
		cluster = toNode
	case len(zoneHinted) == len(all) && len(toZone) > 0:
		cluster = toZone
	}
	if withLocal {
		local = pick(func(e model.Endpoint) bool { return ready(e) && here(e) })
		if len(local) == 0 {
			local = pick(func(e model.Endpoint) bool { return draining(e) && here(e) })
		}
	}
	return cluster, local
}
