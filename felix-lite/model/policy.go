// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"time"
)

// NetworkPolicy is a networking.k8s.io/v1 NetworkPolicy, its defaults applied.
type NetworkPolicy struct {
	Name    ObjectName
	UID     string
	Created time.Time
	// Pods selects the pods of the policy's namespace that it applies to.
	Pods Selector
	// Ingress and Egress say which directions the policy isolates.
	Ingress, Egress bool
	// IngressRules and EgressRules are what it allows.
	IngressRules, EgressRules []PolicyRule
}

// PolicyRule allows traffic of any of its peers on any of its ports. No peers means everybody,
// no ports means everything.
type PolicyRule struct {
	Peers []PolicyPeer
	Ports []PolicyPort
}

// PolicyPeer is either a block of addresses, or pods by namespace and pod selector.
type PolicyPeer struct {
	// Block is the peer's CIDR, invalid if the peer is given by selectors.
	Block  netip.Prefix
	Except []netip.Prefix
	// Namespaces is nil for "the policy's own namespace".
	Namespaces *Selector
	// Pods is nil for "all pods".
	Pods *Selector
}

// PolicyPort is a protocol with an optional port, port name or range.
type PolicyPort struct {
	Protocol Protocol
	Port     PortRef
	EndPort  uint16
}

// Selector selects by labels. The zero value selects everything.
type Selector struct {
	MatchLabels map[string]string
	Expressions []Requirement
}

// Requirement is one expression of a selector; Operator is In, NotIn, Exists or DoesNotExist.
type Requirement struct {
	Key      string
	Operator string
	Values   []string
}

// Kind implements Object.
func (*NetworkPolicy) Kind() Kind { return KindNetworkPolicy }

// ObjectName implements Object.
func (p *NetworkPolicy) ObjectName() ObjectName { return p.Name }

// Validate implements Object.
func (p *NetworkPolicy) Validate() []ObjectError {
	r := newReport(p, true)
	p.Pods.validate(r, "spec.podSelector")
	for i, rule := range p.IngressRules {
		rule.validate(r, fmt.Sprintf("spec.ingress[%d]", i))
	}
	for i, rule := range p.EgressRules {
		rule.validate(r, fmt.Sprintf("spec.egress[%d]", i))
	}
	return r.errors
}

func (rule PolicyRule) validate(r *report, field string) {
	for i, p := range rule.Peers {
		at := fmt.Sprintf("%s.peers[%d]", field, i)
		if p.Block.IsValid() {
			for j, e := range p.Except {
				if r.prefix(fmt.Sprintf("%s.ipBlock.except[%d]", at, j), e) && !(p.Block.Overlaps(e) && e.Bits() >= p.Block.Bits()) {
					r.add(fmt.Sprintf("%s.ipBlock.except[%d]", at, j), "%s is not inside %s", e, p.Block)
				}
			}
		}
		if p.Namespaces != nil {
			p.Namespaces.validate(r, at+".namespaceSelector")
		}
		if p.Pods != nil {
			p.Pods.validate(r, at+".podSelector")
		}
	}
	for i, p := range rule.Ports {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		r.protocol(at+".protocol", p.Protocol)
		if p.EndPort != 0 && (p.Port.Number == 0 || p.EndPort < p.Port.Number) {
			r.add(at+".endPort", "%d must not be below a numeric port", p.EndPort)
		}
	}
}

func (s Selector) validate(r *report, field string) {
	for i, e := range s.Expressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", field, i)
		switch e.Operator {
		case "In", "NotIn":
			if len(e.Values) == 0 {
				r.add(at+".values", "must not be empty for operator %s", e.Operator)
			}
		case "Exists", "DoesNotExist":
			if len(e.Values) != 0 {
				r.add(at+".values", "must be empty for operator %s", e.Operator)
			}
		default:
			r.add(at+".operator", "unknown operator %q", e.Operator)
		}
	}
}
