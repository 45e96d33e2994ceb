// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Flags of a frontend, with the values of enum cali_fe_flag (bpf-c/types.h).
type Flags uint32

// The flags that are set today.
const (
	External    Flags = 1 << 0  // NodePort, ExternalIP or LB IP; else ClusterIP
	ETPLocal    Flags = 1 << 1  // traffic from outside uses the local list
	ITPLocal    Flags = 1 << 2  // traffic from inside uses the local list
	DropNoLocal Flags = 1 << 11 // the local list is empty but the cluster list is not: drop, do not refuse
	IsNodePort  Flags = 1 << 12
)

// Bits of an ordinal that say which list it belongs to (enum cali_be_list).
const (
	ClusterList uint32 = 0
	LocalList   uint32 = 0x80000000
	ByIDList    uint32 = 0x40000000
)

// Flags of a by-id backend entry: the lists its backend is in (enum cali_be_flag).
const (
	InCluster uint32 = 1 << 0
	InLocal   uint32 = 1 << 1
)

// Wildcard is the address of frontends that serve a NodePort on the addresses of other nodes.
func Wildcard(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	return allOnes6
}

var allOnes6 = netip.AddrFrom16([16]byte{
	255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
})

// FrontendKey is what clients connect to. Its family is that of the address.
type FrontendKey struct {
	Addr  netip.Addr
	Port  uint16
	Proto model.Protocol
}

// Family returns the family of the frontend, and so the map it belongs to.
func (k FrontendKey) Family() model.Family { return model.FamilyOf(k.Addr) }

// String returns "10.96.0.1:80/TCP"; a wildcard's address is written as *.
func (k FrontendKey) String() string {
	if k.Addr == Wildcard(k.Family()) {
		return fmt.Sprintf("*:%d/%s (%s)", k.Port, k.Proto, k.Family())
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), k.Proto)
}

// FrontendValue says where a frontend's traffic goes.
type FrontendValue struct {
	ServiceID uint32
	Flags     Flags
	// AffinityTimeout is in seconds; 0: no client affinity.
	AffinityTimeout uint32
	// ClusterCount and LocalCount are the lengths of the service port's two lists.
	ClusterCount uint32
	LocalCount   uint32
}

// Frontend is one entry of a frontend map.
type Frontend struct {
	Key   FrontendKey
	Value FrontendValue
}

// BackendKey is the place of a backend: service port and list position (or ByIDList | backend id).
type BackendKey struct {
	Family    model.Family
	ServiceID uint32
	Ordinal   uint32
}

// BackendValue is a backend.
type BackendValue struct {
	Addr   netip.Addr
	Port   uint16
	Weight uint16
	// ID is stable for as long as the service port has a backend with this address and port.
	ID    uint32
	Flags uint32
}

// Backend is one entry of a backend map.
type Backend struct {
	Key   BackendKey
	Value BackendValue
}

// Delta is what must be done to the maps, in the order of its fields. After every single write
// each frontend's counts cover only backends that exist.
//
// Whoever applies it must not write a frontend of a service port whose backends it could not
// write, and must not delete before the frontends are written.
type Delta struct {
	Backends        []Backend
	Frontends       []Frontend
	DeleteFrontends []FrontendKey
	DeleteBackends  []BackendKey
	// Problems that are new with this change; Calculator.Problems has all that stand.
	Problems []model.ObjectError
}

// Empty reports whether there is nothing to write or delete.
func (d Delta) Empty() bool {
	return len(d.Backends) == 0 && len(d.Frontends) == 0 && len(d.DeleteFrontends) == 0 && len(d.DeleteBackends) == 0
}

// NodePortMode says on which of the node's addresses NodePorts are served.
type NodePortMode uint8

// The modes.
const (
	NodePortAll     NodePortMode = iota // every address of the node
	NodePortPrimary                     // the node's main address of each family
	NodePortCIDRs                       // addresses inside Options.NodePortCIDRs
)

// Options is what the calculator must know of this node and its configuration.
type Options struct {
	// NodeName tells local endpoints from others.
	NodeName string
	// Zone is used until this node's Node object tells its own.
	Zone string
	// Addresses are the node's own addresses: all that its interfaces have. Loopback, link-local
	// and multicast ones are ignored.
	Addresses []netip.Addr
	// Primary are the node's main addresses, at most one of each family; for NodePortPrimary.
	Primary []netip.Addr

	NodePorts     NodePortMode
	NodePortCIDRs []netip.Prefix

	// ExternalIPs allows spec.externalIPs at all; AllowedExternalCIDRs, if any, limits them.
	ExternalIPs          bool
	AllowedExternalCIDRs []netip.Prefix
	// ServiceCIDRs, where known, are ranges that external and load balancer addresses must not be
	// in.
	ServiceCIDRs []netip.Prefix
}
