// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func a(s string) netip.Addr { return netip.MustParseAddr(s) }

func name(n string) ObjectName { return ObjectName{Namespace: "default", Name: n} }

func goodService(edit ...func(*Service)) *Service {
	s := &Service{
		Name: name("web"), Type: LoadBalancer, ClusterIPs: []netip.Addr{a("10.96.0.1"), a("fd96::1")},
		Ports:       []ServicePort{{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080}, {Name: "quic", Protocol: UDP, Port: 80, NodePort: 30080}},
		ExternalIPs: []netip.Addr{a("198.51.100.7")}, LoadBalancerIPs: []LoadBalancerIP{{Addr: a("203.0.113.9"), Mode: IPModeVIP}},
		SessionAffinity: AffinityClientIP, AffinityTimeout: time.Hour,
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

func goodSlice(edit ...func(*EndpointSlice)) *EndpointSlice {
	s := &EndpointSlice{
		Name: name("web-1"), Service: name("web"), Ports: []EndpointPort{{Name: "http", Protocol: TCP, Port: 8080}},
		Endpoints: []Endpoint{{Addr: a("10.65.0.1"), Ready: true, Serving: true}},
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

func goodEndpoint(edit ...func(*WorkloadEndpoint)) *WorkloadEndpoint {
	e := &WorkloadEndpoint{ID: "c1", HostInterface: "cali1", PodMAC: MAC{2, 0, 0, 0, 0, 1}, Addresses: []netip.Addr{a("10.65.0.1")}}
	for _, f := range edit {
		f(e)
	}
	return e
}

func TestValidate(t *testing.T) {
	for title, c := range map[string]struct {
		object Object
		want   []string
	}{
		"a good service":                {goodService(), nil},
		"a service without name":        {goodService(func(s *Service) { s.Name = ObjectName{} }), []string{"metadata.name: must be set", "metadata.namespace: must be set"}},
		"an unknown type":               {goodService(func(s *Service) { s.Type = "Ingress" }), []string{`spec.type: unknown type "Ingress"`}},
		"two cluster IPs of one family": {goodService(func(s *Service) { s.ClusterIPs[1] = a("10.96.0.2") }), []string{"spec.clusterIPs[1]: a second IPv4 address: one for each family"}},
		"addresses that make no sense": {
			goodService(func(s *Service) {
				s.ExternalIPs = []netip.Addr{{}, a("0.0.0.0"), a("127.0.0.1"), a("224.0.0.1"), a("fe80::1"), a("fe80::1%eth0"), a("::ffff:192.0.2.1"), a("255.255.255.255")}
			}),
			[]string{
				"spec.externalIPs[0]: no valid address", "spec.externalIPs[1]: address 0.0.0.0 is unspecified", "spec.externalIPs[2]: address 127.0.0.1 is a loopback address",
				"spec.externalIPs[3]: address 224.0.0.1 is a multicast address", "spec.externalIPs[4]: address fe80::1 is link-local",
				"spec.externalIPs[5]: address fe80::1%eth0 must not have a zone", "spec.externalIPs[6]: address ::ffff:192.0.2.1 must be written as IPv4",
				"spec.externalIPs[7]: address 255.255.255.255 is the broadcast address",
			},
		},
		"a bad load balancer": {
			goodService(func(s *Service) { s.LoadBalancerIPs = []LoadBalancerIP{{Mode: "DSR"}} }),
			[]string{"status.loadBalancer.ingress[0].ip: no valid address", `status.loadBalancer.ingress[0].ipMode: unknown mode "DSR": must be VIP or Proxy`},
		},
		"a bad source range": {
			goodService(func(s *Service) { s.LoadBalancerSourceRanges = []netip.Prefix{{}} }), []string{"spec.loadBalancerSourceRanges[0]: no valid CIDR"},
		},
		"ports that clash": {
			goodService(func(s *Service) { s.Ports[1].Name, s.Ports[1].Protocol = "http", TCP }),
			[]string{
				`spec.ports[1].name: "http" is already the name of spec.ports[0]`, "spec.ports[1].port: 80/TCP is already spec.ports[0]",
				"spec.ports[1].nodePort: 30080/TCP is already the node port of spec.ports[0]",
			},
		},
		"ports without number, name or protocol": {
			goodService(func(s *Service) { s.Ports[1] = ServicePort{} }),
			[]string{"spec.ports[1].protocol: unknown protocol 0: must be TCP, UDP or SCTP", "spec.ports[1].port: must be between 1 and 65535", "spec.ports[1].name: must be set: the service has several ports"},
		},
		"bad policies and affinity": {
			goodService(func(s *Service) {
				s.InternalTrafficPolicy, s.ExternalTrafficPolicy, s.SessionAffinity, s.AffinityTimeout = "Near", "Far", "Cookie", 25*time.Hour
			}),
			[]string{
				`spec.internalTrafficPolicy: unknown policy "Near": must be Cluster or Local`, `spec.externalTrafficPolicy: unknown policy "Far": must be Cluster or Local`,
				`spec.sessionAffinity: unknown affinity "Cookie": must be None or ClientIP`,
				"spec.sessionAffinityConfig.clientIP.timeoutSeconds: must be between 1 and 86400, is 90000",
			},
		},
		"a good slice": {goodSlice(), nil},
		"a slice of no service": {
			goodSlice(func(s *EndpointSlice) { s.Service = ObjectName{} }), []string{"metadata.labels[kubernetes.io/service-name]: must name the slice's service"},
		},
		"an endpoint of the other family": {
			goodSlice(func(s *EndpointSlice) { s.Family = IPv6 }), []string{"endpoints[0].addresses[0]: address 10.65.0.1 is not IPv6, the slice's address type"},
		},
		"a slice's port without number": {goodSlice(func(s *EndpointSlice) { s.Ports[0].Port = 0 }), []string{"ports[0].port: must be between 1 and 65535"}},
		"a node with bad addresses": {
			&Node{Name: "n1", Addresses: []NodeAddress{{}}, PodCIDRs: []netip.Prefix{{}}}, []string{"status.addresses[0].address: no valid address", "spec.podCIDRs[0]: no valid CIDR"},
		},
		"a pod with bad fields": {
			&Pod{Name: name("p"), IPs: []netip.Addr{{}}, Ports: []ContainerPort{{Name: "x", Port: 1}}},
			[]string{"status.podIPs[0].ip: no valid address", "spec.containers[].ports[0].protocol: unknown protocol 0: must be TCP, UDP or SCTP"},
		},
		"a namespace without name": {&Namespace{}, []string{"metadata.name: must be set"}},
		"a good endpoint":          {goodEndpoint(), nil},
		"an endpoint without anything": {
			&WorkloadEndpoint{}, []string{"metadata.name: must be set", "hostInterface: must be set", "podMAC: must be set", "addresses: must have at least one address"},
		},
		"an interface name that is too long": {
			goodEndpoint(func(e *WorkloadEndpoint) { e.HostInterface = "cali0123456789ab" }), []string{`hostInterface: "cali0123456789ab" is longer than 15 characters`},
		},
		"a good policy": {
			&NetworkPolicy{Name: name("p"), IngressRules: []PolicyRule{{
				Peers: []PolicyPeer{{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}},
				Ports: []PolicyPort{{Protocol: TCP, Port: PortRef{Number: 80}, EndPort: 90}},
			}}}, nil,
		},
		"a bad policy": {
			&NetworkPolicy{Name: name("p"), Pods: Selector{Expressions: []Requirement{{Key: "a", Operator: "Like"}}}, EgressRules: []PolicyRule{{
				Peers: []PolicyPeer{
					{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
					{Namespaces: &Selector{Expressions: []Requirement{{Key: "a", Operator: "In"}}}, Pods: &Selector{Expressions: []Requirement{{Key: "a", Operator: "Exists", Values: []string{"x"}}}}},
				},
				Ports: []PolicyPort{{Protocol: TCP, Port: PortRef{Number: 80}, EndPort: 79}},
			}}}, []string{
				`spec.podSelector.matchExpressions[0].operator: unknown operator "Like"`, "spec.egress[0].peers[0].ipBlock.except[0]: 0.0.0.0/0 is not inside 10.0.0.0/8",
				"spec.egress[0].peers[1].namespaceSelector.matchExpressions[0].values: must not be empty for operator In",
				"spec.egress[0].peers[1].podSelector.matchExpressions[0].values: must be empty for operator Exists", "spec.egress[0].ports[0].endPort: 79 must not be below a numeric port",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, e := range c.object.Validate() {
				if e.Kind != c.object.Kind() || e.Name != c.object.ObjectName() {
					t.Errorf("error about %s %s", e.Kind, e.Name)
				}
				got = append(got, e.Field+": "+e.Message)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestObjectErrorNamesObjectAndField(t *testing.T) {
	e := ObjectError{Kind: KindService, Name: name("web"), Field: "spec.type", Message: "unknown"}
	if got := e.Error(); got != "service default/web: spec.type: unknown" {
		t.Error(got)
	}
	e = ObjectError{Kind: KindNode, Name: ObjectName{Name: "n1"}, Message: "gone"}
	if got := e.Error(); got != "node n1: gone" {
		t.Error(got)
	}
}

func TestEqualComparesEveryField(t *testing.T) {
	if !Equal(goodService(), goodService()) {
		t.Error("the same service is not equal")
	}
	if Equal(goodService(), goodService(func(s *Service) { s.Ports[1].AppProtocol = "h3" })) {
		t.Error("a port's field is not seen")
	}
	if Equal(goodService(), goodSlice()) {
		t.Error("objects of two kinds are equal")
	}
}

func TestChangesCarryKindAndName(t *testing.T) {
	for _, o := range []Object{goodService(), goodSlice(), &Node{Name: "n1"}, &Pod{Name: name("p")}, &Namespace{Name: "default"}, goodEndpoint(), &NetworkPolicy{Name: name("np")}} {
		if ch := Updated(o); ch.Kind != o.Kind() || ch.Name != o.ObjectName() || ch.Object != o {
			t.Errorf("%+v", ch)
		}
		if ch := Deleted(o.Kind(), o.ObjectName()); ch.Object != nil {
			t.Errorf("%+v", ch)
		}
	}
}

func TestParseProtocolAndMAC(t *testing.T) {
	for text, want := range map[string]Protocol{"": TCP, "TCP": TCP, "UDP": UDP, "SCTP": SCTP} {
		if got, err := ParseProtocol(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseProtocol("tcp"); err == nil {
		t.Error("tcp is accepted")
	}
	if FamilyOf(a("::ffff:192.0.2.1")) != IPv4 || FamilyOf(a("fd00::1")) != IPv6 || IPv6.String() != "IPv6" || Protocol(132).String() != "SCTP" {
		t.Error("families")
	}
}
