// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

func get(t *testing.T, h http.Handler, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if err := json.NewDecoder(w.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return w.Code
}

func TestReadinessIsAllConditionsAndLivenessIsTheLoop(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHealth(func() time.Time { return now })
	var ready Health
	var live Liveness
	if code := get(t, h.handler(), "/readyz", &ready); code != http.StatusServiceUnavailable || ready.Ready {
		t.Errorf("before the first pass: %d %+v", code, ready)
	}
	h.set([]Condition{{Name: "a", OK: true}, {Name: "b", Message: "broken"}})
	if code := get(t, h.handler(), "/readyz", &ready); code != http.StatusServiceUnavailable || ready.Conditions[1].Message != "broken" {
		t.Errorf("one condition fails: %d %+v", code, ready)
	}
	h.set([]Condition{{Name: "a", OK: true}})
	if code := get(t, h.handler(), "/readyz", &ready); code != http.StatusOK || !ready.Ready {
		t.Errorf("all conditions hold: %d %+v", code, ready)
	}
	now = now.Add(stuckAfter)
	if code := get(t, h.handler(), "/livez", &live); code != http.StatusOK {
		t.Errorf("a long pass: %d %+v", code, live)
	}
	now = now.Add(time.Second)
	if code := get(t, h.handler(), "/livez", &live); code != http.StatusServiceUnavailable || live.Message == "" {
		t.Errorf("a stuck loop: %d %+v", code, live)
	}
}

func TestATakenPortIsWaitedForAndLoggedOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log, hook := logtest.NewNullLogger()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, "health", taken.Addr().String(), http.NotFoundHandler(), logrus.NewEntry(log))
	}()
	deadline := time.Now().Add(30 * time.Second)
	for len(hook.AllEntries()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nothing was logged")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if n := len(hook.AllEntries()); n != 1 || hook.LastEntry().Level != logrus.ErrorLevel {
		t.Fatalf("%d log entries, last %v", n, hook.LastEntry())
	}
}

func TestTheServerAnswersUntilItIsStopped(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx, "health", address, newHealth(time.Now).handler(), logrus.NewEntry(log))
	}()
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get("http://" + address + "/livez")
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
}
