// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// names are the ends that fixtures speak of, with their addresses in both families.
var names = map[string][2]string{
	"podA":    {"10.65.1.2", "fd00:65:1::2"}, // on this node
	"podB":    {"10.65.1.3", "fd00:65:1::3"}, // on this node
	"podR":    {"10.65.2.3", "fd00:65:2::3"}, // on node2
	"podX":    {"10.65.1.99", "fd00:65:1::99"},
	"node1":   {"192.168.50.1", "fd00:50::1"}, // this node
	"node2":   {"192.168.50.2", "fd00:50::2"},
	"router":  {"192.168.50.254", "fd00:50::fe"},
	"vip":     {"10.96.0.10", "fd00:96::10"},
	"vip2":    {"10.96.0.11", "fd00:96::11"},
	"extip":   {"198.18.0.10", "2001:db8:18::10"}, // an external IP of a service
	"client":  {"203.0.113.9", "2001:db8:203::9"}, // outside, through the router
	"narrow":  {"203.0.114.9", "2001:db8:204::9"}, // outside, by a way that takes 1,300 bytes only
	"anynode": {"255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	"mcast":   {"224.0.0.251", "ff02::fb"},
	"hole":    {"10.99.0.1", "fd00:99::1"},
	"reject":  {"10.98.0.1", "fd00:98::1"},
	// BPF_PROG_TEST_RUN takes the protocol from where an Ethernet header would have its type. In a packet without
	// one the source address stands there: these are read as IPv4 and IPv6.
	"l3peer": {"8.0.0.9", "2001:db8:86dd::9"},
	"l3host": {"8.0.0.1", "2001:db8:86dd::1"},
}

// byAddress finds the name of an address.
var byAddress = func() map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for name, pair := range names {
		for _, text := range pair {
			all[netip.MustParseAddr(text)] = name
		}
	}
	return all
}()

func addrOf(name string, f layout.Family) netip.Addr {
	pair, ok := names[name]
	if !ok {
		panic(fmt.Sprintf("no end is called %q", name))
	}
	return netip.MustParseAddr(pair[f])
}

// endOf reads "podA:40000"; the port may be missing.
func endOf(text string, f layout.Family) (netip.Addr, uint16) {
	name, port, found := strings.Cut(text, ":")
	if !found {
		return addrOf(name, f), 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		panic(fmt.Sprintf("end %q: %v", text, err))
	}
	return addrOf(name, f), uint16(n)
}

// nameOf is the reverse of endOf.
func nameOf(end netip.AddrPort) string {
	name, ok := byAddress[end.Addr()]
	if !ok {
		name = end.Addr().String()
	}
	if end.Port() == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, end.Port())
}
