// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"iter"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// PortStatus describes one service port for people.
type PortStatus struct {
	Service   model.ObjectName
	Port      string // the port's name, may be empty
	Type      model.ServiceType
	Family    model.Family
	Protocol  model.Protocol
	ServiceID uint32 // 0 if it owns no frontend
	// Frontends are the ones it owns; those lost to another service are in Problems.
	Frontends []FrontendKey
	Cluster   []BackendValue
	Local     []BackendValue
	Affinity  uint32 // seconds; 0: none
}

// Describe lists the service ports, ordered by service, port and family.
func (c *Calculator) Describe() []PortStatus {
	var out []PortStatus
	for _, e := range c.entries {
		for f, ports := range e.ports {
			for _, p := range ports {
				s := PortStatus{
					Service: e.name, Port: p.name, Type: e.svc.Type, Family: p.family, Protocol: p.proto, ServiceID: p.id,
					Cluster: slices.Clone(p.cluster), Local: slices.Clone(p.local), Affinity: p.affinity,
				}
				for _, cl := range p.claims {
					if c.tables[f].frontends[cl.key].owner == p {
						s.Frontends = append(s.Frontends, cl.key)
					}
				}
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b PortStatus) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Family, b.Family))
	})
	return out
}

// Frontends iterates over the desired frontend map of a family.
func (c *Calculator) Frontends(f model.Family) iter.Seq2[FrontendKey, FrontendValue] {
	return func(yield func(FrontendKey, FrontendValue) bool) {
		for k, fe := range c.tables[f].frontends {
			if fe.owner != nil && !yield(k, fe.value) {
				return
			}
		}
	}
}

// Backends iterates over the desired backend map of a family.
func (c *Calculator) Backends(f model.Family) iter.Seq2[BackendKey, BackendValue] {
	return func(yield func(BackendKey, BackendValue) bool) {
		for _, e := range c.entries {
			for _, p := range e.ports[f] {
				if !p.eachBackend(yield) {
					return
				}
			}
		}
	}
}

func (p *port) eachBackend(yield func(BackendKey, BackendValue) bool) bool {
	for i, v := range p.cluster {
		if !yield(BackendKey{p.family, p.id, ClusterList | uint32(i)}, v) {
			return false
		}
	}
	for i, v := range p.local {
		if !yield(BackendKey{p.family, p.id, LocalList | uint32(i)}, v) {
			return false
		}
	}
	for id, v := range p.byID {
		if !yield(BackendKey{p.family, p.id, ByIDList | id}, v) {
			return false
		}
	}
	return true
}
