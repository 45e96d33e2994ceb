// SPDX-License-Identifier: Apache-2.0

// Package attach puts preambles on interfaces, and takes them off.
//
// In: an interface, a hook, the preamble's constants. Out: our program on the hook, in place of an
// older one of ours, beside everybody else's. Workloads are attached by clsact filter: it costs a
// tenth of a millisecond, needs no pin, and stays closed when pins are lost. Host interfaces are
// attached by pinned TCX link where the kernel has it, so that they are open when pins are lost, else
// by clsact. A workload's ingress hook is later promoted to TCX, without a link, where there is TCX.
// The endpoint manager calls it; it keeps no state of its own: what is attached is asked of the kernel.
// It never touches another's filter, program or qdisc.
//
// Everything happens in the network namespace of the thread that called New.
package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

var (
	// ErrInterfaceGone means that the interface vanished before or while something was attached.
	ErrInterfaceGone = errors.New("interface is gone")
	// ErrForeign means that another's filter stands exactly where ours has to.
	ErrForeign = errors.New("place is taken by another's filter")
)

// Type is the configured way to attach to host interfaces.
type Type string

// The ways. Workloads are attached by clsact whatever the type.
const (
	Auto Type = "Auto" // TCX where the kernel has it, else clsact
	TCX  Type = "TCX"
	TC   Type = "TC" // clsact
)

// Mechanism is how a program is attached.
type Mechanism string

// The mechanisms.
const (
	None   Mechanism = ""
	ByTCX  Mechanism = "tcx"
	ByTC   Mechanism = "clsact"
	ByBoth Mechanism = "tcx+clsact" // in the middle of a change from one to the other
)

// Options of New.
type Options struct {
	// Root is the node's bpffs root: links are pinned below it.
	Root string
	// Maps are the node's maps by name, for the preambles: maps.Set.Raw. It is asked for at each
	// load, because a resized map is another map.
	Maps     func() map[string]*ebpf.Map
	Type     Type
	Features *features.Set
	Log      logrus.FieldLogger
}

// Attacher attaches preambles in one network namespace.
type Attacher struct {
	links   string // directory of pins
	maps    func() map[string]*ebpf.Map
	tcx     bool
	netlink *netlink.Handle
	log     logrus.FieldLogger

	madeClsact int // index of the interface whose qdisc the last call made
}

// New opens netlink in the thread's network namespace. The error wraps features.ErrNotSupported if
// TCX is asked for and missing. Close it when done.
func New(o Options) (*Attacher, error) {
	a := &Attacher{links: maps.LinksDir(o.Root), maps: o.Maps, log: o.Log}
	if a.log == nil {
		a.log = logrus.StandardLogger()
	}
	a.log = a.log.WithField("component", "attach")
	switch o.Type {
	case Auto, "":
		a.tcx = o.Features.Has(features.TCX)
	case TCX:
		if err := o.Features.Require(features.TCX); err != nil {
			return nil, fmt.Errorf("attach type TCX: %w", err)
		}
		a.tcx = true
	case TC:
	default:
		return nil, fmt.Errorf("attach type %q is not one of Auto, TCX, TC", o.Type)
	}
	if err := os.MkdirAll(a.links, 0o700); err != nil {
		return nil, fmt.Errorf("directory of link pins: %w", err)
	}
	var err error
	if a.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return a, nil
}

// Close closes netlink. What is attached stays.
func (a *Attacher) Close() { a.netlink.Close() }

// Interface is where to attach.
type Interface struct {
	Ifindex int
	Name    string
	Class   layout.Class
}

func (i Interface) String() string { return fmt.Sprintf("%s(%d)", i.Name, i.Ifindex) }

// Mechanism is how interfaces of a class are attached on this node.
func (a *Attacher) Mechanism(class layout.Class) Mechanism {
	if a.tcx && class != layout.ClassWEP {
		return ByTCX
	}
	return ByTC
}

