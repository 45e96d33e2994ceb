// SPDX-License-Identifier: Apache-2.0

// Package derive makes EndpointSlices from Services and Pods, as the cluster's controller does,
// for sources that are given none.
//
// In: the same changes that the source sends on (Services, Pods, Nodes, EndpointSlices). Out:
// changes of derived slices, to be sent after them. A service that any given slice belongs to gets
// none: who writes slices means them. It is pure: no I/O, no clock. The files source calls it.
package derive

import (
	"maps"
	"slices"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Deriver keeps the derived slices up to date. It is not safe for concurrent use.
type Deriver struct {
	services  map[model.ObjectName]*service
	selecting map[string]map[*service]struct{}      // services with a selector, by namespace
	pods      map[string]map[string]*model.Pod      // by namespace and name
	zones     map[string]string                     // of nodes
	given     map[model.ObjectName]model.ObjectName // a given slice's service
	dirty     map[*service]struct{}
}

// service is a Service and what was derived for it.
type service struct {
	name    model.ObjectName
	svc     *model.Service
	given   int // number of slices that the source was given
	derived map[model.ObjectName]*model.EndpointSlice
}

// New returns a Deriver that knows no objects.
func New() *Deriver {
	return &Deriver{
		services:  map[model.ObjectName]*service{},
		selecting: map[string]map[*service]struct{}{},
		pods:      map[string]map[string]*model.Pod{},
		zones:     map[string]string{},
		given:     map[model.ObjectName]model.ObjectName{},
		dirty:     map[*service]struct{}{},
	}
}

// Apply takes changes in and returns the changes of derived slices that follow from them, nothing
// if no derived slice is altered. Its own results must not be given back to it.
func (d *Deriver) Apply(changes []model.Change) []model.Change {
	for _, ch := range changes {
		switch ch.Kind {
		case model.KindService:
			svc, _ := ch.Object.(*model.Service)
			d.setService(ch.Name, svc)
		case model.KindEndpointSlice:
			slice, _ := ch.Object.(*model.EndpointSlice)
			d.setGiven(ch.Name, slice)
		case model.KindPod:
			pod, _ := ch.Object.(*model.Pod)
			d.setPod(ch.Name, pod)
		case model.KindNode:
			node, _ := ch.Object.(*model.Node)
			d.setNode(ch.Name.Name, node)
		}
	}
	var out []model.Change
	for _, s := range slices.SortedFunc(maps.Keys(d.dirty), func(a, b *service) int { return a.name.Compare(b.name) }) {
		out = append(out, d.update(s)...)
		if s.svc == nil && s.given == 0 {
			delete(d.services, s.name)
		}
	}
	clear(d.dirty)
	return out
}

func (d *Deriver) service(name model.ObjectName) *service {
	s := d.services[name]
	if s == nil {
		s = &service{name: name, derived: map[model.ObjectName]*model.EndpointSlice{}}
		d.services[name] = s
	}
	return s
}

func (d *Deriver) setService(name model.ObjectName, svc *model.Service) {
	s := d.service(name)
	s.svc = svc
	d.dirty[s] = struct{}{}
	if svc == nil || len(svc.Selector) == 0 {
		delete(d.selecting[name.Namespace], s)
		return
	}
	if d.selecting[name.Namespace] == nil {
		d.selecting[name.Namespace] = map[*service]struct{}{}
	}
	d.selecting[name.Namespace][s] = struct{}{}
}

func (d *Deriver) setGiven(name model.ObjectName, slice *model.EndpointSlice) {
	if old, ok := d.given[name]; ok {
		s := d.service(old)
		s.given--
		d.dirty[s] = struct{}{}
		delete(d.given, name)
	}
	if slice == nil || slice.Service.Name == "" {
		return
	}
	s := d.service(slice.Service)
	s.given++
	d.dirty[s] = struct{}{}
	d.given[name] = slice.Service
}

func (d *Deriver) setPod(name model.ObjectName, pod *model.Pod) {
	pods := d.pods[name.Namespace]
	old := pods[name.Name]
	if pod == nil {
		delete(pods, name.Name)
	} else {
		if pods == nil {
			pods = map[string]*model.Pod{}
			d.pods[name.Namespace] = pods
		}
		pods[name.Name] = pod
	}
	for s := range d.selecting[name.Namespace] {
		if selects(s.svc, old) || selects(s.svc, pod) {
			d.dirty[s] = struct{}{}
		}
	}
}

func (d *Deriver) setNode(name string, node *model.Node) {
	zone := ""
	if node != nil {
		zone = node.Zone
	}
	if d.zones[name] == zone {
		return
	}
	if zone == "" {
		delete(d.zones, name)
	} else {
		d.zones[name] = zone
	}
	for _, s := range d.services {
		d.dirty[s] = struct{}{}
	}
}

// update compares what a service should have with what was derived before.
func (d *Deriver) update(s *service) []model.Change {
	var now map[model.ObjectName]*model.EndpointSlice
	if s.svc != nil && s.given == 0 && wantsSlices(s.svc) {
		now = d.derive(s.svc)
	}
	var out []model.Change
	for _, name := range slices.SortedFunc(maps.Keys(now), model.ObjectName.Compare) {
		if old := s.derived[name]; old == nil || !model.Equal(old, now[name]) {
			out = append(out, model.Updated(now[name]))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.derived), model.ObjectName.Compare) {
		if now[name] == nil {
			out = append(out, model.Deleted(model.KindEndpointSlice, name))
		}
	}
	s.derived = now
	return out
}

// wantsSlices reports whether endpoints of a service are found by a selector. A headless service's
// are found, too, but nothing here uses them.
func wantsSlices(svc *model.Service) bool {
	return len(svc.Selector) > 0 && svc.Type != model.ExternalName && !svc.Headless
}

func selects(svc *model.Service, pod *model.Pod) bool {
	if pod == nil || len(svc.Selector) == 0 {
		return false
	}
	for k, v := range svc.Selector {
		if have, ok := pod.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
