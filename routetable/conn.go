// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// conn is a netlink socket for requests that the netlink library does not make: dumps that the kernel filters, and
// neighbours with a protocol.
type conn struct {
	socket *nl.NetlinkSocket
	handle *nl.SocketHandle
}

// requestTimeout bounds the wait for an answer that does not come.
var requestTimeout = unix.Timeval{Sec: 10}

func newConn(ns netns.NsHandle) (*conn, error) {
	s, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.SetSendTimeout(&requestTimeout), s.SetReceiveTimeout(&requestTimeout)); err != nil {
		s.Close()
		return nil, err
	}
	return &conn{socket: s, handle: &nl.SocketHandle{Socket: s}}, nil
}

func subscribeAt(ns netns.NsHandle, groups []uint) (*nl.NetlinkSocket, error) {
	return nl.SubscribeAt(ns, netns.None(), unix.NETLINK_ROUTE, groups...)
}

func (c *conn) close() { c.socket.Close() }

func (c *conn) request(typ, flags int, data ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	req := &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: uint16(typ), Flags: uint16(unix.NLM_F_REQUEST | flags)},
		Sockets:  map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: c.handle},
	}
	for _, d := range data {
		req.AddData(d)
	}
	return req
}

// dumpTries is how often a dump is repeated that was interrupted by a change and so may have missed something.
const dumpTries = 5

// dump collects the messages of a complete dump.
func (c *conn) dump(typ int, result uint16, data ...nl.NetlinkRequestData) ([][]byte, error) {
	for try := 1; ; try++ {
		out, err := c.request(typ, unix.NLM_F_DUMP, data...).Execute(unix.NETLINK_ROUTE, result)
		if err == nil || try == dumpTries || !errors.Is(err, nl.ErrDumpInterrupted) {
			return out, err
		}
	}
}

// dumpRoutes visits the main table's routes of one family. With a protocol the kernel leaves others out, if it can
// (strict checking, Linux 4.20); the caller must check nevertheless.
func (c *conn) dumpRoutes(family, protocol uint8, visit func(routeMsg)) error {
	_ = unix.SetsockoptInt(c.socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	msg := &nl.RtMsg{}
	msg.Family, msg.Protocol, msg.Table = family, protocol, unix.RT_TABLE_MAIN
	raw, err := c.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, msg)
	_ = unix.SetsockoptInt(c.socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // a namespace that never had a route of this family has no table
	}
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, b := range raw {
		if m, ok := parseRoute(b); ok {
			visit(m)
		}
	}
	return nil
}

func (c *conn) dumpLinks(visit func(linkMsg)) error {
	raw, err := c.dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil {
		return err
	}
	for _, b := range raw {
		if m, ok := parseLink(b); ok {
			visit(m)
		}
	}
	return nil
}

func (c *conn) dumpNeighbours(visit func(neighbourMsg)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		raw, err := c.dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, ndMsg{family: family})
		if err != nil {
			return fmt.Errorf("list neighbours: %w", err)
		}
		for _, b := range raw {
			if m, ok := parseNeighbour(b); ok {
				visit(m)
			}
		}
	}
	return nil
}

// neighbour reads one entry (Linux 5.1).
func (c *conn) neighbour(ifindex int, addr netip.Addr) (neighbourMsg, bool, error) {
	raw, err := c.request(unix.RTM_GETNEIGH, 0, neighbourRequest(ifindex, addr, 0)...).
		Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if errors.Is(err, unix.ENOENT) || err == nil && len(raw) == 0 {
		return neighbourMsg{}, false, nil
	}
	if err != nil {
		return neighbourMsg{}, false, err
	}
	m, ok := parseNeighbour(raw[0])
	return m, ok, nil
}

func (c *conn) setNeighbour(ifindex int, addr netip.Addr, mac MAC, protocol uint8) error {
	data := append(neighbourRequest(ifindex, addr, unix.NUD_PERMANENT),
		nl.NewRtAttr(unix.NDA_LLADDR, mac[:]), nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{protocol}))
	_, err := c.request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK, data...).
		Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func (c *conn) deleteNeighbour(ifindex int, addr netip.Addr) error {
	_, err := c.request(unix.RTM_DELNEIGH, unix.NLM_F_ACK, neighbourRequest(ifindex, addr, 0)...).
		Execute(unix.NETLINK_ROUTE, 0)
	return err
}
