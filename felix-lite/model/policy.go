// SPDX-License-Identifier: Apache-2.0

package model

import (
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
