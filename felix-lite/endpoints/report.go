// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Failure is why an interface is not as it should be.
type Failure struct {
	Interface string
	Class     layout.Class
	Variant   string // empty where no program is to blame
	Err       error
	Since     time.Time
	Attempts  int
}

// failed records an error and when to try again.
func (m *Manager) failed(rec *iface, err error) {
	const first, last = 100 * time.Millisecond, 30 * time.Second
	rec.attempts++
	delay := min(first<<min(rec.attempts-1, 10), last)
	delay += time.Duration(rand.Float64() * 0.2 * float64(delay))
	now := m.opts.Now()
	rec.retryAt = now.Add(delay)
	if isNotFound(err) {
		return // it is going: its removal will be told in a moment
	}
	f := &Failure{Interface: rec.link.Name, Class: rec.want.Class, Err: err, Since: now, Attempts: rec.attempts}
	if rec.failure != nil {
		f.Since = rec.failure.Since
	}
	if p, ok := asProgramError(err); ok {
		f.Variant = p.Variant
	}
	if rec.failure == nil || rec.failure.Err.Error() != err.Error() {
		m.log.WithError(err).WithFields(logrus.Fields{"interface": f.Interface, "class": f.Class.String(),
			"variant": f.Variant, "retry": delay.Round(time.Millisecond).String()}).
			Error("interface could not be programmed; what was attached before stays")
	}
	rec.failure = f
	m.workloads.touch(rec.link.Name)
}

// InterfaceStatus is what the manager knows of one interface, for status and readiness.
type InterfaceStatus struct {
	Attachment
	State   State
	Usable  bool
	Failure *Failure
}

// Interfaces lists the interfaces that are ours, by index.
func (m *Manager) Interfaces() []InterfaceStatus {
	out := make([]InterfaceStatus, 0, len(m.ifaces))
	for _, index := range slices.Sorted(maps.Keys(m.ifaces)) {
		rec := m.ifaces[index]
		out = append(out, InterfaceStatus{Attachment: rec.want, State: rec.state, Usable: rec.usable, Failure: rec.failure})
	}
	return out
}

// Usable reports whether an interface carries working programs: it was ready since it appeared.
func (m *Manager) Usable(ifindex int) bool {
	rec := m.ifaces[ifindex]
	return rec != nil && rec.usable && rec.have != nil
}

// Failures are those of all interfaces, by index.
func (m *Manager) Failures() []Failure {
	var out []Failure
	for _, index := range slices.Sorted(maps.Keys(m.work)) {
		if rec := m.ifaces[index]; rec != nil && rec.failure != nil {
			out = append(out, *rec.failure)
		}
	}
	return out
}

// String is one line: interface, class, and what went wrong.
func (f Failure) String() string { return fmt.Sprintf("%s (%s): %v", f.Interface, f.Class, f.Err) }

// PendingInterfaces is how many interfaces are not as they should be yet.
func (m *Manager) PendingInterfaces() int { return len(m.work) }

// String names the interface for logs.
func (a Attachment) String() string { return fmt.Sprintf("%s (%d, %s)", a.Name, a.Ifindex, a.Class) }
