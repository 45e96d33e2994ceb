// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// decode makes an API object of a manifest.
func decode[T any](t *testing.T, manifest string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func messages(errs []model.ObjectError) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Message)
	}
	return out
}

func TestAServiceKeepsAllThatIsServed(t *testing.T) {
	got, errs := Service(decode[corev1.Service](t, `
metadata:
  namespace: shop
  name: web
  uid: u-1
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {app: web, service.kubernetes.io/service-proxy-name: other}
  annotations: {service.felix-lite.io/algorithm: maglev, example.com/note: long}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.1, "fd00:96::1"]
  externalIPs: [192.0.2.1]
  loadBalancerSourceRanges: [" 198.51.100.7/24 "]
  internalTrafficPolicy: Local
  externalTrafficPolicy: Local
  trafficDistribution: PreferClose
  healthCheckNodePort: 32000
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  publishNotReadyAddresses: true
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: web, nodePort: 30080, appProtocol: http}
  - {name: dns, port: 53, protocol: UDP, targetPort: 5353}
status:
  loadBalancer:
    ingress: [{ip: 203.0.113.1, ipMode: Proxy}, {hostname: lb.example.com}, {ip: 203.0.113.2}]
`))
	want := &model.Service{
		Name: model.ObjectName{Namespace: "shop", Name: "web"}, UID: "u-1", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Labels:      map[string]string{model.LabelServiceProxyName: "other"},
		Annotations: map[string]string{"service.felix-lite.io/algorithm": "maglev"},
		Type:        model.LoadBalancer, ClusterIPs: addrs("10.96.0.1", "fd00:96::1"), ExternalIPs: addrs("192.0.2.1"),
		LoadBalancerSourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		LoadBalancerIPs:          []model.LoadBalancerIP{{Addr: netip.MustParseAddr("203.0.113.1"), Mode: model.IPModeProxy}, {Addr: netip.MustParseAddr("203.0.113.2")}},
		InternalTrafficPolicy:    model.PolicyLocal, ExternalTrafficPolicy: model.PolicyLocal, TrafficDistribution: "PreferClose",
		HealthCheckNodePort: 32000, SessionAffinity: model.AffinityClientIP, AffinityTimeout: time.Minute, PublishNotReadyAddresses: true,
		Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{
			{Name: "http", Protocol: model.TCP, Port: 80, TargetPort: model.PortRef{Name: "web"}, NodePort: 30080, AppProtocol: "http"},
			{Name: "dns", Protocol: model.UDP, Port: 53, TargetPort: model.PortRef{Number: 5353}},
		},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" || errs != nil {
		t.Errorf("errors %v, difference:\n%s", errs, diff)
	}
}

func TestABareServiceGetsTheDefaultsOfAnAPIServer(t *testing.T) {
	got, errs := Service(decode[corev1.Service](t, "metadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}"))
	want := &model.Service{
		Name: model.ObjectName{Namespace: "default", Name: "web"}, Type: model.ClusterIP, ClusterIPs: addrs("10.96.0.1"),
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" || errs != nil {
		t.Errorf("errors %v, difference:\n%s", errs, diff)
	}
}

