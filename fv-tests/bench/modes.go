// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// mode is one dataplane with a number of services. New ones are added to allModes and nowhere else.
type mode struct {
	name     string
	services int       // 0: clients talk to the pods themselves
	by       mechanism // what must be seen to carry its traffic
	quick    bool      // part of a quick run
	groups   string    // the tables that it stands in: pod, host, crowd
	without  workload  // one that it can not carry
	agent    bool      // has an agent or programs of ours, whose runs can be counted
	// carry makes a fresh site carry the services. What it starts beside the site is closed by the
	// returned function, which is never nil.
	carry func(ctx context.Context, s *site, services int) (closer func() error, err error)
}

// The reference and its twin, which shows the noise.
const (
	modeDirect  = "direct"
	modeDirect2 = "direct2"
)

// Modes of the agent: how services are found.
const (
	modeCTLB = "felix-ctlb" // at connect time
	modeTC   = "felix-tc"   // by packet
)

func allModes(o options) []mode {
	agent := func(name string, by mechanism, services int, quick bool, groups string) mode {
		f := felixMode{agent: o.agent, cpu: o.cpu, connectTime: by == byConnect}
		return mode{name: name, services: services, by: by, quick: quick, groups: groups, agent: true, carry: f.carry}
	}
	modes := []mode{
		{name: modeDirect, quick: true, groups: "pod host crowd", carry: carryDirect},
		{name: modeDirect2, quick: true, groups: "pod host crowd", carry: carryDirect},
		{name: "redirect-limit", by: byRedirect, quick: true, groups: "pod", carry: carryLimit},
		{name: "connect-limit", services: 10, by: byRedirect, groups: "pod", without: udpUnconnected, carry: carryConnectLimit},
		{name: "redirect-limit-tcx", by: byRedirect, groups: "pod", carry: carryLimitTCX},
		agent(modeCTLB, byConnect, 10, true, "pod host crowd"),
		agent(modeCTLB, byConnect, 1000, false, "crowd"),
		agent(modeCTLB, byConnect, 10000, false, "crowd"),
		agent(modeCTLB, byConnect, 30000, true, "pod"),
		agent(modeTC, byPacket, 10, true, "pod host crowd"),
		agent(modeTC, byPacket, 1000, false, "crowd"),
		agent(modeTC, byPacket, 10000, false, "crowd"),
		agent(modeTC, byPacket, 30000, true, "pod"),
		{name: "nftables", services: 10, by: byNetfilter, quick: true, groups: "pod host crowd", carry: carryNftables},
		{name: "nftables", services: 1000, by: byNetfilter, groups: "pod crowd", carry: carryNftables},
		{name: "nftables", services: 10000, by: byNetfilter, groups: "pod crowd", carry: carryNftables},
		{name: "iptables", services: 10, by: byNetfilter, groups: "pod host crowd", carry: carryIptables},
		{name: "iptables", services: 1000, by: byNetfilter, quick: true, groups: "pod crowd", carry: carryIptables},
		{name: "iptables", services: 10000, by: byNetfilter, groups: "pod crowd", carry: carryIptables},
	}
	for _, build := range strings.Split(o.builds, ",") {
		if name, dir, ok := strings.Cut(build, "="); ok {
			m := parseBuild(dir)
			modes = append(modes, mode{name: name, services: 10, by: m.by(), groups: "pod crowd", agent: true, carry: m.carry})
		}
	}
	return modes
}

// label names a mode in tables and flags.
func (m mode) label() string {
	if m.services == 0 {
		return m.name
	}
	return fmt.Sprintf("%s/%d", m.name, m.services)
}

// slug names the mode's site: part of a namespace's name.
func (m mode) slug() string { return strings.ReplaceAll(m.label(), "/", "-") }

// buildNames are the modes that -build asks for.
func buildNames(o options) string {
	var names []string
	for _, build := range strings.Split(o.builds, ",") {
		name, _, _ := strings.Cut(build, "=")
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// selectModes picks the modes of a run. The two direct ones are always first.
func selectModes(o options) ([]mode, error) {
	var out []mode
	named := map[string]bool{}
	for _, m := range allModes(o) {
		reference := m.name == modeDirect || m.name == modeDirect2
		asked := listed(o.modes, m.label()) || listed(o.modes, m.name) || listed(buildNames(o), m.name)
		if reference || asked || o.modes == "" && (m.quick || !o.quick) {
			out = append(out, m)
		}
		named[m.label()], named[m.name] = true, true
	}
	for _, name := range strings.Split(o.modes, ",") {
		if name = strings.TrimSpace(name); name != "" && !named[name] {
			return nil, fmt.Errorf("no mode is called %q", name)
		}
	}
	return out, nil
}

func carryDirect(_ context.Context, s *site, _ int) (func() error, error) {
	return nothingToClose, s.addRoutes()
}

func nothingToClose() error { return nil }

// bench is a run's state: the modes with their sites and workers.
type bench struct {
	o       options
	stages  []*stage
	results []result
	leftOut int // modes and measurements that did not work
}

// stage is a mode that is up.
type stage struct {
	mode
	site    *site
	worker  *process
	closers []func() error
}

// raise brings a mode up: site, dataplane, workers. The stage is returned also after an error, to be
// closed.
func raise(ctx context.Context, o options, m mode) (*stage, error) {
	st := &stage{mode: m}
	s, err := newSite(m.slug())
	st.site = s
	if err != nil {
		return st, err
	}
	closer, err := m.carry(ctx, s, m.services)
	st.closers = append(st.closers, closer)
	if err != nil {
		return st, err
	}
	st.worker, err = startWorker(ctx, s.cgroup, workerConfig{
		Client: s.client.path(), Server: s.server.path(), CPU: o.cpu, Realtime: o.realtime,
		Listen: []string{serverAddr[4].String(), serverAddr[6].String()},
	})
	return st, err
}

func (st *stage) close() error {
	if st.worker != nil {
		st.worker.stop()
	}
	var errs []error
	for _, c := range st.closers {
		errs = append(errs, c())
	}
	return errors.Join(append(errs, st.site.close())...)
}

// close removes everything that the run made.
func (b *bench) close() error {
	var errs []error
	for _, st := range b.stages {
		errs = append(errs, st.close())
	}
	return errors.Join(errs...)
}

// makeDir makes a temporary directory whose name tells whose it is.
func makeDir(purpose string) (string, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(runDir, fmt.Sprintf("%d-%s-", os.Getpid(), purpose))
}

// runDir is where runs keep their files and mounts.
const runDir = "/run/felix-lite-bench"
