// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestAddressesOfThePlan(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  netip.Addr
		want string
	}{
		{"the router is the first address", routerIn(nodeNet4), "172.30.0.1"},
		{"nodes count from eleven", nodeAddress(1, false), "172.30.0.11"},
		{"nodes of IPv6 look like those of IPv4", nodeAddress(1, true), "fd30::11"},
		{"a number above 255 carries over", nth(nodeNet6, 257), "fd30::101"},
	} {
		if tt.got.String() != tt.want {
			t.Errorf("%s: want %s, have %s", tt.name, tt.want, tt.got)
		}
	}
}

func TestHostInterfaceNamesFitAndDiffer(t *testing.T) {
	a, b := hostInterfaceName("default", "a"), hostInterfaceName("default", "b")
	if len(a) != 15 || a == b || a != hostInterfaceName("default", "a") {
		t.Errorf("want two stable names of 15 characters, have %q and %q", a, b)
	}
}

func TestServicesGetWhatAnAPIServerAllocates(t *testing.T) {
	for _, tt := range []struct {
		name, spec string
		check      func(spec object) bool
	}{
		{"a cluster address", `{"ports": [{"port": 80}]}`, func(s object) bool {
			ip, ok := s["clusterIP"].(string)
			return ok && ServiceCIDR4.Contains(netip.MustParseAddr(ip))
		}},
		{"both families when asked", `{"ipFamilyPolicy": "RequireDualStack"}`, func(s object) bool {
			ips, _ := s["clusterIPs"].([]any)
			return len(ips) == 2 && ServiceCIDR6.Contains(netip.MustParseAddr(ips[1].(string)))
		}},
		{"node ports where the type has them", `{"type": "NodePort", "ports": [{"port": 80}]}`, func(s object) bool {
			return s["ports"].([]any)[0].(object)["nodePort"].(int) >= 30000
		}},
		{"nothing that is there already", `{"clusterIP": "None"}`, func(s object) bool { return s["clusterIP"] == "None" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var spec object
			if err := yaml.Unmarshal([]byte(tt.spec), &spec); err != nil {
				t.Fatal(err)
			}
			allocate(object{"metadata": object{"name": "x"}, "spec": spec})
			if !tt.check(spec) {
				t.Errorf("have %v", spec)
			}
		})
	}
}
