// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"time"
)

// WorkloadEndpoint is a pod's interface on this node, as its endpoint file (version 1) tells.
type WorkloadEndpoint struct {
	// ID is the container id: the name of the endpoint file.
	ID string
	// Pod and PodUID name the pod.
	Pod    ObjectName
	PodUID string
	// Netns is the path of the pod's network namespace.
	Netns string
	// HostInterface and PodInterface are the two ends of the veth pair.
	HostInterface string
	PodInterface  string
	HostMAC       MAC
	PodMAC        MAC
	Addresses     []netip.Addr
	// SourcePrefixes are sources besides its addresses that the pod may send from.
	SourcePrefixes []netip.Prefix
	// Created is when the endpoint file appeared; of two endpoints with one address the older
	// keeps it.
	Created time.Time
}

// Kind implements Object.
func (*WorkloadEndpoint) Kind() Kind { return KindWorkloadEndpoint }

// ObjectName implements Object.
func (e *WorkloadEndpoint) ObjectName() ObjectName { return ObjectName{Name: e.ID} }
