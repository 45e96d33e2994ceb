// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"errors"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/load"
)

// Balancing reports whether sockets are balanced, or will be after the next Ensure: TC is to look for what they
// asked for.
func (m *Manager) Balancing() bool {
	if !m.looked { // programs of an earlier run may be there
		return true
	}
	for hook := range m.earlier {
		if kind, _ := split(hook); kind == "connect" {
			return true
		}
	}
	return m.plan.Balances()
}

// FallbackNeeded reports whether host traffic must be balanced packet by packet: because of the mode or the
// kernel, or because attaching, looking at what is there or the self-test has failed. known is false until that has been found out.
func (m *Manager) FallbackNeeded() (needed, known bool) {
	switch {
	case m.plan.Fallback, m.failure != nil, m.failed != nil:
		return true, true
	case !m.tested:
		return false, false
	}
	return false, true
}

// State is what people are told.
type State struct {
	Mode     string   `json:"mode"`
	Cgroup   string   `json:"cgroup,omitempty"`
	Hooks    []string `json:"hooks,omitempty"` // with programs of this run
	Leaving  []string `json:"leaving,omitempty"`
	SelfTest string   `json:"selfTest,omitempty"` // one of those below; empty: there is nothing to test
	Fallback bool     `json:"fallback"`
	Why      string   `json:"why,omitempty"`
	Missing  []string `json:"missing,omitempty"` // features of the kernel
	OptedOut int      `json:"optedOut"`          // network namespaces
}

// What State says of the self-test.
const (
	TestPending = "pending"
	TestPassed  = "passed"
	TestFailed  = "failed"
)

// Problem is what is wrong, and nil if nothing is.
func (m *Manager) Problem() error {
	return errors.Join(m.failure, m.failed, m.opt.failure, m.opt.unanswered)
}

// Broken reports whether attaching, looking at what is there or the self-test has failed.
func (m *Manager) Broken() bool { return m.failure != nil || m.failed != nil }

// State returns what people are told.
func (m *Manager) State() State {
	s := State{Mode: string(m.o.Mode), OptedOut: len(m.opt.written), Why: m.plan.Why}
	s.Fallback, _ = m.FallbackNeeded()
	if m.cgroup != nil {
		s.Cgroup = m.cgroup.Path()
	}
	for _, h := range load.CgroupHooks() {
		if m.attached[h.Name] {
			s.Hooks = append(s.Hooks, h.Name)
		} else if m.earlier[h.Name] {
			s.Leaving = append(s.Leaving, h.Name)
		}
	}
	for _, f := range m.plan.Missing {
		s.Missing = append(s.Missing, string(f))
	}
	if m.plan.Balances() {
		switch {
		case m.failed != nil:
			s.SelfTest = TestFailed
		case m.tested:
			s.SelfTest = TestPassed
		default:
			s.SelfTest = TestPending
		}
	}
	var why []string
	for _, w := range []string{m.plan.Why, text(m.failure), text(m.failed)} {
		if w != "" {
			why = append(why, w)
		}
	}
	s.Why = strings.Join(why, "; ")
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
