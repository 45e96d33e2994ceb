// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
)

// Workload is a local pod's interface that is ready to be routed to.
type Workload struct {
	ID        string // of the endpoint file
	Pod       files.Pod
	Interface string
	Ifindex   int
	EPSlot    uint32
	MAC       net.HardwareAddr
	Addresses []netip.Addr
}

// workloads is what the endpoint files say.
type workloads struct {
	byID      map[string]*workload
	claims    map[string]string     // interface name -> endpoint id
	addresses map[netip.Addr]string // -> endpoint id
	changed   map[string]bool       // ids whose routes or status have to be looked at
}

type workload struct {
	file    *files.Endpoint // the last one that could be used
	err     error           // why the newest can not
	written *files.Status
}

func newWorkloads() workloads {
	return workloads{byID: map[string]*workload{}, claims: map[string]string{}, addresses: map[netip.Addr]string{},
		changed: map[string]bool{}}
}

// touch marks the endpoint of an interface as changed.
func (w *workloads) touch(name string) {
	if id := w.claims[name]; id != "" {
		w.changed[id] = true
	}
}

// OnFiles takes in what became of endpoint files. The first batch is the whole directory.
func (m *Manager) OnFiles(b files.Batch) {
	first := !m.filesSynced
	m.filesSynced = true
	// Removals first, so that what replaces an endpoint finds its interface and addresses free. Then
	// by id: after a restart the same endpoint wins a conflict on every start.
	slices.SortStableFunc(b, func(x, y files.Change) int {
		if gx, gy := removal(x), removal(y); gx != gy {
			return gy - gx
		}
		return compare(x.ID, y.ID)
	})
	for _, c := range b {
		m.onFile(c)
	}
	// An endpoint refused for a conflict may be free to go now.
	for _, id := range slices.Sorted(maps.Keys(m.workloads.byID)) {
		w := m.workloads.byID[id]
		var conflict *conflictError
		if errors.As(w.err, &conflict) && conflict.pending != nil {
			m.onFile(files.Change{ID: id, Endpoint: conflict.pending})
		}
	}
	if first {
		m.removeOldStatuses()
		for _, index := range slices.Sorted(maps.Keys(m.ifaces)) {
			m.refresh(m.ifaces[index])
		}
	}
}

func removal(c files.Change) int {
	if c.Endpoint == nil && c.Err == nil {
		return 1
	}
	return 0
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// conflictError says that another endpoint has what this one wants, and keeps it until that changes.
type conflictError struct {
	what, holder string
	pending      *files.Endpoint
}

func (e *conflictError) Error() string {
	return fmt.Sprintf("%s belongs to endpoint %s already", e.what, e.holder)
}

func (m *Manager) onFile(c files.Change) {
	ws := &m.workloads
	w := ws.byID[c.ID]
	if removal(c) == 1 {
		if w != nil {
			name := m.release(c.ID, w)
			delete(ws.byID, c.ID)
			ws.changed[c.ID] = true
			m.refreshNamed(name)
		}
		return
	}
	if w == nil {
		w = &workload{}
		if s, err := m.opts.Status.Read(c.ID); err == nil {
			w.written = &s
		}
		ws.byID[c.ID] = w
	}
	ws.changed[c.ID] = true
	old := w.err
	w.err = c.Err
	if c.Err == nil {
		w.err = m.claimable(c.ID, c.Endpoint)
	}
	if w.err != nil {
		if old == nil || old.Error() != w.err.Error() {
			m.log.WithError(w.err).WithField("endpoint", c.ID).Warn("endpoint file can not be used")
		}
		return
	}
	before := m.release(c.ID, w)
	w.file = c.Endpoint
	ws.claims[w.file.HostInterface] = c.ID
	for _, a := range w.file.Addresses {
		ws.addresses[a] = c.ID
	}
	m.refreshNamed(w.file.HostInterface)
	if before != w.file.HostInterface {
		m.refreshNamed(before)
	}
}

// claimable reports which of the endpoint's things another one has.
func (m *Manager) claimable(id string, ep *files.Endpoint) error {
	if holder := m.workloads.claims[ep.HostInterface]; holder != "" && holder != id {
		return &conflictError{what: "interface " + ep.HostInterface, holder: holder, pending: ep}
	}
	for _, a := range ep.Addresses {
		if holder := m.workloads.addresses[a]; holder != "" && holder != id {
			return &conflictError{what: "address " + a.String(), holder: holder, pending: ep}
		}
	}
	return nil
}

// release gives up everything that the endpoint's last file claimed, and returns the name of the
// interface that is free now.
func (m *Manager) release(id string, w *workload) string {
	if w.file == nil {
		return ""
	}
	name := w.file.HostInterface
	if m.workloads.claims[name] == id {
		delete(m.workloads.claims, name)
	}
	for _, a := range w.file.Addresses {
		if m.workloads.addresses[a] == id {
			delete(m.workloads.addresses, a)
		}
	}
	w.file = nil
	return name
}

func (m *Manager) refreshNamed(name string) {
	if index, ok := m.byName[name]; ok {
		m.refresh(m.ifaces[index])
	}
}

// Changed returns the workloads that were touched since the last call: those that may be routed to,
// and the ids of those that may not (any more).
func (m *Manager) Changed() (usable []Workload, gone []string) {
	if !m.Synced() {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(m.workloads.changed)) {
		if w, ok := m.workload(id); ok {
			usable = append(usable, w)
		} else {
			gone = append(gone, id)
		}
	}
	return usable, gone
}

// workload returns the endpoint as one that may be routed to; false where it may not.
func (m *Manager) workload(id string) (Workload, bool) {
	w := m.workloads.byID[id]
	if w == nil || w.file == nil {
		return Workload{}, false
	}
	index, ok := m.byName[w.file.HostInterface]
	if !ok || !m.ifaces[index].usable {
		return Workload{}, false
	}
	rec := m.ifaces[index]
	if rec.have == nil || rec.have.EPSlot != rec.want.EPSlot {
		return Workload{}, false // the endpoint's own programs are not attached yet
	}
	return Workload{ID: id, Pod: w.file.Pod, Interface: rec.link.Name, Ifindex: index, EPSlot: rec.want.EPSlot,
		MAC: w.file.MAC(), Addresses: w.file.Addresses}, true
}

// Settle writes the status files of changed endpoints. routed says whether everything that leads to
// a workload is in place; an endpoint for which it is not stays changed and is asked about again.
func (m *Manager) Settle(routed func(Workload) error) {
	if !m.Synced() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.workloads.changed)) {
		w := m.workloads.byID[id]
		if w == nil {
			if err := m.opts.Status.Remove(id); err != nil {
				m.log.WithError(err).Warn("endpoint status is left behind")
				continue
			}
			delete(m.workloads.changed, id)
			continue
		}
		status, final := m.statusOf(id, w, routed)
		if w.written == nil || !w.written.SameAs(status) {
			status.Updated = m.opts.Now()
			if err := m.opts.Status.Write(id, status); err != nil {
				m.log.WithError(err).Warn("endpoint status could not be written")
				continue
			}
			w.written = &status
			m.log.WithFields(logrus.Fields{"endpoint": id, "interface": status.HostInterface, "ready": status.Ready,
				"error": status.Error}).Debug("endpoint status written")
		}
		if final {
			delete(m.workloads.changed, id)
		}
	}
}

