// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// of returns what was logged about a table, as it is printed without the time.
func of(hook *logtest.Hook, table string) []string {
	var out []string
	for _, e := range hook.AllEntries() {
		if e.Data["table"] == table {
			out = append(out, fmt.Sprint(e.Level, " ", e.Message, " ", e.Data))
		}
	}
	return out
}

func TestSomebodyElsesRouteInTheWayIsLoggedOnceAndOnceItsEnd(t *testing.T) {
	n := newTestNode(t)
	hook := logtest.NewLocal(n.log)
	r := n.start("connectTimeLoadBalancing: Disabled")
	r.waitReady()
	testenv.Run(t, "ip", "route", "add", "10.96.0.2", "dev", "eth0", "proto", "static")
	n.manifest("dual2.yaml", dualManifest(2))
	n.until("each of some attempts to be counted", func() (bool, string) {
		scrape := httptest.NewRecorder()
		r.agent.metrics.handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
		m := regexp.MustCompile(`felix_lite_reconcile_errors_total\{table="kernel_routes"\} (\d+)`).FindStringSubmatch(scrape.Body.String())
		return m != nil && m[1] >= "4", fmt.Sprint(m)
	})
	said := of(hook, "kernel_routes")
	if len(said) != 1 {
		t.Fatalf("said %d times:\n%s", len(said), strings.Join(said, "\n"))
	}
	for _, part := range []string{"warning", "10.96.0.2/32", "protocol static", "refused:1", "delete it"} {
		if !strings.Contains(said[0], part) {
			t.Errorf("no %q in %s", part, said[0])
		}
	}
	testenv.Run(t, "ip", "route", "del", "10.96.0.2", "dev", "eth0")
	n.until("its end to be said", func() (bool, string) {
		said := of(hook, "kernel_routes")
		return len(said) > 1, strings.Join(said, "\n")
	})
	if said := of(hook, "kernel_routes"); !strings.Contains(said[1], "info") || !strings.Contains(n.shell("ip route"), "10.96.0.2 via 169.254.1.1 dev bpfin.cali") {
		t.Errorf("%s\n%s", said[1], n.shell("ip route"))
	}
	if slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool { return e.Level < logrus.WarnLevel }) {
		t.Error("an error was logged")
	}
}

func TestAFullMapNamesTheFirstObjectsAndItsSetting(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	var r refusals
	pass := func(tb *tables) {
		for _, at := range tb.attempts(tb.apply(t.Context())) {
			r.note(at, logrus.NewEntry(log))
		}
	}
	f, tb := newFakeMaps(0)
	tb.allowPrune()
	d := services.Delta{}
	for i := range uint32(5) {
		d.Backends = append(d.Backends, services.Backend{Key: place(7, i), Value: pod(byte(i))})
	}
	tb.services(d)
	for range 3 {
		pass(tb)
	}
	said := of(hook, "backends")
	if len(said) != 1 {
		t.Fatalf("said %d times:\n%s", len(said), strings.Join(said, "\n"))
	}
	for _, part := range []string{"backend 0 of the v4 service port 7: be: argument list too long; backend 1 of", "; and 2 more", "refused:5", "mapSizeNATBackend"} {
		if !strings.Contains(said[0], part) {
			t.Errorf("no %q in %s", part, said[0])
		}
	}
	tb.services(services.Delta{DeleteBackends: []services.BackendKey{place(7, 4)}}) // another number is news
	pass(tb)
	if said = of(hook, "backends"); len(said) != 2 || !strings.Contains(said[1], "refused:4") {
		t.Fatalf("%q", said)
	}
	f.backends.room = 9
	for len(f.backends.entries) < 4 {
		pass(tb)
	}
	pass(tb)
	said = of(hook, "backends")
	if last := said[len(said)-1]; !strings.HasPrefix(last, "info entries that were refused are accepted now") {
		t.Errorf("at the end: %s", last)
	}
	if others := len(hook.AllEntries()) - len(said); others > 0 {
		t.Errorf("%d entries about other tables", others)
	}
}

func TestATableThatCanNotBeReadIsSaidOnce(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	var r refusals
	bad := reconcile.Result{Err: errors.New("read actual state: no memory"), Unread: true}
	for _, result := range []reconcile.Result{bad, {Unread: true}, bad, {Unread: true}, {}, {}} {
		r.note(attempt{table: "routes", result: result}, logrus.NewEntry(log))
	}
	if said := of(hook, "routes"); len(said) != 2 || !strings.Contains(said[0], "no memory") || !strings.HasPrefix(said[1], "info") {
		t.Errorf("%q", said)
	}
}
