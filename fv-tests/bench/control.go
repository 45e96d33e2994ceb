// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/internal/reconcile"
)

// What the agent costs: attaching many pods when it starts, and one change among many services.

// Names and metrics of the control plane's results.
const (
	nameAttach    = "attach_pods_at_start"
	nameChange    = "one_endpoint_change"
	modeAgent     = "agent" // whatever finds the services
	metricTime    = "time"
	metricWrites  = "map_writes"
	attachedPods  = 200
	changeAmong   = 30000
	changeRepeats = 200
)

// control measures the control plane and records the results.
func (b *bench) control(ctx context.Context) error {
	var errs []error
	if err := b.attachAtStart(ctx, pick(b.o.quick, 1, 5)); err != nil {
		errs = append(errs, fmt.Errorf("attach %d pods: %w", attachedPods, err))
	}
	if err := b.endpointChange(); err != nil {
		errs = append(errs, fmt.Errorf("one endpoint change among %d services: %w", changeAmong, err))
	}
	for _, err := range errs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Printf("  left out: %v\n", err)
	}
	return nil
}

// attachAtStart starts the agent on a node with many pods and takes the time until each of them is
// reported programmed.
func (b *bench) attachAtStart(ctx context.Context, rounds int) error {
	if _, err := os.Stat(b.o.agent); err != nil {
		return fmt.Errorf("the agent's binary: %w", err)
	}
	var seconds []float64
	for range rounds {
		took, err := attachOnce(ctx, b.o, attachedPods)
		if err != nil {
			return err
		}
		seconds = append(seconds, took.Seconds())
	}
	s := summarize(seconds)
	b.results = append(b.results, result{
		Name: nameAttach, Mode: modeAgent, Metric: metricTime, Value: s.median, Unit: "s", Q1: s.q1, Q3: s.q3, Rounds: s.n,
	})
	fmt.Printf("  %d pods programmed %.2f s after the agent's start (%.2f .. %.2f, %d starts)\n", attachedPods, s.median, s.q1, s.q3, s.n)
	return nil
}

func attachOnce(ctx context.Context, o options, pods int) (took time.Duration, err error) {
	node, err := newNamespace("attach-n")
	defer func() { err = errors.Join(err, node.close()) }()
	if err != nil {
		return 0, err
	}
	peers, err := newNamespace("attach-p")
	defer func() { err = errors.Join(err, peers.close()) }()
	if err != nil {
		return 0, err
	}
	if err := node.setUpNode(); err != nil {
		return 0, err
	}
	cg, err := newCgroup("attach")
	defer func() { err = errors.Join(err, cg.remove()) }()
	if err != nil {
		return 0, err
	}
	a, err := agentDirs("attach")
	defer func() { err = errors.Join(err, a.close()) }()
	if err != nil {
		return 0, err
	}
	for i := range pods {
		if err := a.addPod(node, peers, i); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(a.config(cg, nil), a.manifests(byAgent, byAgent)); err != nil {
		return 0, err
	}
	if err := a.start(o.agent, node, cg, -1); err != nil { // nothing is measured beside it: every CPU
		return 0, err
	}
	next := 0 // all before it are ready
	err = a.until(ctx, 120*time.Second, fmt.Sprintf("%d ready endpoints", pods), func() (bool, string) {
		for ; next < pods; next++ {
			if ok, seen := a.ready(podID(next)); !ok {
				return false, seen
			}
		}
		return true, ""
	})
	return time.Since(a.started), err
}

func podID(i int) string { return fmt.Sprintf("pod-%03d", i) }

// addPod makes the veth pair of a pod that carries no traffic, and its endpoint file.
func (a *agent) addPod(node, peers *namespace, i int) error {
	mac := net.HardwareAddr{0x02, 0, 0, 1, byte(i >> 8), byte(i)}
	host := fmt.Sprintf("cali%03d", i)
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: host, HardwareAddr: hostMAC},
		PeerName:  fmt.Sprintf("pod%03d", i), PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(int(peers.handle)),
	}
	if err := node.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth %s: %w", host, err)
	}
	if err := errors.Join(node.up(host), peers.up(veth.PeerName)); err != nil {
		return err
	}
	addrs := []netip.Addr{addrPlus(podCIDR[4].Addr(), uint32(i)+2), addrPlus(podCIDR[6].Addr(), uint32(i)+2)}
	return a.endpoint(podID(i), peers.path(), host, veth.PeerName, mac.String(), addrs)
}