// statusOf says how far an endpoint has come, and whether that stays until something is told.
func (m *Manager) statusOf(id string, w *workload, routed func(Workload) error) (files.Status, bool) {
	s := files.Status{Version: files.Version, Addresses: []netip.Addr{}}
	if w.file != nil {
		s.ContainerID, s.HostInterface, s.Addresses = w.file.ContainerID, w.file.HostInterface, w.file.Addresses
		if index, ok := m.byName[s.HostInterface]; ok {
			s.Ifindex = index
		}
	}
	usable, ok := m.workload(id)
	switch {
	case w.err != nil:
		s.Error = w.err.Error()
		s.Ready = ok && w.written != nil && w.written.Ready // by the last good file
		return s, true
	case s.Ifindex == 0:
		s.Error = fmt.Sprintf("interface %s does not exist, or is not a workload's by its name", s.HostInterface)
		return s, true
	case !ok || m.ifaces[s.Ifindex].failure != nil:
		s.Error = "programs are not attached yet"
		if f := m.ifaces[s.Ifindex].failure; f != nil {
			s.Error = "programs: " + f.Err.Error()
		}
		s.Ready = ok && w.written != nil && w.written.Ready
		return s, true
	}
	if err := routed(usable); err != nil {
		s.Error = err.Error()
		return s, false
	}
	s.Ready = true
	return s, true
}

// EndpointCounts returns how many endpoint files there are and how many of them are answered ready.
func (m *Manager) EndpointCounts() (total, ready int) {
	for _, w := range m.workloads.byID {
		if w.written != nil && w.written.Ready {
			ready++
		}
	}
	return len(m.workloads.byID), ready
}

// removeOldStatuses deletes statuses whose endpoint file went while no agent was running.
func (m *Manager) removeOldStatuses() {
	ids, err := m.opts.Status.List()
	if err != nil {
		m.log.WithError(err).Warn("old endpoint statuses are left behind")
		return
	}
	for _, id := range ids {
		if m.workloads.byID[id] != nil {
			continue
		}
		if err := m.opts.Status.Remove(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.WithError(err).Warn("old endpoint status is left behind")
		}
	}
}

func asProgramError(err error) (*ProgramError, bool) {
	var p *ProgramError
	ok := errors.As(err, &p)
	return p, ok
}
