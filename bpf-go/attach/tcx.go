// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func attachType(hook layout.Hook) ebpf.AttachType {
	if hook == layout.HookEgress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// pinName is the name of a link's pin. bpffs refuses dots, which interface names may have; the
// ifindex alone would do, the name is for people.
func pinName(i Interface, hook layout.Hook) string {
	return fmt.Sprintf("%d_%s_%s", i.Ifindex, strings.ReplaceAll(i.Name, ".", "-"), hook)
}

// pins are the pins of an interface's hook: one, also after the interface was renamed.
func (a *Attacher) pins(ifindex int, hook layout.Hook) ([]string, error) {
	entries, err := os.ReadDir(a.links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if index, h, ok := parsePin(e.Name()); ok && index == ifindex && h == hook {
			paths = append(paths, filepath.Join(a.links, e.Name()))
		}
	}
	return paths, nil
}

func parsePin(name string) (ifindex int, hook layout.Hook, ok bool) {
	first, _, found := strings.Cut(name, "_")
	index, err := strconv.Atoi(first)
	if !found || err != nil {
		return 0, 0, false
	}
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		if strings.HasSuffix(name, "_"+hook.String()) {
			return index, hook, true
		}
	}
	return 0, 0, false
}

// attachTCX updates our link in place, or makes and pins one.
func (a *Attacher) attachTCX(i Interface, hook layout.Hook, program *ebpf.Program) error {
	current, err := a.liveLink(i, hook)
	if err != nil {
		return err
	}
	if current != nil {
		defer current.Close()
		if err := current.Update(program); err != nil {
			return fmt.Errorf("update tcx link: %w", err)
		}
		return nil
	}
	created, err := link.AttachTCX(link.TCXOptions{Interface: i.Ifindex, Program: program, Attach: attachType(hook)})
	if err != nil {
		return fmt.Errorf("tcx link: %w", err)
	}
	defer created.Close() // without its pin the link ends here, and the hook is as it was
	if err := created.Pin(filepath.Join(a.links, pinName(i, hook))); err != nil {
		return fmt.Errorf("pin tcx link: %w", err)
	}
	return nil
}

// liveLink opens the hook's pinned link if it is attached to this very interface, else removes the
// pin: ifindexes are used again.
func (a *Attacher) liveLink(i Interface, hook layout.Hook) (link.Link, error) {
	paths, err := a.pins(i.Ifindex, hook)
	if err != nil {
		return nil, err
	}
	var live link.Link
	for _, path := range paths {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return nil, err
		}
		on, err := attachedTo(l, i, hook)
		switch {
		case err != nil:
			l.Close()
			return nil, err
		case on && live == nil:
			live = l
			continue
		}
		l.Close()
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return live, nil
}

// attachedTo asks the interface, not the link: the number in the link may be another namespace's.
func attachedTo(l link.Link, i Interface, hook layout.Hook) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, err
	}
	if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != i.Ifindex {
		return false, nil
	}
	attached, err := link.QueryPrograms(link.QueryOptions{Target: i.Ifindex, Attach: attachType(hook)})
	if err != nil {
		return false, err
	}
	for _, p := range attached.Programs {
		if id, ok := p.LinkID(); ok && id == info.ID {
			return true, nil
		}
	}
	return false, nil
}

func (a *Attacher) queryTCX(i Interface, hook layout.Hook) (ebpf.ProgramID, bool, error) {
	paths, err := a.pins(i.Ifindex, hook)
	if err != nil {
		return 0, false, err
	}
	for _, path := range paths {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return 0, false, err
		}
		on, err := attachedTo(l, i, hook)
		var info *link.Info
		if err == nil && on {
			info, err = l.Info()
		}
		l.Close()
		if err != nil {
			return 0, false, err
		}
		if info != nil {
			return info.Program, true, nil
		}
	}
	return 0, false, nil
}

// detachTCX removes our link; that there is none is no error.
func (a *Attacher) detachTCX(i Interface, hook layout.Hook) error {
	paths, err := a.pins(i.Ifindex, hook)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := dropLink(path); err != nil {
			return fmt.Errorf("remove tcx link: %w", err)
		}
	}
	return nil
}

// dropLink detaches a pinned link and removes the pin. To remove the pin alone would detach it
// too, but at some later time.
func dropLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CleanStale removes the pins of links whose interface is gone. The agent calls it at start and at
// each resync; it is cheap.
func (a *Attacher) CleanStale() error {
	entries, err := os.ReadDir(a.links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, _, ok := parsePin(e.Name()); !ok {
			continue
		}
		path := filepath.Join(a.links, e.Name())
		stale, err := isStale(path)
		if err == nil && stale {
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			a.log.WithFields(logrus.Fields{"pin": e.Name()}).Debug("pin of a vanished interface removed")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("link pin %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// isStale tells a link whose interface is gone: the kernel keeps the link and forgets the device.
func isStale(path string) (bool, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return false, err
	}
	tcx := info.TCX()
	return tcx != nil && tcx.Ifindex == 0, nil
}
