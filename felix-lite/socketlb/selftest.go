// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Result is what a goroutine of the Manager has found: a self-test, or the cookies of network namespaces.
type Result struct {
	answers map[string]answer // by path; nil: it is a self-test's, and so are the rest

	netNS   uint64 // cookie of the host's network namespace, as the programs see it
	err     error
	fitting int // the Manager's, when the test was begun
}

// Results is where goroutines send what they have found: give it to OnResult.
func (m *Manager) Results() <-chan Result { return m.results }

// test starts the self-test where the programs are in place and it has not been passed.
func (m *Manager) test(ctx context.Context, now time.Time) {
	if !m.testable() || !m.retest.Due(now) {
		return
	}
	m.busy = true
	p, families, fitting := m.prober(), m.families(), m.fitting
	go func() {
		netNS, err := p.selfTest(ctx, families)
		m.results <- Result{netNS: netNS, err: err, fitting: fitting}
	}()
}

func (m *Manager) testable() bool {
	return !m.tested && !m.busy && m.cgroup != nil && m.failure == nil && len(m.attached) > 0
}

// testAnew has the self-test made in this pass, whatever one before has found: a hook had no program, and has one.
func (m *Manager) testAnew() {
	m.tested = false
	m.fitting++
	m.retest.Succeeded()
}

// OnResult takes in what a goroutine has found.
func (m *Manager) OnResult(r Result) {
	m.busy = false
	switch {
	case r.answers != nil:
		m.answered(r.answers)
	case r.fitting == m.fitting:
		m.onTest(r)
	}
}

func (m *Manager) onTest(r Result) {
	if r.err != nil {
		delay := m.retest.Failed(m.o.Now())
		if m.failed == nil || m.failed.Error() != r.err.Error() {
			m.log.WithError(r.err).WithField("retry", delay.Round(time.Millisecond).String()).
				Error("self-test failed: sockets of this node are not balanced at connect time, services are balanced packet by packet")
		}
		m.failed = r.err
		return
	}
	if m.failed != nil {
		m.log.Info("self-test passed: sockets are balanced at connect time")
	}
	m.failed = nil
	m.retest.Succeeded()
	if m.hostID == 0 && r.netNS != 0 {
		// A kernel that tells the cookie to programs alone: now it can be their constant.
		m.hostID, m.dirty = r.netNS, true
	}
	m.tested = true
}

func (m *Manager) prober() *prober {
	return &prober{root: m.cgroup.Path(), ns: m.o.Namespace, command: m.o.Command, lookup: m.lookup}
}

func (m *Manager) families() (families []layout.Family) {
	if m.o.IPv4 {
		families = append(families, layout.FamilyV4)
	}
	if m.o.IPv6 {
		families = append(families, layout.FamilyV6)
	}
	return families
}

// Close waits for the goroutine that may be under way. What is attached stays.
func (m *Manager) Close() {
	if m.busy {
		<-m.results
		m.busy = false
	}
}
