// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Node converts a Node.
func Node(n *corev1.Node) (*model.Node, []model.ObjectError) {
	out := &model.Node{
		Name:        strings.Clone(n.Name),
		UID:         strings.Clone(string(n.UID)),
		Created:     n.CreationTimestamp.Time,
		Labels:      copyMap(n.Labels, everything),
		Annotations: copyMap(n.Annotations, ours),
		Zone:        strings.Clone(n.Labels[model.LabelZone]),
		Deleting:    n.DeletionTimestamp != nil,
	}
	p := &problems{kind: model.KindNode, name: out.ObjectName()}
	for i, a := range n.Status.Addresses {
		switch t := model.NodeAddressType(a.Type); t {
		case model.NodeInternalIP, model.NodeExternalIP:
			// The index is the manifest's: host names are not in the model's list.
			if addr := p.address(fmt.Sprintf("status.addresses[%d].address", i), a.Address); addr.IsValid() {
				out.Addresses = append(out.Addresses, model.NodeAddress{Type: model.NodeAddressType(strings.Clone(string(t))), Addr: addr})
			}
		}
	}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	out.PodCIDRs = p.prefixes("spec.podCIDRs", cidrs)
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, model.Taint{
			Key: strings.Clone(t.Key), Value: strings.Clone(t.Value), Effect: strings.Clone(string(t.Effect)),
		})
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}

	p.addValidation(out.Validate())
	if len(p.errors) == 0 {
		return out, nil
	}
	bare := model.Node{Name: out.Name}
	if len(bare.Validate()) > 0 {
		return nil, p.errors
	}
	out.Addresses = keep(out.Addresses, func(a model.NodeAddress) bool {
		try := bare
		try.Addresses = []model.NodeAddress{a}
		return len(try.Validate()) == 0
	})
	out.PodCIDRs = keep(out.PodCIDRs, func(c netip.Prefix) bool {
		try := bare
		try.PodCIDRs = []netip.Prefix{c}
		return len(try.Validate()) == 0
	})
	return out, p.errors
}
