// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
)

// Attachment is all that is particular to one interface: the constants of its two preambles and its
// entry in cali_iface2. Two equal attachments need the same programs.
type Attachment struct {
	Ifindex   int
	Name      string
	Class     layout.Class
	IfaceSlot uint32 // row of cali_counters2; 0: counted together with others that got none
	EPSlot    uint32 // 0: no endpoint
	Flags     layout.IfaceFlag
	Policy    [4]uint32 // index into cali_policy2 by hook * 2 + family
}

// Dataplane is what the manager does to the kernel. All of it must be repeatable, and removing what
// is not there must not be an error.
type Dataplane interface {
	// Attach puts the preambles of both hooks in place, replacing ours if there are any. On error the
	// programs that were attached before stay. The error wraps a *ProgramError where a program is to blame.
	Attach(a Attachment) error
	// Detach removes our programs from the interface, and nothing else.
	Detach(a Attachment) error
	// Attached reports whether both of our programs are still on the interface.
	Attached(a Attachment) (bool, error)
	// Publish writes the interface's entry, Withdraw removes it.
	Publish(a Attachment) error
	Withdraw(ifindex int) error
	// ZeroCounters clears all rows of an interface slot.
	ZeroCounters(slot uint32) error
}

// ProgramError says which program could not be loaded or attached.
type ProgramError struct {
	Variant string // "preamble from_wep"
	Err     error
}

// Error names the program.
func (e *ProgramError) Error() string { return e.Variant + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ProgramError) Unwrap() error { return e.Err }

// Known is an interface's entry as an earlier run left it in cali_iface2.
type Known struct {
	Ifindex           int
	Name              string
	IfaceSlot, EPSlot uint32
	// Ready: both hooks were attached. Such a workload stays routed while it is attached anew.
	Ready bool
}

// Options of a Manager. All but Programmed must be set.
type Options struct {
	// Classify says what a link is for; false: none of ours. All links of a batch are known to whoever
	// answers before it is asked about one.
	Classify func(Link) (layout.Class, bool)
	// Programmed says whether the programs that interfaces of a class jump to are there: until they are, the
	// interface waits. nil: they always are.
	Programmed func(layout.Class) bool
	// Families are the flags of the enabled address families.
	Families layout.IfaceFlag
	// IfaceSlots and EPSlots are the sizes of the tables that slots index.
	IfaceSlots, EPSlots uint32
	Dataplane           Dataplane
	Status              *files.StatusDir
	Now                 func() time.Time
	Log                 *logrus.Entry
}

// Manager owns the state of all interfaces and endpoints of the node. It is not safe for concurrent
// use: the agent's loop calls it.
type Manager struct {
	opts Options
	log  *logrus.Entry

	links      map[int]Link   // all of them, by index
	ifaces     map[int]*iface // those that are ours
	byName     map[string]int
	work       map[int]bool // interfaces with something to do
	ifaceSlots *slots
	epSlots    *slots
	known      map[int]Known // of an earlier run, not met yet

	linksSynced, filesSynced bool
	workloads                workloads
}

// iface is one interface that is ours.
type iface struct {
	link     Link
	state    State
	want     Attachment
	have     *Attachment // carried by the kernel, as far as we know
	usable   bool        // was ready since it appeared: the last good programs are there
	failure  *Failure
	retryAt  time.Time
	attempts int
}

// NewManager makes a manager that keeps the slots of an earlier run's interfaces.
func NewManager(opts Options, known []Known) *Manager {
	m := &Manager{
		opts: opts, log: opts.Log,
		links: map[int]Link{}, ifaces: map[int]*iface{}, byName: map[string]int{}, work: map[int]bool{}, known: map[int]Known{},
		ifaceSlots: newSlots(opts.IfaceSlots), epSlots: newSlots(opts.EPSlots),
		workloads: newWorkloads(),
	}
	for _, k := range known {
		// A slot that two entries claim, or that is out of range after a resize, is not kept.
		if !m.ifaceSlots.adopt(k.IfaceSlot) {
			k.IfaceSlot = 0
		}
		if !m.epSlots.adopt(k.EPSlot) {
			k.EPSlot = 0
		}
		m.known[k.Ifindex] = k
	}
	return m
}

// OnLinks takes in what the monitor has seen.
func (m *Manager) OnLinks(b LinkBatch) {
	present := make(map[int]bool, len(b.Links))
	for _, l := range b.Links {
		present[l.Index] = true
		m.links[l.Index] = l
	}
	if b.Full {
		m.linksSynced = true
		for index := range m.links {
			if !present[index] {
				m.vanished(index)
			}
		}
		for index, k := range m.known {
			if !present[index] {
				m.forgetKnown(k)
			}
		}
	}
	for _, index := range b.Removed {
		m.vanished(index)
	}
	for _, l := range b.Links {
		m.onLink(l)
	}
	// What another link is may hang on one that changed (a bond and its ports), but never on a workload.
	for _, l := range b.Links {
		if rec := m.ifaces[l.Index]; rec == nil || rec.want.Class != layout.ClassWEP {
			m.Reclassify()
			return
		}
	}
}

