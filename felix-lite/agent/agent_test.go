// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/inspect"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

const webManifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: default, labels: {app: web}}
spec: {nodeName: n1}
status: {phase: Running, podIP: 10.65.0.1, podIPs: [{ip: 10.65.0.1}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: r1, namespace: default, labels: {app: web}}
spec: {nodeName: n2}
status: {phase: Running, podIP: 10.66.0.1, podIPs: [{ip: 10.66.0.1}], conditions: [{type: Ready, status: "True"}]}
`

// TestTheLifeOfANode starts an agent on an empty node and takes it through what happens to one. The
// steps share a node because loading the programs is what costs time.
func TestTheLifeOfANode(t *testing.T) {
	n := newTestNode(t)
	n.manifest("web.yaml", webManifest)
	n.pod(1)
	r := n.start()

	n.step(t, "a pod is programmed and answered", func(t *testing.T) {
		s := n.waitPod(1)
		if s.HostInterface != "cali1" || s.Ifindex == 0 || len(s.Addresses) != 2 {
			t.Errorf("status %+v", s)
		}
		r.waitReady()
		routes := testenv.Run(t, "ip", "route", "show", "10.65.0.1")
		if !strings.Contains(routes, "dev cali1") || !strings.Contains(routes, "proto 241") {
			t.Errorf("route: %s", routes)
		}
		if neigh := testenv.Run(t, "ip", "neigh", "show", "dev", "cali1"); !strings.Contains(neigh, "10.65.0.1 lladdr 02:00:00:00:00:01") ||
			!strings.Contains(neigh, "fd00:65::1 lladdr 02:00:00:00:00:01") {
			t.Errorf("neighbours: %s", neigh)
		}
		filters := testenv.Run(t, "tc", "filter", "show", "dev", "cali1", "egress")
		if !strings.Contains(filters, "felix-lite") {
			t.Errorf("filters: %s", filters)
		}
		got := n.interfacesTable()
		for _, want := range []string{"cali1", "eth0", "vxlan.calico"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	})
	n.step(t, "services and nodes are in the maps, with their names", func(t *testing.T) {
		n.untilContains("the service", n.servicesTable, "default/web:http", "10.96.0.10:80", "192.0.2.1:30080", "*(v4):30080",
			"10.65.0.1:8080", "10.66.0.1:8080")
		n.untilContains("the other node", n.routesTable, "10.66.0.0/16", "192.0.2.2", "fd00:66::/64")
		if remote := testenv.Run(t, "ip", "route", "show", "10.66.0.0/16"); !strings.Contains(remote, "via 169.254.1.2 dev vxlan.calico") {
			t.Errorf("route to the other node's pods: %s", remote)
		}
	})
	n.step(t, "a broken endpoint file is answered and harms nobody", func(t *testing.T) {
		putFile(t, n.endpointPath(77), `{"version":1,`)
		n.until("an answer", func() (bool, string) { s := n.status(77); return strings.Contains(s.Error, "decode json"), s.Error })
		if s := n.status(1); !s.Ready {
			t.Errorf("the other pod: %+v", s)
		}
		if err := os.Remove(n.endpointPath(77)); err != nil {
			t.Fatal(err)
		}
	})
	n.step(t, "the overlay's device is made again when somebody deletes it", func(t *testing.T) {
		testenv.Run(t, "ip", "link", "del", "vxlan.calico")
		n.until("a new device", func() (bool, string) {
			out := testenv.Run(t, "ip", "-o", "link")
			return strings.Contains(out, "vxlan.calico"), out
		})
		n.untilContains("the route over it", func() string { return testenv.Run(t, "ip", "route") }, "10.66.0.0/16 via 169.254.1.2 dev vxlan.calico")
		r.waitReady()
	})
	n.step(t, "a route that somebody removes comes back", func(t *testing.T) {
		testenv.Run(t, "ip", "route", "del", "10.65.0.1")
		n.untilContains("the route", func() string { return testenv.Run(t, "ip", "route") }, "10.65.0.1 dev cali1")
	})
	n.step(t, "interfaces that come and go at once leave nothing behind", func(t *testing.T) {
		hook := logtest.NewLocal(n.log)
		gone := regexp.MustCompile(`cali1[0-3]\d|10\.65\.0\.1[0-3]\d/32`)
		for i := 100; i < 140; i++ {
			n.pod(i)
			testenv.Run(t, "ip", "link", "del", fmt.Sprintf("cali%d", i))
			if err := os.Remove(n.endpointPath(i)); err != nil {
				t.Fatal(err)
			}
		}
		n.until("all of it to be gone", func() (bool, string) {
			got := n.interfacesTable() + n.routesTable()
			left, _ := filepath.Glob(filepath.Join(n.run, "endpoint-status", "c1[0-3]?.json"))
			return !gone.MatchString(got) && len(left) == 0, fmt.Sprint(got, left)
		})
		r.waitReady()
		for _, e := range hook.AllEntries() {
			if e.Level <= logrus.ErrorLevel {
				t.Errorf("logged: %s %v", e.Message, e.Data)
			}
		}
	})
	n.step(t, "one endpoint more costs a handful of writes", func(t *testing.T) {
		before := r.agent.maps.Frontends.Writes() + r.agent.maps.Backends.Writes()
		n.manifest("more.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: r2, namespace: default, labels: {app: web}}
spec: {nodeName: n2}
status: {phase: Running, podIP: 10.66.0.2, podIPs: [{ip: 10.66.0.2}], conditions: [{type: Ready, status: "True"}]}
`)
		n.untilContains("the backend", n.servicesTable, "10.66.0.2:8080")
		// One backend, and the counts of ClusterIP, NodePort on the node's address and the wildcard.
		if got := r.agent.maps.Frontends.Writes() + r.agent.maps.Backends.Writes() - before; got > 3+3 {
			t.Errorf("%d writes", got)
		}
	})
	n.step(t, "a restart adopts what is there and writes nothing anew", func(t *testing.T) {
		for i := 3; i <= 5; i++ {
			n.pod(i)
			n.waitPod(i)
		}
		restart(t, n, &r)
	})
	n.step(t, "a pod that goes while no agent runs is cleaned up at the next start", func(t *testing.T) {
		n.pod(2)
		n.waitPod(2)
		r.stop()
		if err := os.Remove(n.endpointPath(2)); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "ip", "link", "del", "cali2")
		r = n.start()
		r.waitReady()
		n.until("its route to go", func() (bool, string) {
			got := n.routesTable()
			return !strings.Contains(got, "10.65.0.2/32"), got
		})
		if s := n.status(2); s.ContainerID != "" {
			t.Errorf("status is left: %+v", s)
		}
		if got := n.interfacesTable(); strings.Contains(got, "cali2") {
			t.Errorf("interface is left:\n%s", got)
		}
	})
	n.step(t, "cleanup removes all that is ours and nothing else", func(t *testing.T) {
		if _, err := Cleanup(context.Background(), CleanupOptions{BPFFSRoot: n.bpffs, RunDirectory: n.run}); !errors.Is(err, ErrRunning) {
			t.Errorf("with an agent at work: %v", err)
		}
		r.stop()
		cleanup(t, n)
	})
}

