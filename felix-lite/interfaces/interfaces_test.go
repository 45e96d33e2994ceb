// SPDX-License-Identifier: Apache-2.0

package interfaces

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var defaults = Config{Workload: regexp.MustCompile("^cali")}

// testNode is a view of a node with many kinds of links; uplinks are by default route (eth0) and
// by node address (eth1.100).
func testNode(more ...Link) View {
	v := View{Links: map[int]Link{}, DefaultRoutes: []int{2}, NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}}
	for _, l := range append([]Link{
		{Index: 1, Name: "lo", Kind: "device", Ethernet: true, Loopback: true},
		{Index: 2, Name: "eth0", Kind: "device", Ethernet: true, Addresses: prefixes("203.0.113.5/24")},
		{Index: 3, Name: "eth1", Kind: "device", Ethernet: true},
		{Index: 4, Name: "eth1.100", Kind: "vlan", Ethernet: true, Parent: 3, Addresses: prefixes("fe80::1/64", "192.0.2.10/24")},
	}, more...) {
		v.Links[l.Index] = l
	}
	return v
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestClassify(t *testing.T) {
	bond := Link{Index: 10, Name: "bond0", Kind: "bond", Ethernet: true, Addresses: prefixes("192.0.2.10/24")}
	bridge := Link{Index: 11, Name: "br0", Kind: "bridge", Ethernet: true, Addresses: prefixes("2001:db8::10/64")}
	uplink := func(pattern string) Config {
		return Config{Workload: defaults.Workload, Uplink: regexp.MustCompile(pattern)}
	}
	l3 := Config{Workload: defaults.Workload, L3: regexp.MustCompile("^(wg|tun)")}
	for name, c := range map[string]struct {
		link   Link
		config Config
		more   []Link
		want   Class
	}{
		"a pod's veth is a workload":                           {Link{Name: "cali123", Kind: "veth", Ethernet: true}, defaults, nil, Workload},
		"a workload's kind does not matter":                    {Link{Name: "cali123", Kind: "macvlan", Ethernet: true}, defaults, nil, Workload},
		"a workload on a bridge is still a workload":           {Link{Name: "cali123", Kind: "veth", Ethernet: true, Master: 11}, defaults, []Link{bridge}, Workload},
		"another CNI's interfaces, by pattern":                 {Link{Name: "lxc42", Kind: "veth", Ethernet: true}, Config{Workload: regexp.MustCompile("^(lxc|eni)")}, nil, Workload},
		"a veth that the pattern does not match is none":       {Link{Name: "veth42", Kind: "veth", Ethernet: true}, defaults, nil, None},
		"lo is loopback":                                       {Link{Index: 1, Name: "lo", Loopback: true, Ethernet: true}, defaults, nil, Loopback},
		"the link with the default route is host":              {testNode().Links[2], defaults, nil, Host},
		"a VLAN with the node's address is host":               {testNode().Links[4], defaults, nil, Host},
		"the VLAN's parent, without route or address, is none": {testNode().Links[3], defaults, nil, None},
		"a bond with the node's address is host":               {bond, defaults, nil, Host},
		"a bond's port is none":                                {Link{Index: 2, Name: "eth0", Kind: "device", Ethernet: true, Master: 10}, defaults, []Link{bond}, None},
		"a port of a master that is not known yet is none":     {Link{Index: 2, Name: "eth0", Kind: "device", Ethernet: true, Master: 99}, defaults, nil, None},
		"a bridge with the node's address is host":             {bridge, defaults, nil, Host},
		"a bridge's port is none":                              {Link{Index: 2, Name: "eth0", Kind: "device", Ethernet: true, Master: 11}, defaults, []Link{bridge}, None},
		"a VRF's member is what it is": {
			Link{Index: 2, Name: "eth0", Kind: "device", Ethernet: true, Master: 12}, defaults, []Link{{Index: 12, Name: "vrf0", Kind: "vrf", Ethernet: true}}, Host,
		},
		"docker0 is none": {
			Link{Index: 20, Name: "docker0", Kind: "bridge", Ethernet: true, Addresses: prefixes("172.17.0.1/16")}, defaults, nil, None,
		},
		"a veth with the default route is host: a node in a namespace": {
			Link{Index: 2, Name: "uplink", Kind: "veth", Ethernet: true}, defaults, nil, Host,
		},
		"a dummy with the node's address is none": {
			Link{Index: 21, Name: "dummy0", Kind: "dummy", Ethernet: true, Addresses: prefixes("192.0.2.10/32")}, defaults, nil, None,
		},
		"somebody's VXLAN device is none": {
			Link{Index: 22, Name: "flannel.1", Kind: "vxlan", Ethernet: true, Addresses: prefixes("192.0.2.10/32")}, defaults, nil, None,
		},
		"our tunnel device is tunnel":                      {Link{Index: 23, Name: "vxlan.calico", Kind: "vxlan", Ethernet: true}, defaults, nil, Tunnel},
		"tunl0 has no Ethernet header: none":               {Link{Index: 24, Name: "tunl0", Kind: "ipip"}, defaults, nil, None},
		"tunl0 by the L3 pattern is l3dev":                 {Link{Index: 24, Name: "tunl0", Kind: "ipip"}, Config{L3: regexp.MustCompile("tunl0")}, nil, L3},
		"bpfin.cali carries no program":                    {Link{Index: 25, Name: "bpfin.cali", Kind: "veth", Ethernet: true}, defaults, nil, None},
		"bpfout.cali is nat":                               {Link{Index: 26, Name: "bpfout.cali", Kind: "veth", Ethernet: true}, defaults, nil, NAT},
		"bpfout.cali is nat whatever the workload pattern": {Link{Index: 26, Name: "bpfout.cali", Kind: "veth", Ethernet: true}, Config{Workload: regexp.MustCompile("cali")}, nil, NAT},
		"our WireGuard device is l3dev":                    {Link{Index: 27, Name: "wireguard.cali", Kind: "wireguard"}, defaults, nil, L3},
		"somebody's WireGuard device is none":              {Link{Index: 28, Name: "wg0", Kind: "wireguard", Addresses: prefixes("10.9.0.1/24")}, defaults, nil, None},
		"a WireGuard device by pattern is l3dev":           {Link{Index: 28, Name: "wg0", Kind: "wireguard"}, l3, nil, L3},
		"a TUN device by pattern is l3dev":                 {Link{Index: 29, Name: "tun7", Kind: "tuntap"}, l3, nil, L3},
		"a device without MAC that has the node's address is l3dev": {
			Link{Index: 30, Name: "wg0", Kind: "wireguard", Addresses: prefixes("192.0.2.10/24")}, defaults, nil, L3,
		},
		"an Ethernet device that the L3 pattern matches is not l3dev": {Link{Index: 31, Name: "tunnel0", Kind: "tuntap", Ethernet: true}, l3, nil, None},
		"the uplink pattern adds what is not found automatically":     {testNode().Links[3], uplink("^eth1$"), nil, Host},
		"the uplink pattern takes away what is":                       {testNode().Links[2], uplink("^eth1$"), nil, None},
		"the uplink pattern does not make ports uplinks":              {Link{Index: 2, Name: "eth0", Ethernet: true, Master: 10}, uplink("^(eth|bond)"), []Link{bond}, None},
		"the uplink pattern makes a device without MAC l3dev":         {Link{Index: 32, Name: "ppp0", Kind: "ppp"}, uplink("^ppp"), nil, L3},
		"the uplink pattern does not win over the workload pattern":   {Link{Index: 33, Name: "cali1", Kind: "veth", Ethernet: true}, uplink("."), nil, Workload},
		"a link of which nothing is known is none":                    {Link{}, defaults, nil, None},
		"without any configuration nothing is a workload":             {Link{Name: "cali1", Ethernet: true}, Config{}, nil, None},
	} {
		t.Run(name, func(t *testing.T) {
			v := testNode(c.more...)
			v.Links[c.link.Index] = c.link
			if got := Classify(c.link, v, c.config); got != c.want {
				t.Errorf("class %v, want %v", got, c.want)
			}
		})
	}
}

