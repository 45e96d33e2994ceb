// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// candidate is an endpoint of a service port, once for each address and port.
type candidate struct {
	at netip.AddrPort
	ep *model.Endpoint
}

// collect gathers the endpoints of a port from all slices of its service. The same address may be
// in several slices, for a while with different conditions: the best one counts (rule 20).
func (s *scratch) collect(p *port) {
	for _, slice := range p.entry.slices {
		if slice.Headless || slice.Family != p.family {
			continue
		}
		for _, sp := range slice.Ports {
			if sp.Name != p.name || sp.Protocol != p.proto || sp.Port == 0 {
				continue
			}
			for i := range slice.Endpoints {
				ep := &slice.Endpoints[i]
				if !ep.Addr.IsValid() || model.FamilyOf(ep.Addr) != p.family {
					continue
				}
				at := netip.AddrPortFrom(ep.Addr, sp.Port)
				if j, known := s.index[at]; !known {
					s.index[at] = len(s.candidates)
					s.candidates = append(s.candidates, candidate{at, ep})
				} else if standing(ep) > standing(s.candidates[j].ep) {
					s.candidates[j].ep = ep
				}
			}
		}
	}
}

// standing orders endpoints with the same address by how far they can be relied upon.
func standing(ep *model.Endpoint) int {
	rank := 0
	switch {
	case ep.Ready:
		rank = 4
	case ep.Serving:
		rank = 2
	}
	if !ep.Terminating {
		rank++
	}
	return rank
}

// wantsLocal reports whether any frontend of the port may use its local list.
func (p *port) wantsLocal() bool {
	return slices.ContainsFunc(p.claims, func(cl claim) bool { return cl.flags&(ETPLocal|ITPLocal) != 0 })
}

// usable says which endpoints of a service port are in its lists (rule 3): ready ones, for the
// cluster list only those that topology prefers; if there are none at all, those that still serve
// while they terminate, wherever they are. The local list makes the same choice by itself, among
// this node's endpoints.
type usable struct {
	node, zone    string
	hints         hints
	clusterDrains bool // no endpoint is ready: terminating ones serve
	local         bool // a local list is wanted
	localDrains   bool
}

type hints uint8

const (
	noHints   hints = iota
	nodeHints       // only endpoints that are hinted for this node
	zoneHints       // only endpoints that are hinted for this node's zone
)

// categorize looks at all endpoints of a service port once.
func categorize(candidates []candidate, node, zone string, local bool) usable {
	u := usable{node: node, zone: zone, local: local, clusterDrains: true, localDrains: true}
	allNode, allZone, anyNode, anyZone := true, true, false, false
	for _, cand := range candidates {
		ep := cand.ep
		if !ep.Ready {
			continue
		}
		u.clusterDrains = false
		if u.here(ep) {
			u.localDrains = false
		}
		allNode = allNode && len(ep.NodeHints) > 0
		allZone = allZone && len(ep.ZoneHints) > 0
		anyNode = anyNode || slices.Contains(ep.NodeHints, node)
		anyZone = anyZone || slices.Contains(ep.ZoneHints, zone)
	}
	// Hints count only if every ready endpoint has one, and only if one leads here: else clients
	// of this node would be left without endpoints (rule 4).
	switch {
	case allNode && anyNode:
		u.hints = nodeHints
	case allZone && anyZone:
		u.hints = zoneHints
	}
	return u
}

func (u *usable) here(ep *model.Endpoint) bool { return ep.Node != "" && ep.Node == u.node }

func (u *usable) inCluster(cand *candidate) bool {
	ep := cand.ep
	if u.clusterDrains {
		return ep.Serving && ep.Terminating
	}
	switch {
	case !ep.Ready:
		return false
	case u.hints == nodeHints:
		return slices.Contains(ep.NodeHints, u.node)
	case u.hints == zoneHints:
		return slices.Contains(ep.ZoneHints, u.zone)
	}
	return true
}

func (u *usable) inLocal(cand *candidate) bool {
	ep := cand.ep
	if !u.local || !u.here(ep) {
		return false
	}
	if u.localDrains {
		return ep.Serving && ep.Terminating
	}
	return ep.Ready
}
