// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// The manifests of the agent's `files` source, as the API server would give them.

type object = map[string]any

func nodeObject() object {
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": nodeName},
		"spec": object{"podCIDR": podCIDR[4].String(), "podCIDRs": []string{podCIDR[4].String(), podCIDR[6].String()}},
		"status": object{"addresses": []object{
			{"type": "InternalIP", "address": nodeAddr[4].String()},
			{"type": "InternalIP", "address": nodeAddr[6].String()},
		}},
	}
}

// serviceObjects are the Service and the two EndpointSlices of service i of n.
func serviceObjects(n, i int) []any {
	name := ""
	var ports []object
	var slices []any
	for _, f := range []family{4, 6} {
		var slicePorts, endpoints []object
		list := servicePortsOf(n, i, f)
		for _, p := range list {
			name = p.service
			protocol, target := strings.ToUpper(p.protoName()), p.backends[0].port
			slicePorts = append(slicePorts, object{"name": p.portName, "protocol": protocol, "port": target})
			if f == 4 {
				ports = append(ports, object{"name": p.portName, "protocol": protocol, "port": p.port, "targetPort": target})
			}
		}
		for _, be := range list[0].backends { // the same for each port
			node := "elsewhere"
			if podCIDR[f].Contains(be.addr) {
				node = nodeName
			}
			endpoints = append(endpoints, object{
				"addresses": []string{be.addr.String()}, "nodeName": node, "conditions": object{"ready": true},
			})
		}
		slices = append(slices, object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": fmt.Sprintf("IPv%d", f),
			"metadata": object{
				"name": fmt.Sprintf("%s-%s", name, f), "namespace": "bench",
				"labels": object{"kubernetes.io/service-name": name},
			},
			"ports": slicePorts, "endpoints": endpoints,
		})
	}
	service := object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "namespace": "bench"},
		"spec": object{
			"type": "ClusterIP", "clusterIP": vipOf(4, i).String(),
			"clusterIPs": []string{vipOf(4, i).String(), vipOf(6, i).String()},
			"ipFamilies": []string{"IPv4", "IPv6"}, "ports": ports,
		},
	}
	return append([]any{service}, slices...)
}
