// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
)

// promotePace keeps promotions apart: each holds the kernel's rtnl lock for some 10 ms, and others on
// the node want to change links and routes too.
const promotePace = 100 * time.Millisecond

// promotions are workloads whose ingress hook may be moved to TCX (attach.Promote), one by one, when
// there is nothing better to do.
type promotions struct {
	waiting map[int]endpoints.Attachment // by interface index
	next    time.Time
}

// promote moves at most one hook. Interfaces that wait to be attached come first.
func (a *Agent) promote() {
	p := &a.dataplane.promotions
	now := a.now()
	if len(p.waiting) == 0 || now.Before(p.next) || a.endpoints.PendingInterfaces() > 0 {
		return
	}
	for index, w := range p.waiting {
		delete(p.waiting, index)
		changed, err := a.dataplane.attacher.Promote(on(w))
		if err != nil && !errors.Is(err, attach.ErrInterfaceGone) {
			// The hook works as it is; the next attachment of the interface tries again.
			a.log.WithError(err).WithField("interface", w.Name).Warn("workload stays attached by clsact, which is a little slower")
		}
		if changed || err != nil {
			p.next = now.Add(promotePace)
			return
		}
	}
}

// due is when the next promotion may be made.
func (p *promotions) due() (time.Time, bool) { return p.next, len(p.waiting) > 0 }
