// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// EndpointSlice converts an EndpointSlice; the result is nil for slices of host names.
func EndpointSlice(s *discoveryv1.EndpointSlice) (*model.EndpointSlice, []model.ObjectError) {
	out := &model.EndpointSlice{Name: objectName(&s.ObjectMeta)}
	p := &problems{kind: model.KindEndpointSlice, name: out.Name}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
		out.Family = model.IPv4
	case discoveryv1.AddressTypeIPv6:
		out.Family = model.IPv6
	case discoveryv1.AddressTypeFQDN:
		return nil, nil
	default:
		p.add("addressType", "unknown type %q: must be IPv4 or IPv6", s.AddressType)
		return nil, p.errors
	}
	if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
		out.Service = model.ObjectName{Namespace: out.Name.Namespace, Name: strings.Clone(name)}
	}
	_, out.Headless = s.Labels[model.LabelHeadless]
	if at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		out.Triggered = at
	}
	p.slicePorts(s, out)
	names := interned{}
	for i := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, p.endpoint(i, &s.Endpoints[i], out.Name.Namespace, names))
	}

	p.addValidation(out.Validate())
	if len(p.errors) == 0 {
		return out, nil
	}
	return pruneSlice(out), p.errors
}

func (p *problems) slicePorts(s *discoveryv1.EndpointSlice, out *model.EndpointSlice) {
	for i, sp := range s.Ports {
		if sp.Port == nil { // "all ports": no service port can point there
			continue
		}
		field := fmt.Sprintf("ports[%d]", i)
		port := model.EndpointPort{Port: p.port(field+".port", *sp.Port, 1)}
		name := corev1.ProtocolTCP
		if sp.Protocol != nil {
			name = *sp.Protocol
		}
		port.Protocol = p.protocol(field+".protocol", name)
		if sp.Name != nil {
			port.Name = strings.Clone(*sp.Name)
		}
		if sp.AppProtocol != nil {
			port.AppProtocol = strings.Clone(*sp.AppProtocol)
		}
		if port.Port != 0 && port.Protocol != 0 {
			out.Ports = append(out.Ports, port)
		}
	}
}

func (p *problems) endpoint(i int, e *discoveryv1.Endpoint, namespace string, names interned) model.Endpoint {
	// Absent conditions: ready and serving are true, terminating is false. The proxy's rule, not
	// the pod's state, decides.
	out := model.Endpoint{
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		Node:        names.of(e.NodeName),
		Zone:        names.of(e.Zone),
	}
	field := fmt.Sprintf("endpoints[%d].addresses", i)
	if len(e.Addresses) == 0 {
		p.add(field+"[0]", "an endpoint needs an address")
	} else {
		out.Addr = p.address(field+"[0]", e.Addresses[0])
	}
	if h := e.Hints; h != nil {
		for j := range h.ForZones {
			out.ZoneHints = append(out.ZoneHints, names.of(&h.ForZones[j].Name))
		}
		for j := range h.ForNodes {
			out.NodeHints = append(out.NodeHints, names.of(&h.ForNodes[j].Name))
		}
	}
	if r := e.TargetRef; r != nil && r.Kind == "Pod" {
		out.Pod = model.ObjectName{Namespace: namespace, Name: strings.Clone(r.Name)}
		if r.Namespace != "" {
			out.Pod.Namespace = names.of(&r.Namespace)
		}
	}
	return out
}

// interned keeps one copy of the few node and zone names that a slice's many endpoints share.
type interned map[string]string

func (m interned) of(s *string) string {
	if s == nil {
		return ""
	}
	if have, ok := m[*s]; ok {
		return have
	}
	c := strings.Clone(*s)
	m[c] = c
	return c
}

// pruneSlice leaves out endpoints that the slice does not validate with. It returns nil
// if the slice belongs to no service.
func pruneSlice(s *model.EndpointSlice) *model.EndpointSlice {
	bare := model.EndpointSlice{Name: s.Name, Service: s.Service, Family: s.Family}
	if len(bare.Validate()) > 0 {
		return nil
	}
	out := *s
	out.Endpoints = keep(s.Endpoints, func(e model.Endpoint) bool {
		try := bare
		try.Endpoints = []model.Endpoint{e}
		return len(try.Validate()) == 0
	})
	return &out
}
