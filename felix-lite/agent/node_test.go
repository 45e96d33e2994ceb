// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/inspect"
	sourcefiles "github.com/felix-lite/felix-lite/felix-lite/source/files"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// testNode is a node in a network namespace with a bpffs, an uplink and directories of its own.
type testNode struct {
	t         *testing.T
	ns        netns.NsHandle
	bpffs     string
	run       string
	manifests string
	cgroup    string
	log       *logrus.Logger
	cleanup   func(func()) // runs at the end of the whole test, not of a step
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{t: t, ns: testenv.NetNS(t), bpffs: testenv.BPFFS(t), run: t.TempDir(), manifests: t.TempDir(), cgroup: testenv.Cgroup(t),
		log: logrus.New(), cleanup: t.Cleanup}
	n.log.SetOutput(io.Discard)
	if testing.Verbose() {
		n.log.SetOutput(os.Stderr)
		n.log.SetLevel(logrus.DebugLevel)
	}
	testenv.Veth(t, "eth0", "wire", testenv.NewNetNS(t))
	testenv.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	testenv.Run(t, "ip", "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
	testenv.Run(t, "ip", "route", "add", "default", "via", "192.0.2.254")
	n.manifest("node.yaml", `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.65.0.0/16, podCIDRs: [10.65.0.0/16, "fd00:65::/64"]}
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.1}
  - {type: InternalIP, address: "2001:db8::1"}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
spec: {podCIDR: 10.66.0.0/16, podCIDRs: [10.66.0.0/16, "fd00:66::/64"]}
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.2}
  - {type: InternalIP, address: "2001:db8::2"}
`)
	return n
}

func (n *testNode) manifest(name, content string) {
	n.t.Helper()
	putFile(n.t, filepath.Join(n.manifests, name), content)
}

// step runs a part of a test by its name, on a thread inside the node's namespace.
func (n *testNode) step(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	outer := n.t
	defer func() { n.t = outer }()
	t.Run(name, func(t *testing.T) {
		runtime.LockOSThread() // never unlocked: the thread ends with the step
		if err := netns.Set(n.ns); err != nil {
			t.Fatal(err)
		}
		n.t = t
		f(t)
	})
}

// putFile writes by rename, as well-behaved writers do.
func putFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// pod makes the host side of a pod's veth, and its endpoint file.
func (n *testNode) pod(i int) {
	n.t.Helper()
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("cali%d", i)}, PeerName: fmt.Sprintf("p%d", i)}
	if err := netlink.LinkAdd(v); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range []string{v.Name, v.PeerName} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.endpointFile(i)
}

func podAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 65, byte(i >> 8), byte(i)}) }

func (n *testNode) endpointFile(i int) {
	n.t.Helper()
	putFile(n.t, n.endpointPath(i), fmt.Sprintf(`{"version":1,"containerID":"c%d","pod":{"namespace":"default","name":"p%d","uid":"u"},
"netns":"","hostInterface":"cali%d","podInterface":"eth0","hostMAC":"ee:ee:ee:ee:ee:ee","podMAC":"02:00:00:00:%02x:%02x",
"addresses":["%s","fd00:65::%x"],"sourcePrefixes":[]}`, i, i, i, i>>8, i&255, podAddr(i), i))
}

func (n *testNode) endpointPath(i int) string {
	return filepath.Join(n.run, "endpoints", fmt.Sprintf("c%d.json", i))
}

// status is the status file of a pod; zero where there is none.
func (n *testNode) status(i int) files.Status {
	n.t.Helper()
	dir, err := files.NewStatusDir(filepath.Join(n.run, "endpoint-status"))
	if err != nil {
		n.t.Fatal(err)
	}
	s, _ := dir.Read(fmt.Sprintf("c%d", i)) // absent, or just being replaced
	return s
}

// running is an agent at work in a goroutine of its own.
type running struct {
	n      *testNode
	agent  *Agent
	cancel context.CancelFunc
	done   chan error
}

func (n *testNode) start(lines ...string) *running {
	n.t.Helper()
	cfg := testConfig(n.t, append([]string{"nodeName: n1", "source: Files", "filesDirectory: " + n.manifests, "runDirectory: " + n.run,
		"bpffsRoot: " + n.bpffs, "cgroupRoot: " + n.cgroup, `healthAddress: ""`, `metricsAddress: ""`, "mapSizeConntrack: 1024", "mapSizeConntrackHalfOpen: 1024"},
		lines...)...)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{n: n, cancel: cancel, done: make(chan error, 1)}
	made := make(chan *Agent, 1)
	go func() {
		r.done <- testenv.Enter(n.ns, func() error {
			log := logrus.NewEntry(n.log)
			a, err := New(Options{Config: *cfg, Version: "test", Log: log,
				Source: sourcefiles.New(sourcefiles.Options{Directory: n.manifests, Log: log})})
			made <- a
			if err != nil {
				return err
			}
			return a.Run(ctx)
		})
	}()
	if r.agent = <-made; r.agent == nil {
		n.t.Fatalf("agent: %v", <-r.done)
	}
	n.cleanup(r.stop)
	return r
}

// stop ends the agent in order. It may be called twice.
func (r *running) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.done; err != nil {
		r.n.t.Errorf("agent ended with %v", err)
	}
}

func (r *running) ready() (bool, string) {
	h := r.agent.health.ready.Load()
	return h.Ready, reasons(h.Conditions)
}

func (r *running) waitReady() {
	r.n.t.Helper()
	r.n.until("the agent to be ready", r.ready)
}

// until waits for a condition; the text is what was last seen.
func (n *testNode) until(what string, holds func() (bool, string)) {
	n.t.Helper()
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		if time.Since(start) > 120*time.Second {
			n.t.Fatalf("waited in vain for %s; last seen: %s", what, seen)
		}
		<-tick.C
	}
}

func (n *testNode) waitPod(i int) files.Status {
	n.t.Helper()
	var s files.Status
	n.until(fmt.Sprintf("pod %d to be ready", i), func() (bool, string) {
		s = n.status(i)
		return s.Ready && s.Error == "", fmt.Sprintf("%+v", s)
	})
	return s
}

// look opens the maps as the command line does.
func (n *testNode) look(do func(*inspect.View)) {
	n.t.Helper()
	v, err := inspect.Open(n.bpffs, n.run)
	if err != nil {
		n.t.Fatal(err)
	}
	defer v.Close()
	do(v)
}

// table is a listing as people see it.
func (n *testNode) table(list func(*inspect.View) (inspect.Lister, error)) string {
	n.t.Helper()
	var b strings.Builder
	n.look(func(v *inspect.View) {
		l, err := list(v)
		if err == nil {
			err = inspect.Render(&b, inspect.FormatTable, l)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	})
	return b.String()
}

func (n *testNode) routesTable() string {
	return n.table(func(v *inspect.View) (inspect.Lister, error) { return v.Routes() })
}

func (n *testNode) servicesTable() string {
	return n.table(func(v *inspect.View) (inspect.Lister, error) { return v.Services() })
}

func (n *testNode) interfacesTable() string {
	return n.table(func(v *inspect.View) (inspect.Lister, error) { return v.Interfaces() })
}

func (n *testNode) untilContains(what string, table func() string, parts ...string) {
	n.t.Helper()
	n.until(what, func() (bool, string) {
		got := table()
		for _, p := range parts {
			if !strings.Contains(got, p) {
				return false, "no " + p + " in\n" + got
			}
		}
		return true, ""
	})
}