func TestPartsOfAServiceThatDoNotFitAreLeftOutAndNamed(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		keeps      func(*model.Service) any
		want       any
		errs       []string
	}{
		{"an address that is none", "{clusterIPs: [10.96.0.300, 'fd00:96::1'], ports: [{port: 80}]}",
			func(s *model.Service) any { return s.ClusterIPs }, addrs("fd00:96::1"),
			[]string{`spec.clusterIPs[0]: "10.96.0.300" is not an IP address`}},
		{"a second address of a family", "{clusterIPs: [10.96.0.1, 10.96.0.1, 'fd00::1']}",
			func(s *model.Service) any { return s.ClusterIPs }, addrs("10.96.0.1", "fd00::1"),
			[]string{"spec.clusterIPs[1]: a second IPv4 address: one for each family"}},
		{"a loopback address as external address", "{externalIPs: [127.0.0.1, 192.0.2.1]}",
			func(s *model.Service) any { return s.ExternalIPs }, addrs("192.0.2.1"),
			[]string{"spec.externalIPs[0]: address 127.0.0.1 is a loopback address"}},
		{"a port out of range", "{ports: [{name: a, port: 70000}, {name: b, port: 80}]}",
			func(s *model.Service) any { return len(s.Ports) }, 1,
			[]string{"spec.ports[0].port: 70000 is not between 1 and 65535"}},
		{"an unknown protocol", "{ports: [{name: a, port: 81, protocol: ICMP}, {name: b, port: 80}]}",
			func(s *model.Service) any { return s.Ports[0].Name }, "b",
			[]string{`spec.ports[0].protocol: unknown protocol "ICMP": must be TCP, UDP or SCTP`}},
		{"the same port twice", "{ports: [{name: a, port: 80}, {name: b, port: 80}, {name: c, port: 80, protocol: UDP}]}",
			func(s *model.Service) any { return len(s.Ports) }, 2,
			[]string{"spec.ports[1].port: 80/TCP is already spec.ports[0]"}},
		{"the only source range is none", "{loadBalancerSourceRanges: [everybody]}",
			func(s *model.Service) any { return s.LoadBalancerSourceRanges }, nobody,
			[]string{`spec.loadBalancerSourceRanges[0]: "everybody" is not a CIDR`}},
		{"one of two source ranges is none", "{loadBalancerSourceRanges: [everybody, 10.0.0.0/8]}",
			func(s *model.Service) any { return s.LoadBalancerSourceRanges }, append([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nobody...),
			[]string{`spec.loadBalancerSourceRanges[0]: "everybody" is not a CIDR`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, errs := Service(decode[corev1.Service](t, "metadata: {name: web}\nspec: "+tc.spec))
			if s == nil {
				t.Fatalf("nothing is left: %v", errs)
			}
			if diff := cmp.Diff(tc.want, tc.keeps(s), byValue); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.errs, messages(errs)); diff != "" {
				t.Error(diff)
			}
			if left := s.Validate(); left != nil {
				t.Errorf("what is left is not valid: %v", left)
			}
		})
	}
}

func TestAHeadlessServiceHasNoAddress(t *testing.T) {
	s, errs := Service(decode[corev1.Service](t, "metadata: {name: db}\nspec: {clusterIP: None}"))
	if errs != nil || !s.Headless || s.ClusterIPs != nil {
		t.Errorf("got %+v, errors %v", s, errs)
	}
}

func TestASliceKeepsItsEndpointsWithResolvedConditions(t *testing.T) {
	got, errs := EndpointSlice(decode[discoveryv1.EndpointSlice](t, `
metadata:
  namespace: shop
  name: web-1
  labels: {kubernetes.io/service-name: web, service.kubernetes.io/headless: ""}
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-01-02T03:04:05.5Z"}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: all}, {name: dns, port: 53, protocol: UDP}]
endpoints:
- {addresses: [10.65.1.2], nodeName: n1, zone: z1, targetRef: {kind: Pod, name: web-1}}
- {addresses: [10.65.1.3], conditions: {ready: false, serving: true, terminating: true}, hints: {forZones: [{name: z1}], forNodes: [{name: n2}]}}
`))
	want := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "shop", Name: "web-1"}, Service: model.ObjectName{Namespace: "shop", Name: "web"},
		Headless: true, Triggered: time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC),
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		Endpoints: []model.Endpoint{
			{Addr: netip.MustParseAddr("10.65.1.2"), Ready: true, Serving: true, Node: "n1", Zone: "z1", Pod: model.ObjectName{Namespace: "shop", Name: "web-1"}},
			{Addr: netip.MustParseAddr("10.65.1.3"), Serving: true, Terminating: true, ZoneHints: []string{"z1"}, NodeHints: []string{"n2"}},
		},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" || errs != nil {
		t.Errorf("errors %v, difference:\n%s", errs, diff)
	}
}

func TestEndpointsThatDoNotFitAreLeftOutAndNamed(t *testing.T) {
	s, errs := EndpointSlice(decode[discoveryv1.EndpointSlice](t, `
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 8080}, {port: 0}]
endpoints: [{addresses: [10.65.1.2]}, {addresses: []}, {addresses: ["fd00::2"]}, {addresses: ["fe80::1"]}]
`))
	if len(s.Endpoints) != 1 || len(s.Ports) != 1 || s.Validate() != nil {
		t.Errorf("left are %+v", s)
	}
	want := []string{
		"ports[1].port: 0 is not between 1 and 65535",
		"endpoints[1].addresses[0]: an endpoint needs an address",
		"endpoints[0].addresses[0]: address 10.65.1.2 is not IPv6, the slice's address type",
		"endpoints[3].addresses[0]: address fe80::1 is link-local",
	}
	if diff := cmp.Diff(want, messages(errs)); diff != "" {
		t.Error(diff)
	}
}

