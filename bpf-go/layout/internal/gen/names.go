// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
)

// renamed are C types whose Go name says more than the C name would.
var renamed = map[string]string{
	"cali_ip":     "Addr",
	"cali_ip_any": "AddrAny",
}

// words are spelled otherwise than by a capital first letter.
var words = map[string]string{
	"ack": "ACK", "arp": "ARP", "be": "BE", "cb": "CB", "ct": "CT", "ctlb": "CTLB", "ctf": "CTF", "dnat": "DNAT",
	"dsr": "DSR", "ep": "EP", "fe": "FE", "fib": "FIB", "fin": "FIN", "fins": "FINs", "gf": "GF", "hep": "HEP",
	"hz": "HZ", "icmp": "ICMP", "id": "ID", "iff": "IFF", "ip": "IP", "ip4": "IP4", "ip6": "IP6",
	"ipset": "IPSet", "itp": "ITP", "etp": "ETP", "l3": "L3", "l3dev": "L3Dev", "l4": "L4", "lb": "LB", "mac": "MAC",
	"mtu": "MTU", "netns": "NetNS", "nat": "NAT", "np": "NP", "psnat": "PSNAT", "rst": "RST", "rt": "RT", "snat": "SNAT",
	"st": "ST", "syn": "SYN", "tcp": "TCP", "ttl": "TTL", "udp": "UDP", "v4": "V4", "v6": "V6",
	"vlan": "VLAN", "vni": "VNI", "vxlan": "VXLAN", "wep": "WEP", "nat_out": "NATOut",
}

// goName is the exported Go name of a C identifier: cali_ct_key -> CTKey, CALI_DROP_TTL -> DropTTL.
func goName(c string) string {
	if name, ok := renamed[c]; ok {
		return name
	}
	c = strings.TrimPrefix(strings.ToLower(c), "cali_")
	var b strings.Builder
	for _, w := range strings.Split(c, "_") {
		if special, ok := words[w]; ok {
			b.WriteString(special)
		} else if w != "" {
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

// commonPrefix is what all names of an enum start with, up to and including an underscore: people
// read "via-stack", not "ctf-via-stack". A lone name keeps its last word.
func commonPrefix(names []string) string {
	if len(names) == 0 {
		return ""
	}
	prefix := names[0][:strings.LastIndexByte(names[0], '_')+1]
	for _, n := range names[1:] {
		for !strings.HasPrefix(n, prefix) {
			prefix = prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "_"), '_')+1]
		}
	}
	return prefix
}

// humanName is how an enum's value is printed: CALI_CTF_VIA_STACK -> via-stack.
func humanName(name, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}
