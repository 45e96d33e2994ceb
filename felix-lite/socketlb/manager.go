// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/internal/backoff"
)

// closingTime is how long hooks that serve what was begun stay when they are not wanted any more: sockets that
// an earlier run balanced go on to show the service for so long.
const closingTime = 2 * time.Minute

// Options of NewManager.
type Options struct {
	Mode Mode
	// CgroupRoot is the cgroup to attach to; "" means the host's root, which is looked for.
	CgroupRoot string
	BPFFSRoot  string
	IPv4, IPv6 bool
	Features   *features.Set
	HZ         uint32 // jiffies a second
	// Maps are the node's maps. A resize replaces them: see Reload.
	Maps *maps.Set
	// Namespace is the host's network namespace.
	Namespace netns.NsHandle
	// Command starts this binary's Probe.
	Command []string
	Now     func() time.Time
	Log     *logrus.Entry
	// netNSCookie is what the kernel is asked for cookies by; nil means netNSCookie. Tests have one of before Linux 5.14.
	netNSCookie func(netns.NsHandle) (uint64, error)
}

// Manager keeps hooks, constants and opt-outs as they should be. All methods but those of Results' channel are
// for one goroutine.
type Manager struct {
	o      Options
	plan   Plan
	log    *logrus.Entry
	cgroup *attach.Cgroup

	attached map[string]bool // hooks that carry programs of this run
	earlier  map[string]bool // hooks that carry those of an earlier run
	looked   bool            // earlier is known
	dirty    bool            // hooks are to be looked at
	hostID   uint64          // cookie of the host's network namespace; 0: not known
	loaded   layout.CTLBConfig
	failure  error
	retry    backoff.Backoff
	closing  time.Time // when unwanted hooks that close are detached

	busy    bool        // a goroutine is under way: there is never more than one
	results chan Result // has room for what it finds

	tested  bool  // the self-test has been passed
	fitting int   // counts the hooks attached where there was none: a self-test begun before does not count
	failed  error // of the self-test
	retest  backoff.Backoff

	opt optState
}

// NewManager looks at what an earlier run has left; it attaches nothing yet. That this can not be seen is a Problem
// like others, and is tried again by Ensure.
func NewManager(o Options) *Manager {
	m := &Manager{o: o, log: o.Log.WithField("component", "socket-lb"), dirty: true, attached: map[string]bool{},
		earlier: map[string]bool{}, results: make(chan Result, 1), opt: newOptState()}
	if m.o.netNSCookie == nil {
		m.o.netNSCookie = netNSCookie
	}
	m.plan = PlanFor(o.Mode, o.Features.Has, o.IPv4, o.IPv6)
	m.look(o.Now())
	if o.Features.Has(features.NetnsCookie) {
		// Before Linux 5.14 only the self-test can tell.
		if id, err := m.o.netNSCookie(o.Namespace); err == nil {
			m.hostID = id
		}
	}
	return m
}

// look finds out once which hooks carry programs of an earlier run, and reports whether that is known.
func (m *Manager) look(now time.Time) bool {
	if m.looked || !m.retry.Due(now) {
		return m.looked
	}
	links, err := attach.CgroupLinks(m.o.BPFFSRoot)
	if err != nil {
		m.setFailure(fmt.Errorf("programs at connect time of an earlier run can not be known: %w", err))
		return false
	}
	m.looked = true
	for _, l := range links {
		m.earlier[l.Hook] = true
	}
	if m.failure != nil {
		m.log.Info("programs at connect time of an earlier run are known now")
		m.failure = nil
		m.retry.Succeeded()
	}
	return true
}

// Plan is what the mode comes to on this kernel.
func (m *Manager) Plan() Plan { return m.plan }

// Ensure brings hooks and opt-outs nearer to what they should be. fallbackServes says that host traffic that is
// not balanced at connect time is, packet by packet: hooks of an earlier run that served it are not changed
// before that is so.
func (m *Manager) Ensure(ctx context.Context, fallbackServes bool) {
	now := m.o.Now()
	m.ensureOptOuts(now)
	m.ensureHooks(now, fallbackServes)
	m.test(ctx, now)
	m.ask(ctx, now)
	if m.optOutsUnseen() {
		m.dirty = true
		m.ensureHooks(now, fallbackServes)
	}
}

func (m *Manager) ensureHooks(now time.Time, fallbackServes bool) {
	if !m.look(now) {
		return
	}
	if (m.dirty || len(m.earlier) > 0) && m.retry.Due(now) && (!m.plan.Fallback || fallbackServes || len(m.earlier) == 0) {
		m.setFailure(m.hooks(now))
	}
}

// hooks attaches what is wanted, and then detaches what an earlier run has left and is not.
func (m *Manager) hooks(now time.Time) error {
	if m.dirty && m.plan.Balances() {
		if err := m.attach(); err != nil {
			return err
		}
	}
	m.dirty = false
	if m.closing.IsZero() {
		m.closing = now.Add(closingTime)
	}
	var errs []error
	for hook := range m.earlier {
		if m.attached[hook] {
			delete(m.earlier, hook)
			continue
		}
		if !opening(hook) && now.Before(m.closing) {
			continue
		}
		if err := attach.DetachCgroup(m.o.BPFFSRoot, hook); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(m.earlier, hook)
		m.log.WithField("hook", hook).Info("program at connect time removed")
	}
	return errors.Join(errs...)
}