// Reclassify looks at every link again: something that decides what they are for has changed.
func (m *Manager) Reclassify() {
	for _, index := range slices.Sorted(maps.Keys(m.links)) {
		m.onLink(m.links[index])
	}
}

func (m *Manager) onLink(l Link) {
	class, ours := m.opts.Classify(l)
	rec := m.ifaces[l.Index]
	switch {
	case rec == nil && !ours:
		if k, ok := m.known[l.Index]; ok {
			m.forgetKnown(k)
		}
		return
	case rec != nil && (!ours || rec.link.Name != l.Name):
		// Renamed, or not ours any more: it starts anew under its new name, if at all.
		m.unwanted(rec)
		if !ours {
			return
		}
		rec = nil
	}
	if rec == nil {
		rec = m.adopt(l, class)
	}
	rec.link = l
	rec.want.Class = class
	m.refresh(rec)
}

// adopt starts the record of a new interface; where an earlier run knew it, with the same slots.
func (m *Manager) adopt(l Link, class layout.Class) *iface {
	rec := &iface{link: l, want: Attachment{Ifindex: l.Index, Name: l.Name, Class: class}}
	if k, ok := m.known[l.Index]; ok {
		delete(m.known, l.Index)
		if k.Name == l.Name {
			rec.want.IfaceSlot, rec.want.EPSlot = k.IfaceSlot, k.EPSlot
			if k.Ready {
				// Its programs are of another run: they work, and are replaced.
				have := rec.want
				rec.have, rec.usable = &have, true
			}
		} else {
			m.ifaceSlots.free(k.IfaceSlot)
			m.epSlots.free(k.EPSlot)
		}
	}
	if rec.want.IfaceSlot == 0 {
		rec.want.IfaceSlot = m.ifaceSlots.alloc()
		if rec.want.IfaceSlot == 0 {
			m.log.WithField("interface", l.Name).Warn("no free counter row: the interface is counted in row 0")
		} else if err := m.opts.Dataplane.ZeroCounters(rec.want.IfaceSlot); err != nil {
			m.log.WithError(err).WithField("interface", l.Name).Warn("old counters of the row are kept")
		}
	}
	m.ifaces[l.Index] = rec
	m.byName[l.Name] = l.Index
	return rec
}

// refresh computes what the interface is to carry, and starts the machine where that is not what it has.
func (m *Manager) refresh(rec *iface) {
	if rec.want.Class == layout.ClassWEP && !m.filesSynced {
		return // whose interface it is will be known when the endpoint files have been read
	}
	rec.want.Flags = layout.IFFReady | layout.IFFManaged | m.opts.Families
	policy := uint32(layout.PolicyAllow)
	if rec.want.Class == layout.ClassWEP {
		policy = m.workloadPolicy(rec)
	}
	for i := range rec.want.Policy {
		rec.want.Policy[i] = policy
	}
	if rec.have != nil && *rec.have == rec.want {
		return
	}
	m.step(rec, Wanted)
	rec.retryAt, rec.attempts = time.Time{}, 0
}

// workloadPolicy gives a workload with an endpoint its slot and the allow policy. One without is
// closed: whoever creates it has not said yet who it is.
func (m *Manager) workloadPolicy(rec *iface) uint32 {
	if id := m.workloads.claims[rec.link.Name]; id != "" {
		if rec.want.EPSlot == 0 {
			rec.want.EPSlot = m.epSlots.alloc()
		}
		return uint32(layout.PolicyAllow)
	}
	m.epSlots.free(rec.want.EPSlot)
	rec.want.EPSlot = 0
	return uint32(layout.PolicyDeny)
}

// step runs the machine; what is due is done by Apply.
func (m *Manager) step(rec *iface, e Event) Action {
	var action Action
	rec.state, action = next(rec.state, e)
	if due(rec.state) != Nothing {
		m.work[rec.link.Index] = true
	} else {
		delete(m.work, rec.link.Index)
	}
	return action
}

func (m *Manager) vanished(index int) {
	delete(m.links, index)
	if k, ok := m.known[index]; ok {
		m.forgetKnown(k)
	}
	if rec := m.ifaces[index]; rec != nil {
		m.step(rec, Vanished)
		m.forget(rec)
	}
}

