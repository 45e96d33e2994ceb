// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"time"
)

// EndpointSlice is a part of the endpoints of one service in one family.
type EndpointSlice struct {
	Name ObjectName
	// Service is the service the slice belongs to, by its kubernetes.io/service-name label.
	Service ObjectName
	// Headless: the slice carries the service.kubernetes.io/headless label and is not to be used.
	Headless  bool
	Family    Family
	Ports     []EndpointPort
	Endpoints []Endpoint
	// Triggered is when the change happened that this state of the slice tells of
	// (endpoints.kubernetes.io/last-change-trigger-time); zero if unknown.
	Triggered time.Time
}

// EndpointPort is one port that all endpoints of a slice have. A slice entry without a port
// number ("all ports") is left out by the source: a service port can not use it.
type EndpointPort struct {
	Name        string
	Protocol    Protocol
	Port        uint16
	AppProtocol string
}

// Endpoint is one backend. The conditions are resolved: an absent ready or serving is true, an
// absent terminating is false.
type Endpoint struct {
	// Addr is the first of the API object's addresses; the others are alike by definition.
	Addr        netip.Addr
	Ready       bool
	Serving     bool
	Terminating bool
	// Node is the node that hosts the endpoint, empty if unknown.
	Node string
	Zone string
	// ZoneHints and NodeHints name the zones and nodes whose clients should use this endpoint.
	ZoneHints []string
	NodeHints []string
	// Pod is the pod behind the endpoint, zero if it is something else.
	Pod ObjectName
	// Weight is relative to the service's other endpoints; 0 means 1.
	Weight uint16
}

// Kind implements Object.
func (*EndpointSlice) Kind() Kind { return KindEndpointSlice }

// ObjectName implements Object.
func (s *EndpointSlice) ObjectName() ObjectName { return s.Name }
