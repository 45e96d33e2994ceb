// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// nsID tells network namespaces apart as files do.
type nsID struct{ dev, inode uint64 }

// nsFile is the network namespace that a path meant when it was last opened.
type nsFile struct {
	id     nsID
	cookie uint64
}

// What cookieOf's error may wrap.
var (
	errHost    = errors.New("it is the host's, which can not opt out")
	errUnasked = errors.New("only the programs can tell its cookie, and have not been asked")
)

func idOf(path string) (nsID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nsID{}, err
	}
	return nsID{st.Dev, st.Ino}, nil
}

// idOfHandle is zero, which no file has, if ns is not open.
func idOfHandle(ns netns.NsHandle) nsID {
	var st unix.Stat_t
	if !ns.IsOpen() || unix.Fstat(int(ns), &st) != nil {
		return nsID{}
	}
	return nsID{st.Dev, st.Ino}
}

// cookieOf finds the cookie of the network namespace at path. With an error that wraps errUnasked there is its id alone.
func (m *Manager) cookieOf(path string) (nsFile, error) {
	id, err := idOf(path)
	if err == nil && id == idOfHandle(m.o.Namespace) {
		err = errHost
	}
	if err != nil {
		return nsFile{}, fmt.Errorf("network namespace %s: %w", path, err)
	}
	if f, ok := m.opt.cookies[path]; ok && f.id == id {
		return f, nil
	}
	cookie, err := m.askKernel(path)
	if err != nil {
		return nsFile{id: id}, fmt.Errorf("network namespace %s: %w", path, err)
	}
	return nsFile{id, cookie}, nil
}

// askKernel asks no kernel twice that has once said that it tells programs alone.
func (m *Manager) askKernel(path string) (uint64, error) {
	if m.opt.programs {
		return 0, errUnasked
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	cookie, err := m.o.netNSCookie(ns)
	if errors.Is(err, unix.ENOPROTOOPT) {
		m.opt.programs = true
		return 0, errUnasked
	}
	return cookie, err
}

// netNSCookie asks the kernel for the cookie of a network namespace. The error wraps ENOPROTOOPT before
// Linux 5.14.
func netNSCookie(ns netns.NsHandle) (cookie uint64, err error) {
	err = inNamespace(ns, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		defer unix.Close(fd)
		if cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
			return fmt.Errorf("cookie of network namespace: %w", err)
		}
		return nil
	})
	return cookie, err
}

// answer is what the programs have told of a network namespace.
type answer struct {
	file nsFile
	err  error
}

// ask starts the processes by which the programs tell what the kernel does not, where they are in place.
func (m *Manager) ask(ctx context.Context, now time.Time) {
	o := &m.opt
	if len(o.unasked) == 0 {
		o.unanswered = nil
		o.again.Succeeded()
	}
	if !m.askable() || !o.again.Due(now) {
		return
	}
	m.busy = true
	p, unasked, families := m.prober(), o.unasked, m.connecting()
	go func() { m.results <- Result{answers: p.cookies(ctx, unasked, families)} }()
}

func (m *Manager) askable() bool { return len(m.opt.unasked) > 0 && !m.busy && len(m.connecting()) > 0 }

// connecting are the families whose sockets are seen by programs of this run when they connect.
func (m *Manager) connecting() []layout.Family {
	return slices.DeleteFunc(m.families(), func(f layout.Family) bool {
		if f == layout.FamilyV4 {
			return !m.attached["connect4"]
		}
		return !m.attached["connect6"]
	})
}

// answered takes in what the programs have told.
func (m *Manager) answered(answers map[string]answer) {
	o := &m.opt
	o.change(true)
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		a := answers[path]
		if a.err != nil {
			errs = append(errs, fmt.Errorf("network namespace %s: %w", path, a.err))
			continue
		}
		o.cookies[path] = a.file
	}
	err := errors.Join(errs...)
	if err == nil {
		o.unanswered = nil
		o.again.Succeeded()
		return
	}
	delay := o.again.Failed(m.o.Now())
	if o.unanswered == nil || o.unanswered.Error() != err.Error() {
		m.log.WithError(err).WithField("retry", delay.Round(time.Millisecond).String()).
			Warn("a pod has opted out of balancing at connect time, and its network namespace could not be told from others")
	}
	o.unanswered = err
}

// cookies asks the programs for those of network namespaces by path. What is not there any more, or is another one than
// was asked for, has no answer.
func (p *prober) cookies(ctx context.Context, unasked map[string]nsID, families []layout.Family) map[string]answer {
	answers := map[string]answer{}
	for _, path := range slices.Sorted(maps.Keys(unasked)) {
		cookie, err := p.cookie(ctx, path, families)
		switch id, gone := idOf(path); {
		case errors.Is(gone, os.ErrNotExist), gone == nil && id != unasked[path]:
		case err != nil:
			answers[path] = answer{err: err}
		case gone != nil:
			answers[path] = answer{err: gone}
		default:
			answers[path] = answer{file: nsFile{id, cookie}}
		}
	}
	return answers
}

// cookie asks the programs for the cookie of the network namespace at a path. Whether anything can be reached from
// there is of no matter.
func (p *prober) cookie(ctx context.Context, netnsPath string, families []layout.Family) (uint64, error) {
	sockets, err := p.run(ctx, netnsPath)
	if err != nil {
		return 0, err
	}
	for _, f := range families {
		if s := sockets[f.String()]; s.netNS != 0 {
			return s.netNS, nil
		}
	}
	return 0, fmt.Errorf("the programs did not see the socket of a process in %s", p.root)
}
