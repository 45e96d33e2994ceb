// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"time"
)

// PodPhase is a pod's status.phase.
type PodPhase string

// The phases.
const (
	PodPending   PodPhase = "Pending"
	PodRunning   PodPhase = "Running"
	PodSucceeded PodPhase = "Succeeded"
	PodFailed    PodPhase = "Failed"
)

// Pod is a Pod object.
type Pod struct {
	Name        ObjectName
	UID         string
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
	Node        string
	IPs         []netip.Addr
	Phase       PodPhase
	// Ready is the pod's Ready condition.
	Ready bool
	// Deleting: the object has a deletion timestamp.
	Deleting    bool
	HostNetwork bool
	// Ports are the named ports of all containers.
	Ports []ContainerPort
}

// ContainerPort is a named port of one of a pod's containers.
type ContainerPort struct {
	Name     string
	Port     uint16
	Protocol Protocol
}

// Kind implements Object.
func (*Pod) Kind() Kind { return KindPod }

// ObjectName implements Object.
func (p *Pod) ObjectName() ObjectName { return p.Name }

// Namespace is a Namespace object.
type Namespace struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
}

// Kind implements Object.
func (*Namespace) Kind() Kind { return KindNamespace }

// ObjectName implements Object.
func (n *Namespace) ObjectName() ObjectName { return ObjectName{Name: n.Name} }