func TestUplinksAreHostLinksAndRoutedL3Devices(t *testing.T) {
	v := testNode(Link{Index: 5, Name: "wg0", Kind: "wireguard", Addresses: prefixes("192.0.2.10/24")}, Link{Index: 6, Name: "wireguard.cali", Kind: "wireguard"},
		Link{Index: 7, Name: "cali1", Kind: "veth", Ethernet: true})
	if got := Uplinks(v, defaults); !slices.Equal(got, []int{2, 4, 5}) {
		t.Errorf("uplinks %v", got)
	}
	if got := Uplinks(View{}, Config{}); got != nil {
		t.Errorf("uplinks of nothing: %v", got)
	}
}

func FuzzClassifyNeverPanics(f *testing.F) {
	f.Add("eth0", "device", true, false, 3, 2, []byte{10, 0, 0, 1})
	f.Add("", "", false, true, -1, 0, []byte(nil))
	f.Fuzz(func(t *testing.T, name, kind string, ethernet, loopback bool, master, index int, addr []byte) {
		l := Link{Index: index, Name: name, Kind: kind, Ethernet: ethernet, Loopback: loopback, Master: master}
		if a, ok := netip.AddrFromSlice(addr); ok {
			l.Addresses = append(l.Addresses, netip.PrefixFrom(a, 0))
		}
		v := testNode(l)
		l.Addresses = append(l.Addresses, netip.Prefix{})
		if c := Classify(l, v, defaults); c.String() == "unknown" {
			t.Errorf("class %d", c)
		}
	})
}

// The C side has the classes' numbers; this package must say the same.
func TestNumbersAreThoseOfTheDatapath(t *testing.T) {
	text, err := os.ReadFile("../../bpf-c/variant.h")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Class{"WEP": Workload, "HEP": Host, "LO": Loopback, "NAT": NAT, "TUNNEL": Tunnel, "L3DEV": L3}
	for _, m := range regexp.MustCompile(`CALI_CLASS_(\w+) = (\d+)`).FindAllStringSubmatch(string(text), -1) {
		if m[1] == "COUNT" {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		if got, ok := names[m[1]].Number(); !ok || int(got) != n {
			t.Errorf("class %s is %d in variant.h, %d here", m[1], n, got)
		}
	}
	if _, ok := None.Number(); ok {
		t.Error("None has a number")
	}
	if got := Class(99).String(); got != "unknown" || !strings.Contains(L3.String(), "l3") {
		t.Errorf("names: %s, %s", got, L3)
	}
}
