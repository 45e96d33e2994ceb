// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Pod converts a Pod.
func Pod(pod *corev1.Pod) (*model.Pod, []model.ObjectError) {
	out := &model.Pod{
		Name:        objectName(&pod.ObjectMeta),
		UID:         strings.Clone(string(pod.UID)),
		Created:     pod.CreationTimestamp.Time,
		Labels:      copyMap(pod.Labels, everything),
		Annotations: copyMap(pod.Annotations, ours),
		Node:        strings.Clone(pod.Spec.NodeName),
		Phase:       model.PodPhase(strings.Clone(string(pod.Status.Phase))),
		Deleting:    pod.DeletionTimestamp != nil,
		HostNetwork: pod.Spec.HostNetwork,
	}
	p := &problems{kind: model.KindPod, name: out.Name}
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && pod.Status.PodIP != "" {
		ips = []string{pod.Status.PodIP}
	}
	for i, ip := range ips {
		out.IPs = append(out.IPs, p.address(fmt.Sprintf("status.podIPs[%d].ip", i), ip))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	p.containerPorts(pod.Spec.InitContainers, "spec.initContainers", restartable, out)
	p.containerPorts(pod.Spec.Containers, "spec.containers", func(*corev1.Container) bool { return true }, out)

	p.addValidation(out.Validate())
	if len(p.errors) == 0 {
		return out, nil
	}
	bare := model.Pod{Name: out.Name}
	if len(bare.Validate()) > 0 {
		return nil, p.errors
	}
	out.IPs = keep(out.IPs, netip.Addr.IsValid)
	return out, p.errors
}

// restartable says whether an init container keeps running beside the others (a sidecar).
func restartable(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// containerPorts takes the named ports: the others are no use to a service or policy.
func (p *problems) containerPorts(list []corev1.Container, field string, serves func(*corev1.Container) bool, out *model.Pod) {
	for i := range list {
		if !serves(&list[i]) {
			continue
		}
		for j, c := range list[i].Ports {
			if c.Name == "" {
				continue
			}
			at := fmt.Sprintf("%s[%d].ports[%d]", field, i, j)
			port := model.ContainerPort{
				Name:     strings.Clone(c.Name),
				Port:     p.port(at+".containerPort", c.ContainerPort, 1),
				Protocol: p.protocol(at+".protocol", c.Protocol),
			}
			if port.Port != 0 && port.Protocol != 0 {
				out.Ports = append(out.Ports, port)
			}
		}
	}
}
