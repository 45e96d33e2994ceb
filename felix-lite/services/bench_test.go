// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// fleet makes n services with one port and some endpoints each.
func fleet(n, endpoints int) []model.Change {
	var out []model.Change
	for i := range n {
		svc := &model.Service{
			Name: model.ObjectName{Namespace: "bench", Name: fmt.Sprintf("s%05d", i)}, Type: model.NodePort,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		out = append(out, model.Updated(svc), model.Updated(fleetSlice(svc.Name, i, endpoints)))
	}
	return out
}

func fleetSlice(svc model.ObjectName, i, endpoints int) *model.EndpointSlice {
	s := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: svc.Namespace, Name: svc.Name + "-1"}, Service: svc, Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for j := range endpoints {
		s.Endpoints = append(s.Endpoints, model.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(64 + j), byte(i >> 8), byte(i)}), Ready: true, Serving: true, Node: fmt.Sprintf("n%d", j),
		})
	}
	return s
}

func BenchmarkOneEndpointAmong30000Services(b *testing.B) {
	c := New(Options{NodeName: "n0"})
	c.Apply(fleet(30000, 3))
	c.Synced()
	name := model.ObjectName{Namespace: "bench", Name: "s12345"}
	both := [2][]model.Change{{model.Updated(fleetSlice(name, 12345, 3))}, {model.Updated(fleetSlice(name, 12345, 2))}}
	b.ReportAllocs()
	writes := 0
	for i := 0; b.Loop(); i++ {
		writes += len(c.Apply(both[(i+1)%2]).ops())
	}
	b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
}

func BenchmarkOneEndpointOfAServiceWith5000(b *testing.B) {
	c := New(Options{NodeName: "n0"})
	name := model.ObjectName{Namespace: "bench", Name: "big"}
	svc := &model.Service{
		Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, SessionAffinity: model.AffinityClientIP,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	c.Apply([]model.Change{model.Updated(svc)})
	slice := func(n, endpoints int) model.Change {
		s := fleetSlice(name, n, endpoints)
		s.Name.Name = fmt.Sprintf("big-%d", n)
		return model.Updated(s)
	}
	for n := range 50 {
		c.Apply([]model.Change{slice(n, 100)})
	}
	c.Synced()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Apply([]model.Change{slice(7, 100-i%2)})
	}
}

func BenchmarkSyncFromEmpty10000x10(b *testing.B) {
	changes := fleet(10000, 10)
	b.ReportAllocs()
	for b.Loop() {
		c := New(Options{NodeName: "n0"})
		c.Apply(changes)
		if d := c.Synced(); len(d.Backends) != 100000 {
			b.Fatalf("%d backends", len(d.Backends))
		}
	}
}

func BenchmarkRestartWith10000x10(b *testing.B) {
	changes := fleet(10000, 10)
	c := New(Options{NodeName: "n0"})
	c.Apply(changes)
	d := c.Synced()
	for b.Loop() {
		c := New(Options{NodeName: "n0"})
		c.Seed(model.IPv4, d.Frontends, d.Backends)
		c.Apply(changes)
		if d := c.Synced(); !d.Empty() {
			b.Fatal("a restart without change wants writes")
		}
	}
}
