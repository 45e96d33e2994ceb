// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"time"
)

// Source says where the agent learns about the cluster.
type Source string

// The sources.
const (
	SourceFiles      Source = "Files"      // a directory of manifests
	SourceKubernetes Source = "Kubernetes" // an API server
)

// Overlay says how packets travel between pods on different nodes.
type Overlay string

// The overlays.
const (
	OverlayVXLAN  Overlay = "VXLAN"  // encapsulated, to the node's address
	OverlayDirect Overlay = "Direct" // routed as they are: all nodes share a link, or the network knows the pods
)

// Family chooses the address family of the underlay.
type Family string

// The families.
const (
	FamilyAuto Family = "Auto" // IPv4 where both nodes have it, else IPv6
	FamilyIPv4 Family = "IPv4"
	FamilyIPv6 Family = "IPv6"
)

// AttachType chooses how programs are attached to host interfaces. Workload interfaces always use
// a clsact filter.
type AttachType string

// The ways to attach.
const (
	AttachAuto AttachType = "Auto" // TCX where the kernel has it, else TC
	AttachTCX  AttachType = "TCX"  // a pinned TCX link; Linux 6.6 or later
	AttachTC   AttachType = "TC"   // a clsact filter
)

// Switch turns something on or off.
type Switch string

// The positions of a switch.
const (
	Enabled  Switch = "Enabled"
	Disabled Switch = "Disabled"
)

// IptablesBackend is where the agent's netfilter chains are made.
type IptablesBackend string

// The back-ends.
const (
	IptablesAuto   IptablesBackend = "Auto"   // where rules already are, else NFT
	IptablesNFT    IptablesBackend = "NFT"    // nf_tables, by iptables-nft
	IptablesLegacy IptablesBackend = "Legacy" // xtables, by iptables-legacy
)

// ConnectTime says whose sockets get their service's backend when they connect, instead of packet by packet.
type ConnectTime string

// The modes of balancing at connect time.
const (
	ConnectTimeEnabled  ConnectTime = "Enabled"  // TCP and UDP, of the host and of pods
	ConnectTimeTCPOnly  ConnectTime = "TCPOnly"  // TCP alone
	ConnectTimeHostOnly ConnectTime = "HostOnly" // TCP and UDP, of the host alone
	ConnectTimeDisabled ConnectTime = "Disabled" // none
)

// LogFormat chooses the shape of a log line.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "Text"
	LogJSON LogFormat = "JSON"
)

// LogLevel is the least severe level that is logged.
type LogLevel string

// The log levels.
const (
	LevelError LogLevel = "Error"
	LevelWarn  LogLevel = "Warn"
	LevelInfo  LogLevel = "Info"
	LevelDebug LogLevel = "Debug"
)

// PortRange is a range of ports, both ends included.
type PortRange struct {
	First, Last uint16
}

// Count is the number of ports in the range.
func (r PortRange) Count() int { return int(r.Last) - int(r.First) + 1 }

// Contains says whether port lies in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// String is the form in which a range is written: "20000-29999".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Timeouts say how long a conntrack entry lives without a packet, by the state of its flow.
type Timeouts struct {
	TCPSynSent     time.Duration
	TCPEstablished time.Duration
	TCPFinsSeen    time.Duration
	TCPResetSeen   time.Duration
	UDP            time.Duration
	Generic        time.Duration
	ICMP           time.Duration
}

// MapSizes are the numbers of entries of the datapath's maps. Maps that exist once for each
// address family have that many entries in each.
type MapSizes struct {
	Conntrack         int
	ConntrackHalfOpen int
	NATFrontend       int
	NATBackend        int
	NATAffinity       int
	Routes            int
	Interfaces        int
}

// Config is the agent's settings, typed and checked. What each means is said once, in its row of
// the table ([Settings]).
type Config struct {
	NodeName                  string
	Source                    Source
	FilesDirectory            string
	Kubeconfig                string
	KubernetesServiceEndpoint string

	RunDirectory string
	BPFFSRoot    string

	IPv4Enabled              bool
	IPv6Enabled              bool
	WorkloadInterfacePattern *regexp.Regexp
	UplinkInterfacePattern   *regexp.Regexp // nil: chosen by default route and node address
	L3InterfacePattern       *regexp.Regexp // nil: none
	AttachType               AttachType
	DisabledFeatures         []string

	ConnectTimeLoadBalancing ConnectTime
	CgroupRoot               string // "": the host's cgroup2 mount

	Overlay        Overlay
	UnderlayFamily Family
	VXLANPort      uint16
	VXLANVNI       uint32
	PodMTU         int // 0: the uplink's, less the overlay's overhead
	MarkMask       uint32
	SourceNATPorts PortRange

	NATOutgoing               Switch
	NATOutgoingExclusionCIDRs []netip.Prefix
	IptablesBackend           IptablesBackend
	NetfilterRefreshInterval  time.Duration

	ConntrackTimeouts      Timeouts
	ConntrackSweepInterval time.Duration
	ConntrackSweepBudget   time.Duration
	AdoptionWindow         time.Duration

	MapSizes MapSizes

	ResyncInterval time.Duration
	HealthAddress  string // "": not served
	MetricsAddress string // "": not served
	LogLevel       LogLevel
	LogFormat      LogFormat
}

// MarkBits is the number of mark bits the datapath needs (bpf-c/marks.h).
const MarkBits = 9

// MarkShift is the position of the lowest mark bit in use: the lowest bit of MarkMask.
func (c *Config) MarkShift() uint8 {
	return uint8(bits.TrailingZeros32(c.MarkMask))
}

// Default returns the configuration of an agent of which nothing is set. NodeName is empty: its
// default is the host's name, which [Load] asks for.
func Default() Config {
	var c Config
	for i := range table {
		// A default that does not parse is found by the tests: it stands in this package's source.
		_ = table[i].set(&c, table[i].Default, exact)
	}
	return c
}