// endpointChange calculates and writes one endpoint's coming and going among many services, as the
// agent's loop does, and counts what is written.
func (b *bench) endpointChange() (err error) {
	dir, err := makeDir("change")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return fmt.Errorf("mount bpffs: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	set, err := maps.Open(dir, maps.Options{})
	if err != nil {
		return err
	}
	defer set.Close()

	c := services.New(services.Options{NodeName: nodeName})
	for i := range changeAmong {
		c.Apply(changesOf(changeAmong, i))
	}
	start := time.Now()
	if err := write(set, c.Synced()); err != nil {
		return err
	}
	full := time.Since(start)
	slice := sliceOf(changeAmong, changeAmong/2, 4)
	one := model.Updated(slice)
	more := *slice
	extra := slice.Endpoints[0]
	extra.Addr = remoteAddr(4, 1<<20)
	more.Endpoints = append([]model.Endpoint{extra}, slice.Endpoints...)
	two := model.Updated(&more)

	var micros, writes []float64
	for i := range changeRepeats {
		change := two
		if i%2 == 1 {
			change = one
		}
		before := set.Writes()
		start := time.Now()
		if err := write(set, c.Apply([]model.Change{change})); err != nil {
			return err
		}
		micros = append(micros, float64(time.Since(start).Nanoseconds())/1000)
		writes = append(writes, float64(set.Writes()-before))
	}
	took, wrote := summarize(micros), summarize(writes)
	base := result{Name: nameChange, Mode: modeAgent, Services: changeAmong, Family: 4, Rounds: took.n}
	t, w := base, base
	t.Metric, t.Unit, t.Value, t.Q1, t.Q3 = metricTime, "us", took.median, took.q1, took.q3
	w.Metric, w.Unit, w.Value, w.Q1, w.Q3 = metricWrites, "1", wrote.median, wrote.q1, wrote.q3
	b.results = append(b.results, t, w, result{
		Name: "all_services_at_once", Mode: modeAgent, Services: changeAmong, Metric: metricTime, Value: full.Seconds(), Unit: "s",
		Q1: full.Seconds(), Q3: full.Seconds(), Rounds: 1,
	})
	fmt.Printf("  one endpoint of a service with %d ports among %d services: %.0f us, %.0f map writes (all services at once: %.2f s)\n",
		len(listeners), changeAmong, took.median, wrote.median, full.Seconds())
	return nil
}

// changesOf are service i of n and its endpoints, as a source would send them.
func changesOf(n, i int) []model.Change {
	v4 := servicePortsOf(n, i, 4)
	svc := &model.Service{
		Name: model.ObjectName{Namespace: "bench", Name: v4[0].service}, Type: model.ClusterIP,
		ClusterIPs: []netip.Addr{vipOf(4, i), vipOf(6, i)},
	}
	for _, p := range v4 {
		svc.Ports = append(svc.Ports, model.ServicePort{Name: p.portName, Protocol: model.Protocol(p.proto), Port: p.port})
	}
	return []model.Change{model.Updated(svc), model.Updated(sliceOf(n, i, 4)), model.Updated(sliceOf(n, i, 6))}
}

func sliceOf(n, i int, f family) *model.EndpointSlice {
	ports := servicePortsOf(n, i, f)
	name := model.ObjectName{Namespace: "bench", Name: ports[0].service}
	s := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: "bench", Name: name.Name + "-" + f.String()}, Service: name,
		Family: model.FamilyOf(ports[0].addr),
	}
	for _, be := range ports[0].backends {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: be.addr, Ready: true, Serving: true, Node: "elsewhere"})
	}
	for _, p := range ports {
		s.Ports = append(s.Ports, model.EndpointPort{Name: p.portName, Protocol: model.Protocol(p.proto), Port: p.backends[0].port})
	}
	return s
}

// write puts a delta into the maps in the order that it asks for.
func write(set *maps.Set, d services.Delta) error {
	backendKey := func(k services.BackendKey) maps.BackendKey {
		return maps.BackendKey{Family: layout.Family(k.Family), SvcID: k.ServiceID, Ordinal: k.Ordinal}
	}
	frontendKey := func(k services.FrontendKey) maps.FrontendKey {
		return maps.FrontendKey{Addr: k.Addr, Port: k.Port, Proto: uint8(k.Proto)}
	}
	ctx := context.Background()
	var backends []reconcile.Entry[maps.BackendKey, maps.Backend]
	for _, e := range d.Backends {
		v := maps.Backend{Addr: e.Value.Addr, Port: e.Value.Port, Weight: e.Value.Weight, ID: e.Value.ID, Flags: e.Value.Flags}
		backends = append(backends, reconcile.Entry[maps.BackendKey, maps.Backend]{Key: backendKey(e.Key), Value: v})
	}
	var frontends []reconcile.Entry[maps.FrontendKey, layout.FEValue]
	for _, e := range d.Frontends {
		v := layout.FEValue{
			SvcID: e.Value.ServiceID, Flags: uint32(e.Value.Flags), AffinityTimeout: e.Value.AffinityTimeout,
			ClusterCount: e.Value.ClusterCount, LocalCount: e.Value.LocalCount,
		}
		frontends = append(frontends, reconcile.Entry[maps.FrontendKey, layout.FEValue]{Key: frontendKey(e.Key), Value: v})
	}
	errs := set.Backends.Update(ctx, backends)
	errs = append(errs, set.Frontends.Update(ctx, frontends)...)
	for _, k := range d.DeleteFrontends {
		errs = append(errs, set.Frontends.Remove(frontendKey(k)))
	}
	for _, k := range d.DeleteBackends {
		errs = append(errs, set.Backends.Remove(backendKey(k)))
	}
	return errors.Join(errs...)
}