func TestASliceWithoutServiceOrOfHostNamesIsNotUsed(t *testing.T) {
	s, errs := Object(decode[discoveryv1.EndpointSlice](t, "metadata: {name: web-1}\naddressType: IPv4"))
	if s != nil || len(errs) != 1 {
		t.Errorf("got %v, errors %v", s, errs)
	}
	s, errs = Object(decode[discoveryv1.EndpointSlice](t, "metadata: {name: web-1}\naddressType: FQDN"))
	if s != nil || errs != nil {
		t.Errorf("got %v, errors %v", s, errs)
	}
}

func TestANodeKeepsItsAddressesRangesAndState(t *testing.T) {
	now := metav1.Now()
	n := decode[corev1.Node](t, `
metadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}
spec: {podCIDRs: [10.65.1.7/24, nonsense], taints: [{key: k, effect: NoSchedule}]}
status:
  addresses: [{type: InternalIP, address: 10.0.0.1}, {type: Hostname, address: n1}, {type: ExternalIP, address: x}]
  conditions: [{type: Ready, status: "True"}]
`)
	n.DeletionTimestamp = &now
	got, errs := Node(n)
	want := &model.Node{
		Name: "n1", Labels: map[string]string{model.LabelZone: "z1"}, Zone: "z1", Ready: true, Deleting: true,
		Addresses: []model.NodeAddress{{Type: model.NodeInternalIP, Addr: netip.MustParseAddr("10.0.0.1")}},
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.65.1.0/24")},
		Taints:    []model.Taint{{Key: "k", Effect: "NoSchedule"}},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`status.addresses[2].address: "x" is not an IP address`, `spec.podCIDRs[1]: "nonsense" is not a CIDR`}, messages(errs)); diff != "" {
		t.Error(diff)
	}
}

func TestAPodKeepsItsAddressesAndNamedPorts(t *testing.T) {
	got, errs := Pod(decode[corev1.Pod](t, `
metadata: {name: web-1, labels: {app: web}, annotations: {felix-lite.io/weight: "3", other: x}}
spec:
  nodeName: n1
  initContainers:
  - {name: once, ports: [{name: gone, containerPort: 1}]}
  - {name: sidecar, restartPolicy: Always, ports: [{name: mesh, containerPort: 15000}]}
  containers: [{name: c, ports: [{name: http, containerPort: 8080}, {containerPort: 9}, {name: dns, containerPort: 53, protocol: UDP}]}]
status:
  phase: Running
  podIP: 10.65.1.2
  podIPs: [{ip: 10.65.1.2}, {ip: "fd00::2"}, {ip: bad}]
  conditions: [{type: Ready, status: "True"}]
`))
	want := &model.Pod{
		Name: model.ObjectName{Namespace: "default", Name: "web-1"}, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"felix-lite.io/weight": "3"}, Node: "n1", Phase: model.PodRunning, Ready: true,
		IPs: addrs("10.65.1.2", "fd00::2"),
		Ports: []model.ContainerPort{
			{Name: "mesh", Port: 15000, Protocol: model.TCP}, {Name: "http", Port: 8080, Protocol: model.TCP}, {Name: "dns", Port: 53, Protocol: model.UDP},
		},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`status.podIPs[2].ip: "bad" is not an IP address`}, messages(errs)); diff != "" {
		t.Error(diff)
	}
}

func TestAnObjectOfAnotherTypeIsRefused(t *testing.T) {
	if o, errs := Object(&corev1.Secret{}); o != nil || len(errs) != 1 {
		t.Errorf("got %v, %v", o, errs)
	}
}

func BenchmarkSliceOfAThousandEndpoints(b *testing.B) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Name, s.Labels = "web-1", map[string]string{discoveryv1.LabelServiceName: "web"}
	node := "node-1"
	for i := range 1000 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.65.%d.%d", i/250, i%250+1)}, NodeName: &node})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := EndpointSlice(s); errs != nil {
			b.Fatal(errs)
		}
	}
}
