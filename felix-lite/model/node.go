// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"time"
)

// NodeAddressType is the type of an entry of a node's status.addresses. Host names are left out.
type NodeAddressType string

// The address types.
const (
	NodeInternalIP NodeAddressType = "InternalIP"
	NodeExternalIP NodeAddressType = "ExternalIP"
)

// Node is a Node object.
type Node struct {
	Name        string
	UID         string
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
	Addresses   []NodeAddress
	PodCIDRs    []netip.Prefix
	Taints      []Taint
	// Zone is the topology.kubernetes.io/zone label.
	Zone  string
	Ready bool
	// Deleting: the object has a deletion timestamp.
	Deleting bool
}

// NodeAddress is one address of a node.
type NodeAddress struct {
	Type NodeAddressType
	Addr netip.Addr
}

// Taint is one taint of a node.
type Taint struct {
	Key    string
	Value  string
	Effect string
}

// Kind implements Object.
func (*Node) Kind() Kind { return KindNode }

// ObjectName implements Object.
func (n *Node) ObjectName() ObjectName { return ObjectName{Name: n.Name} }