// restart stops the agent, looks that all is still there, starts another one and compares.
func restart(t *testing.T, n *testNode, r **running) {
	take := func() (out struct {
		Interfaces inspect.Interfaces
		Services   inspect.Services
		Routes     inspect.Routes
		Epoch      uint32
		Bank       uint32
		Adoption   uint64
	}) {
		n.look(func(v *inspect.View) {
			var errs [4]error
			var g layout.Globals
			out.Interfaces, errs[0] = v.Interfaces()
			out.Services, errs[1] = v.Services()
			out.Routes, errs[2] = v.Routes()
			g, errs[3] = v.Maps.Globals.Read()
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			out.Epoch, out.Bank, out.Adoption = g.RouteEpoch, g.JumpBase, g.AdoptionEnd
		})
		for i := range out.Interfaces {
			out.Interfaces[i].Packets, out.Interfaces[i].Drops = 0, 0
		}
		return out
	}
	text := func() string {
		data, err := json.MarshalIndent(take(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	(*r).waitReady()
	(*r).stop()
	before := text()
	started := time.Now()
	*r = n.start()
	(*r).waitReady()
	t.Logf("ready again after %s", time.Since(started).Round(time.Millisecond))
	if d := cmp.Diff(before, text()); d != "" {
		t.Errorf("a restart changed the maps (-before +after):\n%s", d)
	}
	a := (*r).agent
	if f, b, rt := a.maps.Frontends.Writes(), a.maps.Backends.Writes(), a.maps.Routes.Writes(); f+b+rt != 0 {
		t.Errorf("writes after a restart: frontends %d, backends %d, routes %d", f, b, rt)
	}
}

func cleanup(t *testing.T, n *testNode) {
	testenv.Run(t, "ip", "route", "add", "203.0.113.0/24", "via", "192.0.2.254")
	foreignFilter(t, "cali1")
	for range 2 { // again: it must not mind that all is gone
		report, err := Cleanup(context.Background(), CleanupOptions{BPFFSRoot: n.bpffs, RunDirectory: n.run})
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(report, "\n"))
		}
	}
	if entries, err := os.ReadDir(filepath.Join(n.bpffs, "tc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left in bpffs: %v, %v", entries, err)
	}
	routes := testenv.Run(t, "ip", "route")
	if strings.Contains(routes, "proto 241") || !strings.Contains(routes, "203.0.113.0/24") {
		t.Errorf("routes:\n%s", routes)
	}
	if links := testenv.Run(t, "ip", "link"); strings.Contains(links, "vxlan.calico") {
		t.Errorf("links:\n%s", links)
	}
	if attached, err := link.QueryPrograms(link.QueryOptions{Target: index(t, "cali1"), Attach: ebpf.AttachTCXIngress}); err != nil ||
		len(attached.Programs) != 0 {
		t.Errorf("TCX: %+v, %v", attached, err)
	}
	filters := testenv.Run(t, "tc", "filter", "show", "dev", "cali1", "ingress")
	if strings.Contains(filters, "felix-lite") || !strings.Contains(filters, "somebody") {
		t.Errorf("filters:\n%s", filters)
	}
}

func index(t *testing.T, name string) int {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

// foreignFilter puts a filter of somebody else's beside ours.
func foreignFilter(t *testing.T, name string) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: index(t, name),
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 7, Priority: 9, Protocol: unix.ETH_P_ALL},
		Fd: program.FD(), Name: "somebody", DirectAction: true}); err != nil {
		t.Fatal(err)
	}
}

