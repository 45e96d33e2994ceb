// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"time"
)

// Labels that decide whether a service or slice is ours to program.
const (
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless         = "service.kubernetes.io/headless"
	LabelServiceName      = "kubernetes.io/service-name"
	LabelZone             = "topology.kubernetes.io/zone"
)

// AnnotationWeight, on a pod, is the weight of the endpoints derived from it.
const AnnotationWeight = "felix-lite.io/weight"

// ServiceType is a service's spec.type.
type ServiceType string

// The service types.
const (
	ClusterIP    ServiceType = "ClusterIP"
	NodePort     ServiceType = "NodePort"
	LoadBalancer ServiceType = "LoadBalancer"
	ExternalName ServiceType = "ExternalName"
)

// TrafficPolicy is a service's internal or external traffic policy.
type TrafficPolicy string

// The traffic policies. Empty means Cluster.
const (
	PolicyCluster TrafficPolicy = "Cluster"
	PolicyLocal   TrafficPolicy = "Local"
)

// Affinity is a service's session affinity.
type Affinity string

// The session affinities. Empty means None.
const (
	AffinityNone     Affinity = "None"
	AffinityClientIP Affinity = "ClientIP"
)

// DefaultAffinityTimeout applies where a service has client affinity and gives no timeout.
const DefaultAffinityTimeout = 10800 * time.Second

// IPMode says who carries traffic to a load balancer's address (status.loadBalancer.ingress.ipMode).
type IPMode string

// The modes. Empty means VIP: nodes take traffic to the address themselves.
const (
	IPModeVIP   IPMode = "VIP"
	IPModeProxy IPMode = "Proxy"
)

// Service is a Service object, whether or not it is one that gets programmed: package services
// decides that.
type Service struct {
	Name    ObjectName
	UID     string
	Created time.Time
	// Labels and Annotations hold at least those that matter here: the service.kubernetes.io/*
	// labels and the *.felix-lite.io/* annotations.
	Labels      map[string]string
	Annotations map[string]string

	Type ServiceType
	// Headless: clusterIP is None.
	Headless   bool
	ClusterIPs []netip.Addr
	Ports      []ServicePort
	// Selector picks the pods of the service; used only where no EndpointSlice is given.
	Selector map[string]string

	ExternalIPs              []netip.Addr
	LoadBalancerIPs          []LoadBalancerIP
	LoadBalancerSourceRanges []netip.Prefix

	InternalTrafficPolicy TrafficPolicy
	ExternalTrafficPolicy TrafficPolicy
	TrafficDistribution   string

	SessionAffinity Affinity
	// AffinityTimeout is 0 where the service gives none.
	AffinityTimeout time.Duration

	PublishNotReadyAddresses bool
	HealthCheckNodePort      uint16
}

// ServicePort is one port of a service.
type ServicePort struct {
	Name        string
	Protocol    Protocol
	Port        uint16
	TargetPort  PortRef
	NodePort    uint16
	AppProtocol string
}

// LoadBalancerIP is one address of status.loadBalancer.ingress.
type LoadBalancerIP struct {
	Addr netip.Addr
	Mode IPMode
}

// Kind implements Object.
func (*Service) Kind() Kind { return KindService }

// ObjectName implements Object.
func (s *Service) ObjectName() ObjectName { return s.Name }