// Attach loads a preamble with its constants and puts it on one hook of the interface, replacing
// ours if there is one. On an error what was attached stays. The error wraps ErrInterfaceGone if
// there is no such interface any more, and is or wraps a *load.Error if the program was refused.
func (a *Attacher) Attach(i Interface, hook layout.Hook, cfg layout.PreambleCfg) error {
	cfg.Hook = uint32(hook)
	program, err := load.Preamble(cfg, a.maps())
	if err != nil {
		return fmt.Errorf("attach to %s of %v: %w", hook, i, err)
	}
	defer program.Close()
	return a.AttachProgram(i, hook, program)
}

// AttachProgram is Attach for a program that is already loaded.
func (a *Attacher) AttachProgram(i Interface, hook layout.Hook, program *ebpf.Program) error {
	var err error
	if a.Mechanism(i.Class) == ByTCX {
		if err = a.attachTCX(i, hook, program); err == nil {
			err = a.detachFilter(i, hook)
		}
	} else {
		err = a.attachWorkload(i, hook, program)
	}
	if err != nil {
		return fmt.Errorf("attach to %s of %v: %w", hook, i, gone(err))
	}
	return nil
}

// attachWorkload replaces a promoted hook's program where it stands; otherwise clsact it is.
func (a *Attacher) attachWorkload(i Interface, hook layout.Hook, program *ebpf.Program) error {
	_, promoted, err := a.rawProgram(i, hook)
	if err != nil {
		return err
	}
	if promoted && a.CanPromote(i.Class) {
		if err := a.attachRaw(i, hook, program); err != nil {
			return err
		}
		return a.detachFilter(i, hook)
	}
	if err := a.attachFilter(i, hook, program); err != nil {
		return err
	}
	return errors.Join(a.detachRaw(i, hook), a.detachTCX(i, hook))
}

// Detach takes our programs off both hooks of the interface. That there are none, or that the
// interface is gone, is no error.
func (a *Attacher) Detach(i Interface) error {
	var errs []error
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		for _, detach := range []func(Interface, layout.Hook) error{a.detachTCX, a.detachRaw, a.detachFilter} {
			if err := gone(detach(i, hook)); err != nil && !errors.Is(err, ErrInterfaceGone) {
				errs = append(errs, fmt.Errorf("detach from %s of %v: %w", hook, i, err))
			}
		}
	}
	if err := gone(a.removeQdisc(i)); err != nil && !errors.Is(err, ErrInterfaceGone) {
		errs = append(errs, fmt.Errorf("remove clsact of %v: %w", i, err))
	}
	return errors.Join(errs...)
}

// State is what is attached to one hook.
type State struct {
	Mechanism Mechanism
	Program   ebpf.ProgramID
}

// Query tells what of ours is on the two hooks of the interface, by hook. The error wraps
// ErrInterfaceGone if there is no such interface.
func (a *Attacher) Query(i Interface) ([2]State, error) {
	var states [2]State
	// The kernel lists no filters, without an error, for an interface that is not there.
	if _, err := a.netlink.LinkByIndex(i.Ifindex); err != nil {
		return states, fmt.Errorf("query %v: %w", i, gone(err))
	}
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		filter, err := a.ourFilter(i, hook)
		if err != nil {
			return states, fmt.Errorf("query %s of %v: %w", hook, i, gone(err))
		}
		if filter != nil {
			states[hook] = State{ByTC, ebpf.ProgramID(filter.Id)}
		}
		program, found, err := a.queryTCX(i, hook)
		if err != nil {
			return states, fmt.Errorf("query %s of %v: %w", hook, i, gone(err))
		}
		if !found {
			if program, found, err = a.rawProgram(i, hook); err != nil {
				return states, fmt.Errorf("query %s of %v: %w", hook, i, gone(err))
			}
		}
		if found && filter != nil {
			states[hook] = State{ByBoth, program}
		} else if found {
			states[hook] = State{ByTCX, program}
		}
	}
	return states, nil
}

// gone makes ErrInterfaceGone of the kernel's ways to say that there is no such interface.
func gone(err error) error {
	var notFound netlink.LinkNotFoundError
	if errors.Is(err, unix.ENODEV) || errors.As(err, &notFound) {
		return fmt.Errorf("%w: %w", ErrInterfaceGone, err)
	}
	return err
}
