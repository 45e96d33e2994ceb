// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Object converts any of the API types that the sources read. The result is nil if the object can
// not be used at all, with the reason among the errors, or if it is of no concern here (a slice of
// host names), without an error.
func Object(o any) (model.Object, []model.ObjectError) {
	switch o := o.(type) {
	case *corev1.Service:
		return orNil(Service(o))
	case *discoveryv1.EndpointSlice:
		return orNil(EndpointSlice(o))
	case *corev1.Pod:
		return orNil(Pod(o))
	case *corev1.Node:
		return orNil(Node(o))
	case *corev1.Namespace:
		return orNil(Namespace(o))
	}
	return nil, []model.ObjectError{{Message: fmt.Sprintf("objects of type %T are not read", o)}}
}

// orNil keeps a nil pointer from becoming an Object that is not nil.
func orNil[T any, P interface {
	*T
	model.Object
}](o P, errs []model.ObjectError) (model.Object, []model.ObjectError) {
	if o == nil {
		return nil, errs
	}
	return o, errs
}

// Namespace converts a Namespace.
func Namespace(n *corev1.Namespace) (*model.Namespace, []model.ObjectError) {
	out := &model.Namespace{
		Name:        strings.Clone(n.Name),
		Labels:      copyMap(n.Labels, everything),
		Annotations: copyMap(n.Annotations, ours),
	}
	if errs := out.Validate(); errs != nil {
		return nil, errs
	}
	return out, nil
}

// problems collects what is wrong with one object, by field.
type problems struct {
	kind   model.Kind
	name   model.ObjectName
	errors []model.ObjectError
}

func (p *problems) add(field, format string, args ...any) {
	p.errors = append(p.errors, model.ObjectError{
		Kind: p.kind, Name: p.name, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// addValidation adds what the object says of itself, but for fields that have their error already:
// what could not be parsed stands in the object as a zero value and is no valid value either.
func (p *problems) addValidation(errs []model.ObjectError) {
	for _, err := range errs {
		if !slices.ContainsFunc(p.errors, func(e model.ObjectError) bool { return e.Field == err.Field }) {
			p.errors = append(p.errors, err)
		}
	}
}

// address parses one address; a string that is none is reported and gives the zero value.
func (p *problems) address(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		p.add(field, "%q is not an IP address", s)
		return netip.Addr{}
	}
	return a
}

// addresses parses a list of addresses, one result for each.
func (p *problems) addresses(field string, list []string) []netip.Addr {
	var out []netip.Addr
	for i, s := range list {
		out = append(out, p.address(fmt.Sprintf("%s[%d]", field, i), s))
	}
	return out
}

// prefixes parses a list of CIDRs, one result for each. Bits beyond the length are cleared, and
// white space around a CIDR is tolerated, as kube-proxy does.
func (p *problems) prefixes(field string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		c, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%q is not a CIDR", s)
		}
		out = append(out, c.Masked())
	}
	return out
}

// keep returns the elements that good accepts, and nil rather than an empty list.
func keep[T any](list []T, good func(T) bool) []T {
	var out []T
	for _, v := range list {
		if good(v) {
			out = append(out, v)
		}
	}
	return out
}

func objectName(m *metav1.ObjectMeta) model.ObjectName {
	ns := m.Namespace
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	return model.ObjectName{Namespace: strings.Clone(ns), Name: strings.Clone(m.Name)}
}

func everything(string) bool { return true }

// ours picks the labels and annotations that the agent acts on.
func ours(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "felix-lite.io" || strings.HasSuffix(domain, ".felix-lite.io")
}

// ofServices picks the labels of a service that say whether and how it is served.
func ofServices(key string) bool {
	return strings.HasPrefix(key, "service.kubernetes.io/") || ours(key)
}

func copyMap(m map[string]string, wanted func(key string) bool) map[string]string {
	var out map[string]string
	for k, v := range m {
		if wanted(k) {
			if out == nil {
				out = make(map[string]string)
			}
			out[strings.Clone(k)] = strings.Clone(v)
		}
	}
	return out
}
