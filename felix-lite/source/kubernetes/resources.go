// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// resource is one kind that is listed and watched.
type resource struct {
	kind    model.Kind
	plural  string // as in RBAC rules
	group   string
	example runtime.Object
	labels  string // selector
	fields  string // selector
	list    func(context.Context, kubernetes.Interface, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, kubernetes.Interface, metav1.ListOptions) (watch.Interface, error)
}

// Objects that are not ours to serve are not even sent to us. The server tells of an object that
// loses such a label as of one that was added.
const notOurs = "!" + model.LabelHeadless + ",!" + model.LabelServiceProxyName

// Pods that have ended hold no address.
const notEnded = "status.phase!=Succeeded,status.phase!=Failed"

var resources = []resource{
	{
		kind: model.KindNamespace, plural: "namespaces", example: &corev1.Namespace{},
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return c.CoreV1().Namespaces().List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Namespaces().Watch(ctx, o)
		},
	},
	{
		kind: model.KindNode, plural: "nodes", example: &corev1.Node{},
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return c.CoreV1().Nodes().List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Nodes().Watch(ctx, o)
		},
	},
	{
		kind: model.KindPod, plural: "pods", example: &corev1.Pod{}, fields: notEnded,
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
		},
	},
	{
		kind: model.KindService, plural: "services", example: &corev1.Service{}, labels: notOurs,
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return c.CoreV1().Services(metav1.NamespaceAll).List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Services(metav1.NamespaceAll).Watch(ctx, o)
		},
	},
	{
		kind: model.KindEndpointSlice, plural: "endpointslices", group: "discovery.k8s.io",
		example: &discoveryv1.EndpointSlice{}, labels: notOurs,
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (runtime.Object, error) {
			return c.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, o)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (watch.Interface, error) {
			return c.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).Watch(ctx, o)
		},
	},
}

// options adds the resource's selectors to a request.
func (r *resource) options(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = r.labels, r.fields
	return o
}

// trim drops the bulk of an API object that the conversion does not read. The reflector calls it on
// each object of a streamed list, so that the whole list never stands in memory untrimmed.
func trim(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
		m.SetOwnerReferences(nil)
		m.SetFinalizers(nil)
		if a := m.GetAnnotations(); a != nil {
			delete(a, corev1.LastAppliedConfigAnnotation)
		}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *corev1.Node:
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses, Conditions: o.Status.Conditions}
	}
	return object, nil
}

func trimPod(p *corev1.Pod) {
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
	for _, c := range p.Spec.InitContainers {
		spec.InitContainers = append(spec.InitContainers, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
	}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Ports: c.Ports})
	}
	p.Spec = spec
	p.Status = corev1.PodStatus{
		Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs, Conditions: p.Status.Conditions,
	}
}
