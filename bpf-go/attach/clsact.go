// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

const (
	// filterName marks our filters; the kernel keeps it.
	filterName = "felix-lite"
	// filterHandle and filterPriority are fixed: without both of them a replace would add a filter
	// beside the old one. Priority 1 runs before whoever lets the kernel choose.
	filterHandle   = 1
	filterPriority = 1
)

// parent is the class below clsact that a hook's filters hang on.
func parent(hook layout.Hook) uint32 {
	if hook == layout.HookEgress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// attachFilter puts the program into our filter, in one step if there is one.
func (a *Attacher) attachFilter(i Interface, hook layout.Hook, program *ebpf.Program) error {
	if err := a.ensureQdisc(i, hook); err != nil {
		return err
	}
	if _, err := a.ourFilter(i, hook); err != nil {
		return err
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: i.Ifindex, Parent: parent(hook), Handle: filterHandle,
			Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: filterName, DirectAction: true,
	}
	if err := a.netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("clsact filter: %w", err)
	}
	return nil
}

// ensureQdisc makes sure that filters have something to hang on. An `ingress` qdisc, which keeps
// clsact out, serves the ingress hook as well.
func (a *Attacher) ensureQdisc(i Interface, hook layout.Hook) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: i.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	err := a.netlink.QdiscAdd(qdisc)
	made := a.madeClsact
	a.madeClsact = 0
	switch {
	case err == nil:
		a.madeClsact = i.Ifindex
		return nil
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("clsact qdisc: %w", err)
	case made == i.Ifindex || hook == layout.HookIngress:
		return nil // either kind serves, or it is our own, made for the other hook a moment ago
	}
	// The kernel lists every interface's: with hundreds of pods that takes longer than to attach.
	kind, err := a.qdiscKind(i)
	if err != nil {
		return err
	}
	if kind == "ingress" {
		return errors.New("the interface has an `ingress` qdisc, which leaves no egress hook: " +
			"replace it by clsact, or use attach type TCX")
	}
	return nil
}

// qdiscKind is "clsact", "ingress" or "" if the interface has neither.
func (a *Attacher) qdiscKind(i Interface) (string, error) {
	qdiscs, err := a.netlink.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Ifindex}})
	if err != nil {
		return "", fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		if q.Type() == "clsact" || q.Type() == "ingress" {
			return q.Type(), nil
		}
	}
	return "", nil
}

// ourFilter is our filter on the hook, nil if there is none. The error wraps ErrForeign if the place
// is another's.
func (a *Attacher) ourFilter(i Interface, hook layout.Hook) (*netlink.BpfFilter, error) {
	filters, err := a.filters(i, hook)
	if err != nil {
		return nil, err
	}
	for _, f := range filters {
		at := f.Attrs()
		if at.Priority != filterPriority || at.Handle != filterHandle {
			continue
		}
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName {
			return b, nil
		}
		return nil, fmt.Errorf("%s filter at priority %d, handle %d: %w", f.Type(), filterPriority, filterHandle, ErrForeign)
	}
	return nil, nil
}

func (a *Attacher) filters(i Interface, hook layout.Hook) ([]netlink.Filter, error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: i.Ifindex}}
	filters, err := a.netlink.FilterList(link, parent(hook))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // no qdisc, so no filters
	}
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return filters, nil
}

// detachFilter removes our filter; that there is none is no error.
func (a *Attacher) detachFilter(i Interface, hook layout.Hook) error {
	filter, err := a.ourFilter(i, hook)
	if errors.Is(err, ErrForeign) || err == nil && filter == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := a.netlink.FilterDel(filter); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete clsact filter: %w", err)
	}
	return nil
}

// removeQdisc deletes a clsact qdisc that has no filters left. With anybody's filter on it it stays.
func (a *Attacher) removeQdisc(i Interface) error {
	kind, err := a.qdiscKind(i)
	if err != nil || kind != "clsact" {
		return err
	}
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		filters, err := a.filters(i, hook)
		if err != nil || len(filters) > 0 {
			return err
		}
	}
	err = a.netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: i.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
