// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// LinkBatch is a set of changes to the links of the namespace. The first one, and every one after a
// resync, is Full: links that it does not list are gone.
type LinkBatch struct {
	Full    bool
	Links   []Link
	Removed []int // interface indices
	// Defaults are the interfaces that default routes of either family point to, always all of them.
	Defaults []int
}

// Monitor follows the links, addresses and default routes of one network namespace.
type Monitor struct {
	ns     *netns.NsHandle // nil: the process's own
	resync time.Duration
	log    *logrus.Entry

	links    map[int]Link
	addrs    map[int][]netip.Prefix
	defaults []int
	changed  map[int]bool // to be sent, whether present or gone
	pending  bool         // something else is to be sent
	stale    bool         // the default routes have to be read again
	full     bool         // the next batch is a full one
}

// NewMonitor makes a monitor of the namespace ns, or of the process's own where it is nil. What the
// kernel has is read whole again every resync, and whenever notifications were lost.
func NewMonitor(ns *netns.NsHandle, resync time.Duration, log *logrus.Entry) *Monitor {
	return &Monitor{ns: ns, resync: resync, log: log}
}

// Run sends what changes until the context ends. Changes are merged for as long as the receiver is
// busy, so a burst of notifications costs it one batch.
func (m *Monitor) Run(ctx context.Context, out chan<- LinkBatch) error {
	h, err := m.handle()
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()
	for ctx.Err() == nil {
		if err := m.follow(ctx, h, out); err != nil && ctx.Err() == nil {
			m.log.WithError(err).Debug("link notifications interrupted, reading all links again")
			pause(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

func (m *Monitor) handle() (*netlink.Handle, error) {
	if m.ns != nil {
		return netlink.NewHandleAt(*m.ns, unix.NETLINK_ROUTE)
	}
	return netlink.NewHandle(unix.NETLINK_ROUTE)
}

// errLost says that notifications may have been missed.
var errLost = errors.New("notification channel closed")

// follow subscribes, reads everything, and then applies notifications until some are lost. The
// subscription comes first, so that nothing falls between.
func (m *Monitor) follow(ctx context.Context, h *netlink.Handle, out chan<- LinkBatch) error {
	done := make(chan struct{})
	linkCh := make(chan netlink.LinkUpdate, 256)
	addrCh := make(chan netlink.AddrUpdate, 256)
	routeCh := make(chan netlink.RouteUpdate, 256)
	lost := make(chan error, 1)
	report := func(err error) {
		select {
		case lost <- err:
		default:
		}
	}
	const buffer = 1 << 20
	if err := netlink.LinkSubscribeWithOptions(linkCh, done, netlink.LinkSubscribeOptions{
		Namespace: m.ns, ErrorCallback: report, ReceiveBufferSize: buffer}); err != nil {
		close(done)
		return fmt.Errorf("subscribe to links: %w", err)
	}
	defer drain(linkCh)
	if err := netlink.AddrSubscribeWithOptions(addrCh, done, netlink.AddrSubscribeOptions{
		Namespace: m.ns, ErrorCallback: report, ReceiveBufferSize: buffer}); err != nil {
		close(done)
		return fmt.Errorf("subscribe to addresses: %w", err)
	}
	defer drain(addrCh)
	if err := netlink.RouteSubscribeWithOptions(routeCh, done, netlink.RouteSubscribeOptions{
		Namespace: m.ns, ErrorCallback: report, ReceiveBufferSize: buffer}); err != nil {
		close(done)
		return fmt.Errorf("subscribe to routes: %w", err)
	}
	defer drain(routeCh)
	defer close(done)
	if err := m.readAll(h); err != nil {
		return err
	}
	tick := time.NewTicker(m.resync)
	defer tick.Stop()
	for {
		// The kernel drops routes without a word when their interface's address or carrier goes. They are
		// read again once the burst that said so is over.
		if m.stale && len(linkCh) == 0 && len(addrCh) == 0 && len(routeCh) == 0 {
			if err := m.readDefaults(h); err != nil {
				return err
			}
		}
		var send chan<- LinkBatch
		var batch LinkBatch
		if m.full || m.pending || len(m.changed) > 0 {
			send, batch = out, m.batch()
		}
		select {
		case <-ctx.Done():
			return nil
		case send <- batch:
			m.full, m.pending, m.changed = false, false, map[int]bool{}
		case u, ok := <-linkCh:
			if !ok {
				return errLost
			}
			m.onLink(u)
		case u, ok := <-addrCh:
			if !ok {
				return errLost
			}
			m.onAddr(u)
		case u, ok := <-routeCh:
			if !ok {
				return errLost
			}
			m.stale = m.stale || isDefault(u.Route)
		case err := <-lost:
			return err
		case <-tick.C:
			if err := m.readAll(h); err != nil {
				return err
			}
		}
	}
}

// readAll replaces what is known by what the kernel lists.
func (m *Monitor) readAll(h *netlink.Handle) error {
	links, err := retryDump(h.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	addrs, err := retryDump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	if err := m.readDefaults(h); err != nil {
		return err
	}
	m.links, m.addrs, m.changed, m.full = map[int]Link{}, map[int][]netip.Prefix{}, map[int]bool{}, true
	for _, a := range addrs {
		if p, ok := prefixFrom(a.IPNet); ok {
			m.addrs[a.LinkIndex] = append(m.addrs[a.LinkIndex], p)
		}
	}
	for _, l := range links {
		link := linkFrom(l)
		sortPrefixes(m.addrs[link.Index])
		link.Addrs = m.addrs[link.Index]
		m.links[link.Index] = link
	}
	return nil
}

// readDefaults finds the interfaces of the default routes in the main table.
func (m *Monitor) readDefaults(h *netlink.Handle) error {
	routes, err := retryDump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	m.stale = false
	var found []int
	for _, r := range routes {
		if !isDefault(r) {
			continue
		}
		if r.LinkIndex != 0 {
			found = append(found, r.LinkIndex)
		}
		for _, hop := range r.MultiPath {
			found = append(found, hop.LinkIndex)
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, m.defaults) {
		m.defaults, m.pending = found, true
	}
	return nil
}

func isDefault(r netlink.Route) bool {
	if r.Table != 0 && r.Table != unix.RT_TABLE_MAIN {
		return false
	}
	if r.Type != 0 && r.Type != unix.RTN_UNICAST {
		return false
	}
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0 && r.Dst.IP.IsUnspecified()
}

func (m *Monitor) onLink(u netlink.LinkUpdate) {
	if u.Family != unix.AF_UNSPEC {
		return // a bridge port or the like: the link itself is neither new nor gone
	}
	index := int(u.Index)
	if u.Header.Type == unix.RTM_DELLINK {
		delete(m.links, index)
		delete(m.addrs, index)
		m.changed[index] = true
		m.stale = m.stale || slices.Contains(m.defaults, index)
		return
	}
	link := linkFrom(u.Link)
	link.Addrs = m.addrs[index]
	if old, ok := m.links[index]; !ok || !old.equal(link) {
		m.links[index] = link
		m.changed[index] = true
		m.stale = m.stale || slices.Contains(m.defaults, index)
	}
}

func (m *Monitor) onAddr(u netlink.AddrUpdate) {
	p, ok := prefixFrom(&u.LinkAddress)
	if !ok {
		return
	}
	old := m.addrs[u.LinkIndex]
	addrs := slices.DeleteFunc(slices.Clone(old), func(o netip.Prefix) bool { return o == p })
	if u.NewAddr {
		addrs = append(addrs, p)
		sortPrefixes(addrs)
	}
	if slices.Equal(addrs, old) {
		return
	}
	m.addrs[u.LinkIndex] = addrs
	m.stale = m.stale || slices.Contains(m.defaults, u.LinkIndex)
	if link, ok := m.links[u.LinkIndex]; ok {
		link.Addrs = addrs
		m.links[u.LinkIndex] = link
		m.changed[u.LinkIndex] = true
	}
}

// batch collects what is to be sent. It is taken anew for each attempt, so it is never stale.
func (m *Monitor) batch() LinkBatch {
	b := LinkBatch{Full: m.full, Defaults: m.defaults}
	if m.full {
		for _, l := range m.links {
			b.Links = append(b.Links, l)
		}
	} else {
		for index := range m.changed {
			if l, ok := m.links[index]; ok {
				b.Links = append(b.Links, l)
			} else {
				b.Removed = append(b.Removed, index)
			}
		}
	}
	slices.SortFunc(b.Links, func(x, y Link) int { return x.Index - y.Index })
	slices.Sort(b.Removed)
	return b
}

// retryDump repeats a dump that the kernel says was interrupted by a change.
func retryDump[T any](dump func() ([]T, error)) ([]T, error) {
	const attempts = 10
	for i := 0; ; i++ {
		out, err := dump()
		if err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) || i == attempts {
			return out, err
		}
	}
}

func sortPrefixes(ps []netip.Prefix) {
	slices.SortFunc(ps, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
}

// drain lets the library's goroutine end: it blocks on a channel that nobody reads.
func drain[T any](ch <-chan T) {
	go func() {
		for range ch { //nolint:revive // values are of no use any more
		}
	}()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
