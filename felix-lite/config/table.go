// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"regexp"
	"time"
)

// Apply says when a changed setting takes effect.
type Apply string

// When a changed setting takes effect.
const (
	Live    Apply = "Live"    // when the file is read again
	Restart Apply = "Restart" // when the agent is started again; traffic goes on meanwhile
)

// Setting is one row of the table.
type Setting struct {
	Name    string // as in the file; a dot goes one level down
	Group   string // heading in the documentation
	Default string // as text, in the form that environment and flags take
	Apply   Apply
	Doc     string

	value
}

// Type is the setting's type and bounds, for people.
func (s *Setting) Type() string { return s.typeName }

// Values are the names an enum takes; nil for other types.
func (s *Setting) Values() []string { return s.values }

// Settings returns the table: every setting there is, in the order of the documentation. The
// result is shared and must not be changed.
func Settings() []Setting { return table }

// maxMapEntries bounds the size of a map: more than this is a slip of the pen.
const maxMapEntries = 1 << 24

// table is the one place where a setting is described.
var table = []Setting{
	{
		Name: "nodeName", Group: "Where the agent is and what it reads", Apply: Restart,
		Doc:   "Name of this node, as in its Node object. Empty: the host's name, in lower case.",
		value: str(func(c *Config) *string { return &c.NodeName }, nodeNameRule),
	},
	{
		Name: "source", Default: "Files", Apply: Restart,
		Doc: "Where Services, EndpointSlices, Pods, Nodes and Namespaces come from: `Files` watches a directory of " +
			"manifests, `Kubernetes` an API server.",
		value: enum(func(c *Config) *Source { return &c.Source }, SourceFiles, SourceKubernetes),
	},
	{
		Name: "filesDirectory", Default: "/etc/felix-lite/manifests", Apply: Restart,
		Doc:   "Directory of `*.yaml`, `*.yml` and `*.json` manifests for source `Files`. It may appear later.",
		value: path(func(c *Config) *string { return &c.FilesDirectory }, absolute),
	},
	{
		Name: "kubeconfig", Apply: Restart,
		Doc:   "Credentials for source `Kubernetes`. Empty: the pod's service account.",
		value: path(func(c *Config) *string { return &c.Kubeconfig }, absolute),
	},
	{
		Name: "kubernetesServiceEndpoint", Apply: Restart,
		Doc: "Address of the API server, `host:port` or an `https://` URL, in place of the one in kubeconfig or service account. " +
			"Set it where felix-lite itself serves the `kubernetes` Service: the agent must not wait for itself.",
		value: str(func(c *Config) *string { return &c.KubernetesServiceEndpoint }, apiServerRule),
	},
	{
		Name: "runDirectory", Default: "/run/felix-lite", Apply: Restart,
		Doc:   "Directory of endpoint files, their status files and sockets; on a tmpfs, so that a reboot cleans it.",
		value: path(func(c *Config) *string { return &c.RunDirectory }, notEmpty, absolute),
	},
	{
		Name: "bpffsRoot", Default: "/sys/fs/bpf", Apply: Restart,
		Doc:   "BPF file system that holds the pinned maps and links, below `tc/`.",
		value: path(func(c *Config) *string { return &c.BPFFSRoot }, notEmpty, absolute),
	},

	{
		Name: "ipv4Enabled", Group: "Interfaces", Default: "true", Apply: Restart,
		Doc:   "Serve IPv4.",
		value: boolean(func(c *Config) *bool { return &c.IPv4Enabled }),
	},
	{
		Name: "ipv6Enabled", Default: "true", Apply: Restart,
		Doc:   "Serve IPv6.",
		value: boolean(func(c *Config) *bool { return &c.IPv6Enabled }),
	},
	{
		Name: "workloadInterfacePattern", Default: "^cali", Apply: Restart,
		Doc:   "Names of the host sides of pods' interfaces.",
		value: pattern(func(c *Config) **regexp.Regexp { return &c.WorkloadInterfacePattern }, patternGiven),
	},
	{
		Name: "uplinkInterfacePattern", Apply: Restart,
		Doc:   "Names of the interfaces that lead out of the node. Empty: those with a default route or the node's address.",
		value: pattern(func(c *Config) **regexp.Regexp { return &c.UplinkInterfacePattern }),
	},
	{
		Name: "l3InterfacePattern", Apply: Restart,
		Doc:   "Names of host interfaces without Ethernet header (TUN, WireGuard) to attach to. Empty: none.",
		value: pattern(func(c *Config) **regexp.Regexp { return &c.L3InterfacePattern }),
	},
	{
		Name: "attachType", Default: "Auto", Apply: Restart,
		Doc: "How programs are attached to host interfaces: `TCX` links (Linux 6.6 or later), `TC` clsact filters, or `Auto`: TCX " +
			"where the kernel has it.",
		value: enum(func(c *Config) *AttachType { return &c.AttachType }, AttachAuto, AttachTCX, AttachTC),
	},
	{
		Name: "disabledFeatures", Apply: Restart,
		Doc:   "Kernel features to treat as missing, for tests and to go around a kernel's fault.",
		value: list(func(c *Config) *[]string { return &c.DisabledFeatures }, featureRule),
	},

	{
		Name: "connectTimeLoadBalancing", Group: "Sockets", Default: "Enabled", Apply: Restart,
		Doc: "Whose sockets get a service's backend when they connect, so that no packet of theirs is translated: `Enabled` TCP and UDP " +
			"of the host and of pods, `TCPOnly`, `HostOnly` only the host's, `Disabled` nobody's. What is not balanced so is balanced " +
			"packet by packet. A pod or namespace opts out by the annotation `felix-lite.io/socket-lb: \"disabled\"`.",
		value: enum(func(c *Config) *ConnectTime { return &c.ConnectTimeLoadBalancing }, ConnectTimeEnabled, ConnectTimeTCPOnly,
			ConnectTimeHostOnly, ConnectTimeDisabled),
	},
	{
		Name: "cgroupRoot", Apply: Restart,
		Doc: "Directory of the cgroup2 hierarchy whose processes are balanced at connect time. Empty: the host's root, wherever it is " +
			"mounted.",
		value: path(func(c *Config) *string { return &c.CgroupRoot }, absolute),
	},

	{
		Name: "overlay", Group: "Between nodes", Default: "VXLAN", Apply: Restart,
		Doc: "How packets travel between pods of different nodes: `VXLAN`, or `Direct` where the nodes share a link. NodePort " +
			"traffic to another node's backend goes by VXLAN in both, so that the client's address is kept.",
		value: enum(func(c *Config) *Overlay { return &c.Overlay }, OverlayVXLAN, OverlayDirect),
	},
	{
		Name: "underlayFamily", Default: "Auto", Apply: Restart,
		Doc:   "Family of the node addresses that packets between nodes use. `Auto`: IPv4 if this node has it, else IPv6.",
		value: enum(func(c *Config) *Family { return &c.UnderlayFamily }, FamilyAuto, FamilyIPv4, FamilyIPv6),
	},
	{
		Name: "vxlanPort", Default: "4789", Apply: Restart,
		Doc:   "UDP port of the overlay, the same on all nodes.",
		value: integer(func(c *Config) *uint16 { return &c.VXLANPort }, 1, 65535),
	},
	{
		Name: "vxlanVNI", Default: "4096", Apply: Restart,
		Doc:   "VXLAN network identifier, the same on all nodes.",
		value: integer(func(c *Config) *uint32 { return &c.VXLANVNI }, 1, 1<<24-1),
	},
	{
		Name: "podMTU", Default: "0", Apply: Restart,
		Doc:   "MTU of pods. 0: the uplink's less the overlay's overhead. Otherwise at least 1280, which IPv6 needs.",
		value: integer(func(c *Config) *int { return &c.PodMTU }, 0, 65535),
	},
	{
		Name: "markMask", Default: "0x1ff00000", Apply: Restart,
		Doc:   "Packet mark bits that belong to felix-lite: at least nine, side by side. Other bits are left alone.",
		value: mask(func(c *Config) *uint32 { return &c.MarkMask }, markRule),
	},
	{
		Name: "sourceNATPorts", Default: "20000-29999", Apply: Restart,
		Doc:   "Ports that replace a client's port where two flows to one backend would otherwise be the same.",
		value: ports(func(c *Config) *PortRange { return &c.SourceNATPorts }),
	},

	{
		Name: "natOutgoing", Group: "The node's netfilter", Default: "Enabled", Apply: Restart,
		Doc:   "Give what pods send out of the cluster the node's address (masquerading).",
		value: enum(func(c *Config) *Switch { return &c.NATOutgoing }, Enabled, Disabled),
	},
	{
		Name: "natOutgoingExclusionCIDRs", Apply: Restart,
		Doc: "Destinations outside of the cluster that see pods' own addresses. Pods and nodes always do. A range inside of a " +
			"node's pod range is refused.",
		value: cidrs(func(c *Config) *[]netip.Prefix { return &c.NATOutgoingExclusionCIDRs }),
	},
	{
		Name: "iptablesBackend", Default: "Auto", Apply: Restart,
		Doc: "Where the agent's netfilter chains are made: `NFT`, `Legacy`, or `Auto`: the one that has more rules already, `NFT` " +
			"where neither has.",
		value: enum(func(c *Config) *IptablesBackend { return &c.IptablesBackend }, IptablesAuto, IptablesNFT, IptablesLegacy),
	},
	{
		Name: "netfilterRefreshInterval", Default: "30s", Apply: Restart,
		Doc: "How often the agent's netfilter chains are compared with what they should be: netfilter does not tell of changes.",
		value: duration(func(c *Config) *time.Duration { return &c.NetfilterRefreshInterval },
			time.Second, time.Hour),
	},

	timeout("tcpSynSent", "Flows and their tables", 20*time.Second, "TCP, before the handshake is complete",
		func(t *Timeouts) *time.Duration { return &t.TCPSynSent }),
	timeout("tcpEstablished", "", time.Hour, "TCP, open",
		func(t *Timeouts) *time.Duration { return &t.TCPEstablished }),
	timeout("tcpFinsSeen", "", 30*time.Second, "TCP, closed by both ends",
		func(t *Timeouts) *time.Duration { return &t.TCPFinsSeen }),
	timeout("tcpResetSeen", "", 40*time.Second, "TCP, after a reset",
		func(t *Timeouts) *time.Duration { return &t.TCPResetSeen }),
	timeout("udp", "", time.Minute, "UDP",
		func(t *Timeouts) *time.Duration { return &t.UDP }),
	timeout("generic", "", 10*time.Minute, "any other protocol",
		func(t *Timeouts) *time.Duration { return &t.Generic }),
	timeout("icmp", "", 5*time.Second, "ICMP and ICMPv6 echo",
		func(t *Timeouts) *time.Duration { return &t.ICMP }),
	{
		Name: "conntrackSweepInterval", Default: "10s", Apply: Restart,
		Doc: "How often dead entries are removed from the conntrack tables. A dead entry is never used, removed or not.",
		value: duration(func(c *Config) *time.Duration { return &c.ConntrackSweepInterval },
			100*time.Millisecond, time.Hour),
	},
	{
		Name: "conntrackSweepBudget", Default: "50ms", Apply: Restart,
		Doc: "Longest time that one pass of the sweep takes before it pauses; it goes on at the next interval.",
		value: duration(func(c *Config) *time.Duration { return &c.ConntrackSweepBudget },
			time.Millisecond, time.Minute),
	},
	{
		Name: "adoptionWindow", Default: "10m", Apply: Restart,
		Doc: "For how long after the first attach packets of unknown open connections are left to the kernel's stack: they may " +
			"belong to whatever served the node before.",
		value: duration(func(c *Config) *time.Duration { return &c.AdoptionWindow }, 0, 24*time.Hour),
	},

	mapSize("mapSizeConntrack", "Sizes of maps", "262144", "confirmed flows, for each family",
		func(m *MapSizes) *int { return &m.Conntrack }),
	mapSize("mapSizeConntrackHalfOpen", "", "65536", "half-open flows, for each family; the oldest make room",
		func(m *MapSizes) *int { return &m.ConntrackHalfOpen }),
	mapSize("mapSizeNATFrontend", "", "131072", "addresses and ports of services, for each family",
		func(m *MapSizes) *int { return &m.NATFrontend }),
	mapSize("mapSizeNATBackend", "", "524288", "backends of service ports, for each family; each takes two, and a third where traffic has to stay on its node",
		func(m *MapSizes) *int { return &m.NATBackend }),
	mapSize("mapSizeNATAffinity", "", "65536", "clients with session affinity, for each family; the oldest make room",
		func(m *MapSizes) *int { return &m.NATAffinity }),
	mapSize("mapSizeRoutes", "", "262144", "pods, nodes and their ranges, for each family",
		func(m *MapSizes) *int { return &m.Routes }),
	mapSize("mapSizeInterfaces", "", "4096", "interfaces of this node",
		func(m *MapSizes) *int { return &m.Interfaces }),

	{
		Name: "resyncInterval", Group: "Running", Default: "1m30s", Apply: Restart,
		Doc: "How often the kernel's state and the watched directories are compared with what they should be, beside reacting to events.",
		value: duration(func(c *Config) *time.Duration { return &c.ResyncInterval },
			time.Second, 24*time.Hour),
	},
	{
		Name: "healthAddress", Default: "127.0.0.1:9990", Apply: Restart,
		Doc:   "Where `/readyz` and `/livez` are served. Empty: nowhere.",
		value: endpoint(func(c *Config) *string { return &c.HealthAddress }),
	},
	{
		Name: "metricsAddress", Default: "127.0.0.1:9991", Apply: Restart,
		Doc:   "Where `/metrics` is served. Empty: nowhere.",
		value: endpoint(func(c *Config) *string { return &c.MetricsAddress }),
	},
	{
		Name: "logLevel", Default: "Info", Apply: Restart,
		Doc:   "Least severe level that is logged.",
		value: enum(func(c *Config) *LogLevel { return &c.LogLevel }, LevelError, LevelWarn, LevelInfo, LevelDebug),
	},
	{
		Name: "logFormat", Default: "Text", Apply: Restart,
		Doc:   "Shape of a log line.",
		value: enum(func(c *Config) *LogFormat { return &c.LogFormat }, LogText, LogJSON),
	},
}

func timeout(name, group string, def time.Duration, of string, at func(*Timeouts) *time.Duration) Setting {
	return Setting{
		Name: "conntrackTimeouts." + name, Group: group, Default: short(def), Apply: Restart,
		Doc: "How long a flow is remembered without a packet: " + of + ".",
		value: duration(func(c *Config) *time.Duration { return at(&c.ConntrackTimeouts) },
			100*time.Millisecond, 30*24*time.Hour),
	}
}

func mapSize(name, group, def, of string, at func(*MapSizes) *int) Setting {
	return Setting{
		Name: name, Group: group, Default: def, Apply: Restart,
		Doc:   "Entries of the map: " + of + ".",
		value: integer(func(c *Config) *int { return at(&c.MapSizes) }, 16, maxMapEntries),
	}
}
