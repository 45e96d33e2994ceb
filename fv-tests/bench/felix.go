// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// byAgent is how many services the agent itself programs in this mode. The others of a larger number
// are written into its maps beside it: a packet can not tell, and the run is not a test of how fast
// YAML is read (that is measured apart).
const byAgent = 10

// felixMode carries services by the real agent.
type felixMode struct {
	agent       string // binary
	cpu         int
	connectTime bool // services are found at connect time
}

func (m felixMode) carry(ctx context.Context, s *site, services int) (func() error, error) {
	if _, err := os.Stat(m.agent); err != nil {
		return nothingToClose, fmt.Errorf("the agent's binary: %w: run make build", err)
	}
	a, err := agentDirs("felix")
	if err != nil {
		return a.close, err
	}
	// The agent finds nothing to repair while a benchmark runs, and its tables are large enough for what
	// the workloads leave behind within the timeouts.
	extra := map[string]any{"resyncInterval": "12h", "mapSizeConntrack": conntrackSize, "connectTimeLoadBalancing": "Disabled"}
	if m.connectTime {
		extra["connectTimeLoadBalancing"] = "Enabled"
	}
	if err := a.config(s.cgroup, extra); err != nil {
		return a.close, err
	}
	s.bpffs = a.bpffs()
	if err := a.manifests(services, byAgent); err != nil {
		return a.close, err
	}
	for _, pod := range s.pods() {
		if err := a.endpoint(pod.id, pod.namespace.path(), pod.host, podInterface, pod.mac.String(), pod.addrs); err != nil {
			return a.close, err
		}
	}
	if err := a.start(m.agent, s.node, s.cgroup, m.cpu); err != nil {
		return a.close, err
	}
	if err := a.untilCarrying(ctx, s, services); err != nil {
		return a.close, err
	}
	if err := a.untilComplete(ctx, s, m.connectTime); err != nil {
		return a.close, err
	}
	if services > byAgent {
		return a.close, a.addServices(services)
	}
	return a.close, nil
}

// untilCarrying waits until both pods are programmed and the measured service is in the maps.
func (a *agent) untilCarrying(ctx context.Context, s *site, services int) error {
	for _, pod := range s.pods() {
		if err := a.until(ctx, 60*time.Second, "ready endpoint", func() (bool, string) { return a.ready(pod.id) }); err != nil {
			return err
		}
	}
	set, err := maps.OpenExisting(a.bpffs())
	if err != nil {
		return err
	}
	defer set.Close()
	for _, f := range []family{4, 6} {
		for _, p := range append(servicePortsOf(services, services/2, f), servicePortsOf(services, services/2+1, f)...) {
			key := maps.FrontendKey{Addr: p.addr, Port: p.port, Proto: p.proto}
			err := a.until(ctx, 60*time.Second, "frontend "+key.Addr.String(), func() (bool, string) {
				v, found, err := set.Frontends.Lookup(key)
				return err == nil && found && int(v.ClusterCount) == len(p.backends), fmt.Sprintf("found %v, %+v, %v", found, v, err)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// untilComplete waits until the programs at connect time stand on the site's cgroup, or the pair that
// serves the node itself is up and routes lead to it.
func (a *agent) untilComplete(ctx context.Context, s *site, connectTime bool) error {
	if connectTime {
		return a.until(ctx, 60*time.Second, "programs at connect time", func() (bool, string) {
			links, err := attach.CgroupLinks(s.bpffs)
			return err == nil && len(links) >= len(load.CgroupHooks()), fmt.Sprintf("%d links, %v", len(links), err)
		})
	}
	return a.until(ctx, 60*time.Second, "routes to services by "+natIn, func() (bool, string) {
		link, err := s.node.nl.LinkByName(natIn)
		if err != nil {
			return false, err.Error()
		}
		for _, f := range []family{4, 6} {
			routes, err := s.node.nl.RouteList(link, f.netlink())
			if err != nil || !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw != nil }) {
				return false, fmt.Sprintf("%d %s routes by %s, %v", len(routes), f, natIn, err)
			}
		}
		return true, ""
	})
}

// natIn is the interface that leads the node's own traffic to services to the programs of natOut.
const natIn = "bpfin.cali"

// addServices writes the services that the agent does not know, with ids that it does not use.
func (a *agent) addServices(services int) error {
	set, err := maps.OpenExisting(a.bpffs())
	if err != nil {
		return err
	}
	defer set.Close()
	known := map[maps.FrontendKey]bool{}
	if err := set.Frontends.All(func(k maps.FrontendKey, _ layout.FEValue) bool { known[k] = true; return true }); err != nil {
		return err
	}
	return fillServices(set, services, 1<<24, known)
}

// fillServices writes n services into the maps, backends first, with ids from first on. Frontends that
// are known already are left alone.
func fillServices(set *maps.Set, n int, first uint32, known map[maps.FrontendKey]bool) error {
	for _, f := range []family{4, 6} {
		for i, p := range fleet(n, f) {
			id := first + uint32(i)
			key := maps.FrontendKey{Addr: p.addr, Port: p.port, Proto: p.proto}
			if known[key] {
				continue
			}
			for j, be := range p.backends {
				backend := maps.BackendKey{Family: layout.FamilyOf(be.addr), SvcID: id, Ordinal: uint32(j)}
				value := maps.Backend{Addr: be.addr, Port: be.port, ID: uint32(j + 1), Weight: 1}
				if err := set.Backends.Put(backend, value); err != nil {
					return err
				}
				backend.Ordinal = uint32(layout.BEByID) | value.ID
				value.Flags = uint32(layout.BefCluster | layout.BefLocal)
				if err := set.Backends.Put(backend, value); err != nil {
					return err
				}
			}
			if err := set.Frontends.Put(key, layout.FEValue{SvcID: id, ClusterCount: uint32(len(p.backends))}); err != nil {
				return err
			}
		}
	}
	return nil
}
