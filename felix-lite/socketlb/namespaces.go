// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"errors"
	"os"
	"time"

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

	programs   bool            // the kernel tells cookies to them alone
	unasked    map[string]nsID // network namespaces whose cookies only they can tell, by path; replaced, never changed
	unanswered error           // when they were asked last
	again      backoff.Backoff // for that
}

// change has opt-outs looked at in the next pass, even if something has failed that is not due again yet.
func (o *optState) change(changed bool) {
	if changed {
		o.dirty = true
		o.retry.Succeeded()
	}
}

func newOptState() optState {
	return optState{known: newOptOuts(), dirty: true, written: map[uint64]bool{}, earlier: map[uint64]bool{},
		cookies: map[string]nsFile{}}
}

// ensureOptOuts writes what is missing in the map, and removes what is too much once every source has told all. As long as
// programs are to be asked for something it is not done with that.
func (m *Manager) ensureOptOuts(now time.Time) {
	o := &m.opt
	if !o.dirty || !m.plan.Balances() || !o.retry.Due(now) {
		return
	}
	err := m.writeOptOuts()
	if err == nil {
		o.dirty, o.failure = len(o.unasked) > 0, nil
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

// wantedCookies are those of the network namespaces that have opted out. Where one can not be read, or programs are to be
// asked first, its cookie is the one it had; all is false if that of any is not known, so that it may be one that an earlier run wrote.
func (m *Manager) wantedCookies() (wanted map[uint64]bool, all bool, err error) {
	o := &m.opt
	o.unasked, wanted, all = map[string]nsID{}, map[uint64]bool{}, true
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
			if errors.Is(err, errUnasked) {
				o.unasked[path] = f.id
			} else {
				errs = append(errs, err)
			}
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
