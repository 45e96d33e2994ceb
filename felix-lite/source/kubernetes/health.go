// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// repeat is how often a trouble that lasts is logged again.
const repeat = 5 * time.Minute

// flapping is how long a trouble that comes back after it was over is not logged.
const flapping = 30 * time.Second

// trouble is what keeps a resource from being read, as far as it decides what a person has to do.
type trouble string

const (
	forbidden    trouble = "forbidden"
	unauthorized trouble = "unauthorized"
	certificate  trouble = "certificate"
	unreachable  trouble = "unreachable"
	overloaded   trouble = "overloaded"
	missing      trouble = "missing"
	failed       trouble = "failed"
)

// everywhere says whether the trouble is one with the server and not with one resource.
func (t trouble) everywhere() bool {
	switch t {
	case unauthorized, certificate, unreachable, overloaded:
		return true
	}
	return false
}

// diagnose says what kind of trouble an error is, and what it means.
func diagnose(r *resource, err error) (trouble, string) {
	var unknownCA x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var asURL *url.Error
	var asNet net.Error
	switch {
	case apierrors.IsForbidden(err):
		group := ""
		if r.group != "" {
			group = " of API group " + r.group
		}
		return forbidden, fmt.Sprintf("the agent's account may not read %s%s: give it the verbs list and watch (RBAC)", r.plural, group)
	case apierrors.IsUnauthorized(err):
		return unauthorized, "the API server does not accept the agent's credentials: is the token or certificate expired, or of another cluster?"
	case errors.As(err, &unknownCA), errors.As(err, &wrongName), errors.As(err, &invalid), errors.As(err, &verification):
		return certificate, "the API server's certificate is not accepted: check the CA, and that the certificate names the address in use"
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return overloaded, "the API server is overloaded or starting"
	case apierrors.IsNotFound(err):
		return missing, fmt.Sprintf("the API server does not know %s", r.plural)
	case errors.As(err, &asURL), errors.As(err, &asNet):
		return unreachable, "the API server can not be reached: check its address (kubernetesServiceEndpoint), routes and firewall"
	}
	return failed, fmt.Sprintf("%s can not be read", r.plural)
}

// streamingUnknown says whether a server answered that it can not stream a list.
func streamingUnknown(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// subject is what an error is reported of: the server, or the resource alone.
func (t trouble) subject(r *resource) string {
	if t.everywhere() {
		return "API server"
	}
	return r.plural
}

// health knows which resources can not be read, and logs when that changes.
type health struct {
	hub *hub
	log logrus.FieldLogger
	now func() time.Time

	mu     sync.Mutex
	since  map[model.Kind]time.Time // when the trouble of a kind began
	about  map[model.Kind]string    // its subject
	logged map[string]time.Time     // when a trouble was last logged
}

func newHealth(h *hub, log logrus.FieldLogger) *health {
	return &health{
		hub: h, log: log, now: time.Now,
		since: make(map[model.Kind]time.Time), about: make(map[model.Kind]string), logged: make(map[string]time.Time),
	}
}

// outcome notes how a request went.
func (h *health) outcome(r *resource, err error) {
	if errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // stopping; or a version too old, after which all is listed anew
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		if _, was := h.since[r.kind]; was {
			h.settle(r.kind, "")
			h.recovered(r)
		}
		return
	}
	if _, was := h.since[r.kind]; !was {
		h.since[r.kind] = h.now()
	}
	t, message := diagnose(r, err)
	h.warn(r, t, message, err)
	h.settle(r.kind, t.subject(r))
	// The error's own text may differ from one attempt to the next (ports, times): what is
	// reported as the state must not.
	k := subjectKey(t.subject(r))
	state := pending.State{Errors: []model.ObjectError{{Kind: k.Kind, Name: k.Name, Message: message}}}
	h.hub.change(func() { h.hub.troubles.Set(k, state) })
}

func subjectKey(subject string) pending.Key {
	return pending.Key{Kind: KindSource, Name: model.ObjectName{Name: subject}}
}

// settle notes that a kind's trouble is now with another subject, or with none, and withdraws the
// report on the former one if no other kind stands behind it.
func (h *health) settle(kind model.Kind, now string) {
	was := h.about[kind]
	if now == "" {
		delete(h.about, kind)
	} else {
		h.about[kind] = now
	}
	if was == "" || was == now {
		return
	}
	for _, other := range h.about {
		if other == was {
			return
		}
	}
	h.hub.change(func() { h.hub.troubles.Set(subjectKey(was), pending.State{}) })
}

func (h *health) warn(r *resource, t trouble, message string, err error) {
	about := string(t) + " " + t.subject(r)
	if last, ok := h.logged[about]; ok && h.now().Sub(last) < repeat {
		return
	}
	h.logged[about] = h.now()
	h.log.WithError(err).WithFields(logrus.Fields{
		"trouble": string(t), "resource": r.plural, "since": h.since[r.kind].Format(time.RFC3339),
	}).Warn(message + "; what was read before stays in use, trying again")
}

// recovered notes that a resource can be read again, and says so when it was the last.
func (h *health) recovered(r *resource) {
	lasted := h.now().Sub(h.since[r.kind])
	delete(h.since, r.kind)
	if len(h.since) == 0 {
		for about := range h.logged {
			h.logged[about] = h.now().Add(flapping - repeat)
		}
		h.log.WithField("after", lasted.Round(time.Millisecond)).Info("the API server can be read again")
	}
}