func TestAnOldKernelIsServedWithoutWhatItLacks(t *testing.T) {
	n := newTestNode(t)
	n.manifest("web.yaml", webManifest)
	n.pod(1)
	r := n.start("disabledFeatures: [tcx, batch-hash, batch-lpm, redirect-peer, redirect-neigh, fib-skip-neigh]")
	r.waitReady()
	n.waitPod(1)
	for _, dev := range []string{"cali1", "eth0", "vxlan.calico"} {
		for _, hook := range []string{"ingress", "egress"} {
			if filters := testenv.Run(t, "tc", "filter", "show", "dev", dev, hook); !strings.Contains(filters, "felix-lite") {
				t.Errorf("%s of %s: %q", hook, dev, filters)
			}
		}
	}
	n.untilContains("the service", n.servicesTable, "10.65.0.1:8080")
	cfg := testConfig(t, "nodeName: n1", "bpffsRoot: "+n.bpffs, "runDirectory: "+n.run, "attachType: TCX", "disabledFeatures: [tcx]")
	if _, err := New(Options{Config: *cfg, Log: n.log.WithField("test", t.Name())}); !errors.Is(err, ebpf.ErrNotSupported) {
		t.Errorf("TCX asked for and missing: %v", err)
	}
}

func TestMapsOfAnotherDataplaneAreRefused(t *testing.T) {
	n := newTestNode(t)
	dir := filepath.Join(n.bpffs, "tc", "globals")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := foreign.Pin(filepath.Join(dir, "cali_v4_routes")); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, "nodeName: n1", "bpffsRoot: "+n.bpffs, "runDirectory: "+n.run)
	if _, err := New(Options{Config: *cfg, Log: n.log.WithField("test", t.Name())}); !errors.Is(err, maps.ErrForeign) ||
		!strings.Contains(err.Error(), "cali_v4_routes") {
		t.Errorf("agent: %v", err)
	}
	if _, err := Cleanup(context.Background(), CleanupOptions{BPFFSRoot: n.bpffs, RunDirectory: n.run}); !errors.Is(err, maps.ErrForeign) {
		t.Errorf("cleanup: %v", err)
	}
}

// TestTwoHundredPodsAreAttachedAtStart prints how long it takes; the goal is two seconds, and a slow
// or busy machine gets five times that.
func TestTwoHundredPodsAreAttachedAtStart(t *testing.T) {
	const pods = 200
	attached := func(t *testing.T, n *testNode) {
		t.Helper()
		start := time.Now()
		r := n.start()
		for i := 1; i <= pods; i++ {
			n.waitPod(i)
		}
		took := time.Since(start)
		t.Logf("%d pods ready %s after the start", pods, took.Round(time.Millisecond))
		if took > 10*time.Second {
			t.Errorf("%d pods took %s, want below 10 s", pods, took)
		}
		r.waitReady()
		r.stop()
	}
	t.Run("on a node without programs", func(t *testing.T) {
		n := newTestNode(t)
		for i := 1; i <= pods; i++ {
			n.pod(i)
		}
		attached(t, n)
	})
	t.Run("on a node that has them", func(t *testing.T) {
		n := newTestNode(t)
		r := n.start()
		r.waitReady()
		r.stop()
		for i := 1; i <= pods; i++ {
			n.pod(i)
		}
		attached(t, n)
	})
}