// attach loads the programs and puts them on their hooks, in place of those that stand there.
func (m *Manager) attach() error {
	if m.cgroup == nil {
		root := m.o.CgroupRoot
		if root == "" {
			var err error
			if root, err = FindCgroupRoot(); err != nil {
				return err
			}
		}
		c, err := attach.NewCgroup(root, m.o.BPFFSRoot)
		if err != nil {
			return err
		}
		removeProbeCgroups(root)
		m.cgroup = c
	}
	if err := m.readOptOuts(); err != nil {
		return err
	}
	cfg := layout.CTLBConfig{HostNetNS: m.hostID, HZ: m.o.HZ, Flags: uint32(m.plan.Flags)}
	if m.opt.any {
		cfg.Flags |= uint32(layout.CTLBOptOuts)
	}
	programs, err := load.Cgroup(m.plan.Hooks, cfg, m.o.Maps.Raw())
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range programs {
			p.Close()
		}
	}()
	for _, h := range order(m.plan.Hooks) {
		anew, err := m.cgroup.Attach(h, programs[h.Name])
		if err != nil {
			return err
		}
		if m.attached[h.Name] = true; anew {
			m.testAnew()
		}
	}
	m.logLoaded(cfg)
	m.loaded = cfg
	return nil
}

// logLoaded says what programs loaded with cfg do that those before them did not.
func (m *Manager) logLoaded(cfg layout.CTLBConfig) {
	before := m.loaded
	before.Flags |= uint32(layout.CTLBOptOuts)
	switch {
	case m.loaded == cfg:
	case before == cfg:
		m.log.Info("a pod has opted out: programs at connect time look for opt-outs from now on")
	default:
		m.log.WithFields(logrus.Fields{"cgroup": m.cgroup.Path(), "mode": string(m.o.Mode), "hooks": len(m.plan.Hooks)}).
			Info("sockets are balanced at connect time")
	}
}

// order puts the hooks that serve what was begun before those that begin: a reply never comes to a socket
// that can not be told whose it is.
func order(hooks []load.CgroupHook) (ordered []load.CgroupHook) {
	for _, first := range []bool{false, true} {
		for _, h := range hooks {
			if opening(h.Name) == first {
				ordered = append(ordered, h)
			}
		}
	}
	return ordered
}

func (m *Manager) setFailure(err error) {
	now := m.o.Now()
	if err == nil {
		if m.failure != nil {
			m.log.Info("programs at connect time are in place now")
		}
		m.failure = nil
		m.retry.Succeeded()
		return
	}
	delay := m.retry.Failed(now)
	if m.failure == nil || m.failure.Error() != err.Error() {
		m.log.WithError(err).WithField("retry", delay.Round(time.Millisecond).String()).
			Error("programs at connect time could not be attached: services are balanced packet by packet")
	}
	m.failure = err
}

// Resync has the hooks compared with the kernel in the next pass: another may have removed a pin.
func (m *Manager) Resync() {
	links, err := attach.CgroupLinks(m.o.BPFFSRoot)
	if err != nil {
		m.log.WithError(err).Warn("programs at connect time could not be compared with what they should be")
	}
	there := map[string]attach.CgroupLink{}
	for _, l := range links {
		there[l.Hook] = l
	}
	for hook := range m.attached {
		l, ok := there[hook]
		switch {
		case !ok && err != nil: // may be there: attaching finds out, and fails if it can not
			m.dirty = true
		case !ok, l.CgroupID == 0:
			m.log.WithField("hook", hook).Warn("program at connect time was removed by somebody else, attaching it again")
			delete(m.attached, hook)
			m.dirty = true
		}
	}
	m.opt.dirty = true
}

// Reload has the programs loaded anew in the next pass, because maps were replaced.
func (m *Manager) Reload() { m.dirty = m.dirty || m.plan.Balances() }

// Objects takes in changes of pods and namespaces.
func (m *Manager) Objects(changes []model.Change) {
	m.opt.change(m.opt.known.apply(changes))
}

// Files takes in changes of endpoint files.
func (m *Manager) Files(batch files.Batch) {
	m.opt.change(m.opt.known.files(batch))
}

// AllowPrune says that every source has told all it has: opt-outs that nobody wants may be removed.
func (m *Manager) AllowPrune() { m.opt.prune, m.opt.dirty = true, true }

// Next is when Ensure has something to do again; false: when something changes.
func (m *Manager) Next() (time.Time, bool) {
	next, ok := time.Time{}, false
	consider := func(at time.Time, due bool) {
		if due && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	consider(m.retry.Waiting())
	at, waiting := m.retest.Waiting()
	consider(at, waiting && m.testable())
	consider(m.opt.retry.Waiting())
	at, waiting = m.opt.again.Waiting()
	consider(at, waiting && m.askable())
	consider(m.closing, len(m.earlier) > 0 && !m.closing.IsZero())
	return next, ok
}

// lookup reads what the programs have noted of a probe's socket.
func (m *Manager) lookup(cookie uint64) (netNS uint64, found bool, err error) {
	return m.o.Maps.SocketProbes.Lookup(cookie)
}
