// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/backoff"
)

// optState keeps the map of opt-outs as the annotations want it.
type optState struct {
	known   *optOuts
	dirty   bool
	prune   bool              // what nobody wants is removed
	read    bool              // what an earlier run wrote is in written
	written map[uint64]bool   // cookies in the map
	earlier map[uint64]bool   // those of them that an earlier run wrote, and that are not known to be of any path
	any     bool              // there has been one: programs look into the map from then on
	cookies map[string]nsFile // by path
	failure error
	retry   backoff.Backoff
}

// errHost means that an endpoint's network namespace is that of the host.
var errHost = errors.New("it is the host's, which can not opt out")

// nsFile is the network namespace that a path meant when it was last opened.
type nsFile struct {
	inode  uint64
	cookie uint64
}

func newOptState() optState {
	return optState{known: newOptOuts(), dirty: true, written: map[uint64]bool{}, earlier: map[uint64]bool{},
		cookies: map[string]nsFile{}}
}

// ensureOptOuts writes what is missing in the map, and removes what is too much once every source has told all.
func (m *Manager) ensureOptOuts(now time.Time) {
	o := &m.opt
	if !o.dirty || !m.plan.Balances() || !o.retry.Due(now) {
		return
	}
	err := m.writeOptOuts()
	if err == nil {
		o.dirty, o.failure = false, nil
		o.retry.Succeeded()
		return
	}
	delay := o.retry.Failed(now)
	if o.failure == nil || o.failure.Error() != err.Error() {
		m.log.WithError(err).WithField("retry", delay.Round(time.Millisecond).String()).
			Warn("a pod has opted out of balancing at connect time, or back in, and that could not be seen to")
	}
	o.failure = err
}

// optOutsUnseen reports whether there are opt-outs, and programs in place that do not look for them: as long as
// nobody has opted out, each call of a socket to a service is spared the look.
func (m *Manager) optOutsUnseen() bool {
	return m.opt.any && len(m.attached) > 0 && m.loaded.Flags&uint32(layout.CTLBOptOuts) == 0
}

// readOptOuts finds out once what an earlier run has written.
func (m *Manager) readOptOuts() error {
	o := &m.opt
	if o.read {
		return nil
	}
	err := m.o.Maps.SocketOff.All(func(cookie uint64, _ uint32) bool {
		o.written[cookie], o.earlier[cookie] = true, true
		return true
	})
	if err != nil {
		return err
	}
	o.read, o.any = true, len(o.written) > 0
	return nil
}

func (m *Manager) writeOptOuts() error {
	o := &m.opt
	if err := m.readOptOuts(); err != nil {
		return err
	}
	wanted, all, err := m.wantedCookies()
	errs := []error{err}
	for cookie := range wanted {
		if delete(o.earlier, cookie); o.written[cookie] {
			continue
		}
		if err := m.o.Maps.SocketOff.Put(cookie, 1); err != nil {
			errs = append(errs, err)
			continue
		}
		o.written[cookie], o.any = true, true
	}
	for cookie := range o.written {
		if wanted[cookie] || !o.prune || o.earlier[cookie] && !all {
			continue
		}
		if err := m.o.Maps.SocketOff.Remove(cookie); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(o.written, cookie)
		delete(o.earlier, cookie)
	}
	return errors.Join(errs...)
}

// wantedCookies are those of the network namespaces that have opted out. Where one can not be read its cookie is the one
// it had; all is false if that of any is not known, so that it may be one that an earlier run wrote.
func (m *Manager) wantedCookies() (wanted map[uint64]bool, all bool, err error) {
	o := &m.opt
	wanted, all = map[uint64]bool{}, true
	paths := o.known.paths()
	if len(paths) > 0 && !m.o.Features.Has(features.NetnsCookie) {
		return wanted, all, m.o.Features.Require(features.NetnsCookie)
	}
	var errs []error
	current := map[string]nsFile{}
	for _, path := range paths {
		f, err := m.cookieOf(path)
		switch before, known := o.cookies[path]; {
		case err == nil:
		case errors.Is(err, os.ErrNotExist):
			continue // the pod is on its way out
		case errors.Is(err, errHost):
			errs = append(errs, err)
			continue
		default:
			errs = append(errs, err)
			if !known {
				all = false
				continue
			}
			f = before
		}
		current[path], wanted[f.cookie] = f, true
	}
	o.cookies = current
	return wanted, all, errors.Join(errs...)
}

// cookieOf finds the cookie of the network namespace at path.
func (m *Manager) cookieOf(path string) (nsFile, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nsFile{}, fmt.Errorf("network namespace %s: %w", path, err)
	}
	if f, ok := m.opt.cookies[path]; ok && f.inode == st.Ino {
		return f, nil
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nsFile{}, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	cookie, err := netNSCookie(ns)
	if errors.Is(err, unix.ENOPROTOOPT) {
		if m.cgroup == nil {
			return nsFile{}, nil // nothing is balanced
		}
		// Before Linux 5.14 only the programs can tell.
		cookie, err = m.prober().cookie(context.Background(), path, m.families())
	}
	if err == nil && cookie == m.hostID {
		err = errHost
	}
	if err != nil {
		return nsFile{}, fmt.Errorf("network namespace %s: %w", path, err)
	}
	return nsFile{inode: st.Ino, cookie: cookie}, nil
}
