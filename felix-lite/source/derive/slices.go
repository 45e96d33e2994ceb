// SPDX-License-Identifier: Apache-2.0

package derive

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// SliceName is the name of a service's derived slice in a family. A named target port may have
// different numbers in different pods; the pods of each further combination are in a slice of
// their own, numbered from 2.
func SliceName(svc model.ObjectName, f model.Family, number int) model.ObjectName {
	name := fmt.Sprintf("%s-derived-%s", svc.Name, strings.ToLower(f.String()))
	if number > 1 {
		name = fmt.Sprintf("%s-%d", name, number)
	}
	return model.ObjectName{Namespace: svc.Namespace, Name: name}
}

// derive returns the slices of a service: for each family of its cluster IPs, and in it for each
// combination of port numbers.
func (d *Deriver) derive(svc *model.Service) map[model.ObjectName]*model.EndpointSlice {
	pods := d.pods[svc.Name.Namespace]
	out := map[model.ObjectName]*model.EndpointSlice{}
	for _, f := range families(svc) {
		byPorts := map[string]*model.EndpointSlice{}
		var order []string
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			pod := pods[name]
			addr, ok := address(pod, f)
			if !ok || !selects(svc, pod) {
				continue
			}
			ports := resolve(svc, pod)
			if len(ports) == 0 {
				continue
			}
			key := portsKey(ports)
			s := byPorts[key]
			if s == nil {
				s = &model.EndpointSlice{Service: svc.Name, Family: f, Ports: ports}
				byPorts[key] = s
				order = append(order, key)
			}
			s.Endpoints = append(s.Endpoints, d.endpoint(svc, pod, addr))
		}
		// The order of the combinations must not depend on which pod came first: a pod that comes
		// or goes then leaves the other slices as they are.
		slices.Sort(order)
		for i, key := range order {
			s := byPorts[key]
			s.Name = SliceName(svc.Name, f, i+1)
			out[s.Name] = s
		}
	}
	return out
}

func families(svc *model.Service) []model.Family {
	var out []model.Family
	for _, a := range svc.ClusterIPs {
		if f := model.FamilyOf(a); a.IsValid() && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// address returns a pod's address of a family; pods that have ended have none any more.
func address(pod *model.Pod, f model.Family) (netip.Addr, bool) {
	if pod.Phase == model.PodSucceeded || pod.Phase == model.PodFailed {
		return netip.Addr{}, false
	}
	for _, a := range pod.IPs {
		if a.IsValid() && model.FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// resolve finds the numbers of a service's target ports in one pod. A name that the pod does not
// have leaves the port out: the pod is no endpoint for it.
func resolve(svc *model.Service, pod *model.Pod) []model.EndpointPort {
	var out []model.EndpointPort
	for _, sp := range svc.Ports {
		number := sp.TargetPort.Number
		switch {
		case sp.TargetPort.Name != "":
			number = 0
			for _, cp := range pod.Ports {
				if cp.Name == sp.TargetPort.Name && cp.Protocol == sp.Protocol {
					number = cp.Port
					break
				}
			}
		case number == 0:
			number = sp.Port
		}
		if number != 0 {
			out = append(out, model.EndpointPort{Name: sp.Name, Protocol: sp.Protocol, Port: number, AppProtocol: sp.AppProtocol})
		}
	}
	return out
}

func portsKey(ports []model.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "%s/%d/%05d,", p.Name, p.Protocol, p.Port)
	}
	return b.String()
}

// endpoint sets the conditions as the cluster's controller does: serving is the pod's readiness,
// ready is the same but for pods that terminate, and always true with publishNotReadyAddresses.
func (d *Deriver) endpoint(svc *model.Service, pod *model.Pod, addr netip.Addr) model.Endpoint {
	return model.Endpoint{
		Addr:        addr,
		Serving:     pod.Ready,
		Ready:       svc.PublishNotReadyAddresses || (pod.Ready && !pod.Deleting),
		Terminating: pod.Deleting,
		Node:        pod.Node,
		Zone:        d.zones[pod.Node],
		Pod:         pod.Name,
		Weight:      weight(pod),
	}
}

// weight reads the pod's annotation; what is no number between 1 and 65535 counts as none.
func weight(pod *model.Pod) uint16 {
	w, err := strconv.ParseUint(cmp.Or(pod.Annotations[model.AnnotationWeight], "0"), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(w)
}
