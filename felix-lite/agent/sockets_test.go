// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/inspect"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// hooks are those of the node's cgroup that carry a program of ours.
func (n *testNode) hooks() (hooks []string) {
	n.t.Helper()
	links, err := attach.CgroupLinks(n.bpffs)
	if err != nil {
		n.t.Fatal(err)
	}
	id, err := attach.CgroupID(n.cgroup)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, l := range links {
		if l.CgroupID == id {
			hooks = append(hooks, l.Hook)
		}
	}
	return hooks
}

func (n *testNode) statusTable() string {
	return n.table(func(v *inspect.View) (inspect.Lister, error) { return v.Status(context.Background(), "") })
}

func (n *testNode) globalFlags() (flags layout.GlobalFlag) {
	n.look(func(v *inspect.View) {
		g, err := v.Maps.Globals.Read()
		if err != nil {
			n.t.Fatal(err)
		}
		flags = layout.GlobalFlag(g.Flags)
	})
	return flags
}

// metrics is what a scrape of the agent's metrics answers.
func (r *running) metrics() string {
	w := httptest.NewRecorder()
	r.agent.metrics.handler().ServeHTTP(w, httptest.NewRequestWithContext(r.n.t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

// untilMetrics waits until all of the lines are among the agent's metrics.
func (r *running) untilMetrics(lines ...string) {
	r.n.t.Helper()
	for _, line := range lines {
		r.n.until("metric "+line, func() (bool, string) {
			got := r.metrics()
			return strings.Contains(got, "\n"+line+"\n"), got
		})
	}
}

func TestSocketsAreBalancedAndThatIsSaid(t *testing.T) {
	n := newTestNode(t)
	n.manifest("web.yaml", webManifest)
	r := n.start()
	r.waitReady()
	n.step(t, "the programs stand on the cgroup, and people can see it", func(*testing.T) {
		n.untilContains("status", n.statusTable, "Enabled, cgroup "+n.cgroup+", self-test passed", "hooks: connect4 connect6 connect46 sendmsg4")
		if flags := n.globalFlags(); flags&layout.GFCTLB == 0 {
			n.t.Errorf("globals say %v", flags)
		}
		if _, err := netlink.LinkByName("bpfin.cali"); err == nil {
			n.t.Error("the fallback's pair is there, too")
		}
		r.untilMetrics(`felix_lite_socket_lb_working{mode="Enabled"} 1`, "felix_lite_fallback_in_use 0", `felix_lite_condition{condition="socketLB"} 1`,
			"felix_lite_socket_lb_opted_out 0")
	})
	n.step(t, "a pod's annotation acts at once", func(t *testing.T) {
		ns := testenv.NewNetNS(t)
		putFile(t, n.endpointPath(1), fmt.Sprintf(`{"version":1,"containerID":"c1","pod":{"namespace":"default","name":"mesh"},
"netns":"/proc/%d/fd/%d","hostInterface":"cali1","podMAC":"02:00:00:00:00:01","addresses":["10.65.0.9"],"sourcePrefixes":[]}`, os.Getpid(), int(ns)))
		opted := func() (count int) {
			n.look(func(v *inspect.View) {
				if err := v.Maps.SocketOff.All(func(uint64, uint32) bool { count++; return true }); err != nil {
					t.Fatal(err)
				}
			})
			return count
		}
		for want, annotations := range []string{"{}", `{felix-lite.io/socket-lb: "disabled"}`} {
			n.manifest("mesh.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: mesh, namespace: default, annotations: "+annotations+"}\n"+
				"spec: {nodeName: n1}\nstatus: {phase: Running, podIP: 10.65.0.9, podIPs: [{ip: 10.65.0.9}]}\n")
			n.until(fmt.Sprintf("%d pods to have opted out", want), func() (bool, string) { return opted() == want, fmt.Sprint(opted()) })
			r.untilMetrics(fmt.Sprintf("felix_lite_socket_lb_opted_out %d", want))
		}
		if err := os.Remove(filepath.Join(n.manifests, "mesh.yaml")); err != nil {
			t.Fatal(err)
		}
		n.until("nobody to have opted out", func() (bool, string) { return opted() == 0, fmt.Sprint(opted()) })
	})
	n.step(t, "a restart adopts the links", func(*testing.T) {
		before := n.hooks()
		r.stop()
		if got := n.hooks(); !slices.Equal(got, before) {
			n.t.Errorf("without an agent: hooks %v, before %v", got, before)
		}
		r = n.start()
		r.waitReady()
		n.until("the self-test", func() (bool, string) { s := n.statusTable(); return strings.Contains(s, "self-test passed"), s })
		if got := n.hooks(); !slices.Equal(got, before) {
			n.t.Errorf("hooks %v, before %v", got, before)
		}
	})
	n.step(t, "when the mode is Disabled, the fallback serves before the programs go", func(*testing.T) {
		r.stop()
		r = n.start("connectTimeLoadBalancing: Disabled")
		n.until("connect to be gone", func() (bool, string) {
			hooks := n.hooks()
			if slices.Contains(hooks, "connect4") {
				return false, fmt.Sprint(hooks)
			}
			if _, err := netlink.LinkByName("bpfin.cali"); err != nil {
				n.t.Errorf("the programs are gone and the fallback's pair is not there: %v", err)
			}
			if !slices.Contains(hooks, "recvmsg4") || !slices.Contains(hooks, "getpeername4") {
				n.t.Errorf("sockets do not see the service any more: hooks %v", hooks)
			}
			return true, ""
		})
		n.untilContains("status", n.statusTable, "Disabled", "host traffic also by packet: connectTimeLoadBalancing is Disabled")
		r.untilMetrics("felix_lite_fallback_in_use 1")
		if got := r.metrics(); strings.Contains(got, "felix_lite_socket_lb_") {
			n.t.Errorf("metrics of connect time without it:\n%s", got)
		}
	})
	n.step(t, "cleanup takes them all", func(t *testing.T) {
		r.stop()
		if _, err := Cleanup(context.Background(), CleanupOptions{BPFFSRoot: n.bpffs, RunDirectory: n.run}); err != nil {
			t.Fatal(err)
		}
		if left, err := attach.CgroupLinks(n.bpffs); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestAWrongCgroupRootIsSaidAndTheFallbackServes(t *testing.T) {
	n := newTestNode(t)
	n.manifest("web.yaml", webManifest)
	n.cgroup = t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(n.cgroup, &st); err != nil || int64(st.Type) == unix.CGROUP2_SUPER_MAGIC {
		t.Fatalf("%s: %v", n.cgroup, err)
	}
	r := n.start()
	r.waitReady()
	n.untilContains("status", n.statusTable, "host traffic also by packet: cgroup root "+n.cgroup+": not a cgroup2 directory")
	if _, err := netlink.LinkByName("bpfin.cali"); err != nil {
		t.Errorf("the fallback's pair: %v", err)
	}
	r.untilMetrics(`felix_lite_socket_lb_working{mode="Enabled"} 0`, "felix_lite_fallback_in_use 1")
}

func TestAPinThatCanNotBeReadDoesNotKeepTheAgentFromStarting(t *testing.T) {
	n := newTestNode(t)
	n.manifest("web.yaml", webManifest)
	pin := filepath.Join(maps.LinksDir(n.bpffs), "ctlb_connect4")
	if err := os.MkdirAll(pin, 0o700); err != nil {
		t.Fatal(err)
	}
	r := n.start()
	r.waitReady()
	n.untilContains("status", n.statusTable, "host traffic also by packet", pin)
	if _, err := netlink.LinkByName("bpfin.cali"); err != nil {
		t.Errorf("the fallback's pair: %v", err)
	}
	r.untilMetrics(`felix_lite_socket_lb_working{mode="Enabled"} 0`, "felix_lite_fallback_in_use 1", `felix_lite_condition{condition="socketLB"} 1`)
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	r.untilMetrics(`felix_lite_socket_lb_working{mode="Enabled"} 1`)
}
