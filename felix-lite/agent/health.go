// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// Condition is one thing that the agent must have done to be ready.
type Condition struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// Health is what /readyz answers.
type Health struct {
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
}

// Liveness is what /livez answers.
type Liveness struct {
	Live     bool      `json:"live"`
	LastPass time.Time `json:"lastPass"`
	Message  string    `json:"message,omitempty"`
}

// stuckAfter is how long the loop may take for one pass before the agent counts as stuck. Passes
// come at least every idlePass.
const (
	stuckAfter = 60 * time.Second
	idlePass   = 5 * time.Second
)

// health carries what the loop knows to the HTTP server.
type health struct {
	now    func() time.Time
	ready  atomic.Pointer[Health]
	passed atomic.Int64 // unix nanoseconds of the end of the last pass
}

func newHealth(now func() time.Time) *health {
	h := &health{now: now}
	h.ready.Store(&Health{Conditions: []Condition{{Name: "started", Message: "the first pass is not over"}}})
	h.passed.Store(now().UnixNano())
	return h
}

// set is called by the loop at the end of each pass.
func (h *health) set(conditions []Condition) Health {
	next := Health{Ready: true, Conditions: conditions}
	for _, c := range conditions {
		next.Ready = next.Ready && c.OK
	}
	h.ready.Store(&next)
	h.passed.Store(h.now().UnixNano())
	return next
}

// Liveness judges by the time of the last pass.
func (h *health) liveness() Liveness {
	last := time.Unix(0, h.passed.Load())
	l := Liveness{Live: true, LastPass: last.UTC()}
	if age := h.now().Sub(last); age > stuckAfter {
		l.Live = false
		l.Message = fmt.Sprintf("the loop has not come round for %s", age.Round(time.Second))
	}
	return l
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state := h.ready.Load()
		answer(w, state.Ready, state)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		l := h.liveness()
		answer(w, l.Live, l)
	})
	return mux
}

func answer(w http.ResponseWriter, ok bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // the client has gone: nobody is left to be told
}

// serve answers HTTP on address until the context ends. A taken port is waited for, not died of.
func serve(ctx context.Context, what, address string, handler http.Handler, log *logrus.Entry) {
	if address == "" {
		return
	}
	log = log.WithFields(logrus.Fields{"server": what, "address": address})
	warned := false
	for ctx.Err() == nil {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			if !warned && ctx.Err() == nil {
				log.WithError(err).Error("address can not be listened on, trying again every 5 s; the dataplane is not affected")
				warned = true
			}
			sleep(ctx, 5*time.Second)
			continue
		}
		if warned {
			log.Info("address is free now")
		}
		srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
			IdleTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		err = srv.Serve(l)
		stop()
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.WithError(err).Error("server ended, starting it again")
			sleep(ctx, time.Second)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
