// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

const modeFelix = "felix-tc"

// byAgent is how many services the agent itself programs in this mode. The others of a larger number
// are written into its maps beside it: a packet can not tell, and the run is not a test of how fast
// YAML is read (that is measured apart).
const byAgent = 10

// felixMode carries services by the real agent.
type felixMode struct {
	agent string // binary
	cpu   int
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
	if err := a.config(map[string]any{"resyncInterval": "12h", "mapSizeConntrack": conntrackSize}); err != nil {
		return a.close, err
	}
	if err := a.manifests(services, byAgent); err != nil {
		return a.close, err
	}
	for _, pod := range s.pods() {
		if err := a.endpoint(pod.id, pod.namespace.path(), pod.host, podInterface, pod.mac.String(), pod.addrs); err != nil {
			return a.close, err
		}
	}
	if err := a.start(m.agent, s.node, m.cpu); err != nil {
		return a.close, err
	}
	if err := a.untilCarrying(ctx, s, services); err != nil {
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
		for _, l := range listeners {
			key := maps.FrontendKey{Addr: measuredVIP(services, f), Port: l.servicePort, Proto: l.proto}
			err := a.until(ctx, 60*time.Second, "frontend "+key.Addr.String(), func() (bool, string) {
				v, found, err := set.Frontends.Lookup(key)
				return err == nil && found && v.ClusterCount == 1, fmt.Sprintf("found %v, %+v, %v", found, v, err)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

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
				if err := set.Backends.Put(backend, maps.Backend{Addr: be.addr, Port: be.port, ID: uint32(j + 1), Weight: 1}); err != nil {
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