func (m *Manager) unwanted(rec *iface) {
	if m.step(rec, Unwanted) == Detach {
		if err := m.opts.Dataplane.Detach(rec.want); err != nil && !isNotFound(err) {
			m.log.WithError(err).WithField("interface", rec.link.Name).Warn("programs could not be detached")
		}
	}
	m.forget(rec)
}

// forget drops everything that was kept for an interface that is gone or not ours any more.
func (m *Manager) forget(rec *iface) {
	if err := m.opts.Dataplane.Withdraw(rec.link.Index); err != nil {
		m.log.WithError(err).WithField("interface", rec.link.Name).Warn("interface entry could not be removed")
	}
	m.ifaceSlots.free(rec.want.IfaceSlot)
	m.epSlots.free(rec.want.EPSlot)
	delete(m.ifaces, rec.link.Index)
	delete(m.work, rec.link.Index)
	if m.byName[rec.link.Name] == rec.link.Index {
		delete(m.byName, rec.link.Name)
	}
	m.workloads.touch(rec.link.Name)
}

// forgetKnown drops what an earlier run left of an interface that has gone since.
func (m *Manager) forgetKnown(k Known) {
	delete(m.known, k.Ifindex)
	m.ifaceSlots.free(k.IfaceSlot)
	m.epSlots.free(k.EPSlot)
	if err := m.opts.Dataplane.Withdraw(k.Ifindex); err != nil {
		m.log.WithError(err).WithField("interface", k.Name).Warn("interface entry could not be removed")
	}
}

// Synced reports whether both the links and the endpoint files have been seen whole. Before that
// Apply does nothing: a workload whose file is not read yet must not lose its policy.
func (m *Manager) Synced() bool { return m.linksSynced && m.filesSynced }

// Apply does what is due, for at most limit interfaces, and reports whether more is due at once.
func (m *Manager) Apply(limit int) bool {
	if !m.Synced() {
		return false
	}
	now := m.opts.Now()
	for _, index := range slices.Sorted(maps.Keys(m.work)) {
		rec := m.ifaces[index]
		if rec == nil || now.Before(rec.retryAt) || m.waits(rec) {
			continue
		}
		if limit == 0 {
			return true
		}
		limit--
		m.advance(rec)
	}
	return false
}

// waits reports whether an interface has to wait for its class's programs.
func (m *Manager) waits(rec *iface) bool {
	return m.opts.Programmed != nil && !m.opts.Programmed(rec.want.Class)
}

// advance does the due actions of one interface until it is ready or one of them fails.
func (m *Manager) advance(rec *iface) {
	for {
		var err error
		done, failed := AttachDone, AttachFailed
		switch due(rec.state) {
		case Attach:
			if err = m.opts.Dataplane.Attach(rec.want); err == nil {
				have := rec.want
				rec.have = &have
			}
		case Publish:
			done, failed = PublishDone, PublishFailed
			err = m.opts.Dataplane.Publish(rec.want)
		default:
			m.becameReady(rec)
			return
		}
		if err != nil {
			m.step(rec, failed)
			m.failed(rec, err)
			return
		}
		m.step(rec, done)
	}
}

func (m *Manager) becameReady(rec *iface) {
	fields := logrus.Fields{"interface": rec.link.Name, "class": rec.want.Class.String()}
	if rec.failure != nil {
		m.log.WithFields(fields).Info("interface recovered")
	} else if !rec.usable {
		m.log.WithFields(fields).Debug("interface ready")
	}
	rec.usable, rec.failure, rec.attempts = true, nil, 0
	m.workloads.touch(rec.link.Name)
}

// NextRetry returns when Apply has something to do again.
func (m *Manager) NextRetry() (time.Time, bool) {
	var at time.Time
	found := false
	if !m.Synced() {
		return at, false
	}
	for index := range m.work {
		if rec := m.ifaces[index]; rec != nil && !m.waits(rec) && (!found || rec.retryAt.Before(at)) {
			at, found = rec.retryAt, true
		}
	}
	return at, found
}

// Resync looks at the kernel again: an interface whose programs somebody removed is attached anew.
func (m *Manager) Resync() {
	for _, index := range slices.Sorted(maps.Keys(m.ifaces)) {
		rec := m.ifaces[index]
		if rec.state != Ready {
			continue
		}
		ok, err := m.opts.Dataplane.Attached(rec.want)
		if err != nil {
			if !isNotFound(err) {
				m.log.WithError(err).WithField("interface", rec.link.Name).Warn("attached programs can not be read")
			}
			continue
		}
		if !ok {
			m.log.WithField("interface", rec.link.Name).Warn("programs were removed by somebody else, attaching them again")
			m.step(rec, Wanted)
		}
	}
}
