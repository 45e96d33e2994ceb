// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/internal/reconcile"
	"github.com/felix-lite/felix-lite/routetable"
)

// refusal is an object that the kernel did not take at the last attempt.
type refusal struct {
	object string
	err    error
}

// attempt is what became of a table in one pass.
type attempt struct {
	table  string
	result reconcile.Result
	failed int              // objects of the table that stand refused, tried in this pass or not
	list   func() []refusal // those
}

// refusals logs what the kernel refuses: when that changes, however often it is tried, and once when it is over.
type refusals struct {
	said map[string]saying
}

// saying is what was last said of a table.
type saying struct {
	failed int
	text   string // empty: all is well
}

// most is how many objects a message names.
const most = 3

// note says what has changed in a table.
func (r *refusals) note(a attempt, log *logrus.Entry) {
	log = log.WithField("table", a.table)
	was := r.said[a.table]
	now := saying{failed: a.failed}
	unread := a.result.Unread && a.result.Failed == 0
	switch {
	case unread && a.result.Err == nil:
		return // nothing was tried
	case unread:
		now.text = a.result.Err.Error()
		if now != was {
			log.WithError(a.result.Err).Warn("the kernel's entries could not be read, trying again")
		}
	case a.failed == 0 && was.failed > 0:
		log.Info("entries that were refused are accepted now, or not wanted any more")
	case a.failed == 0 && was.text != "":
		log.Info("the kernel's entries could be read again")
	case a.failed == 0:
	case a.result.Failed == 0 && a.failed == was.failed:
		return // nothing was tried again
	default:
		list := a.list()
		err := first(list)
		if now.text = err.Error(); now != was {
			log = log.WithError(err).WithField("refused", a.failed)
			if what := remedy(a.table, list); what != "" {
				log = log.WithField("remedy", what)
			}
			log.Warn("entries were refused, trying again")
		}
	}
	if r.said == nil {
		r.said = map[string]saying{}
	}
	r.said[a.table] = now
}

// first names the first few objects, with why they were refused.
func first(list []refusal) error {
	slices.SortFunc(list, func(a, b refusal) int { return cmp.Compare(a.object, b.object) })
	var out []string
	for _, one := range list[:min(most, len(list))] {
		text := one.err.Error()
		if !strings.HasPrefix(text, one.object) {
			text = one.object + ": " + text
		}
		out = append(out, text)
	}
	if more := len(list) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(out, "; "))
}

// remedy says what to do about refusals, where that is known.
func remedy(table string, list []refusal) string {
	for _, one := range list {
		switch {
		case errors.Is(one.err, routetable.ErrConflict):
			return "somebody else's entry is in the place of ours and is left alone: delete it (see ip route and ip neigh), or configure who makes it not to"
		case sizeOf[table] != "" && (errors.Is(one.err, unix.E2BIG) || errors.Is(one.err, unix.ENOSPC)):
			return "the map is full: set a larger " + sizeOf[table] + " and restart the agent"
		}
	}
	return ""
}

// sizeOf names the setting of a table's size.
var sizeOf = map[string]string{"frontends": "mapSizeNATFrontend", "backends": "mapSizeNATBackend", "routes": "mapSizeRoutes"}

// refused lists what stands refused in a table.
func refused[K comparable, V any](t *reconcile.Table[K, V], name func(K) string) []refusal {
	var out []refusal
	for k, s := range t.Open() {
		if s.Phase == reconcile.Failed {
			out = append(out, refusal{name(k), s.Err})
		}
	}
	return out
}

// attempts are the tables as a pass left them.
func (t *tables) attempts(r applyResult) []attempt {
	return []attempt{
		{"frontends", r.frontends, t.frontends.Counts().Failed, func() []refusal { return refused(t.frontends, frontendName) }},
		{"backends", r.backends, t.backends.Counts().Failed, func() []refusal { return refused(t.backends, backendName) }},
		{"routes", r.routes, t.routes.Counts().Failed, func() []refusal {
			return refused(t.routes, func(p netip.Prefix) string { return "route entry " + p.String() })
		}},
	}
}

func frontendName(k maps.FrontendKey) string {
	return fmt.Sprintf("frontend %s %s", netip.AddrPortFrom(k.Addr, k.Port), model.Protocol(k.Proto))
}

func backendName(k maps.BackendKey) string {
	position := k.Ordinal &^ uint32(layout.BELocal|layout.BEByID)
	return fmt.Sprintf("backend %d of the %s service port %d", position, k.Family, k.SvcID)
}

// kernelAttempt is the kernel's routes and neighbours as a pass left them.
func (a *Agent) kernelAttempt(r reconcile.Result) attempt {
	routes, neighbours := a.kernel.Counts()
	return attempt{"kernel_routes", r, routes.Failed + neighbours.Failed, func() []refusal {
		var out []refusal
		for _, p := range a.kernel.Problems() {
			if p.Status.Phase == reconcile.Failed {
				out = append(out, refusal{p.Object, p.Status.Err})
			}
		}
		return out
	}}
}
