// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workload is what a client does with one target, again and again.
type workload string

const (
	tcpShort       workload = "tcp_short"       // connect, one request and reply, close
	tcpRR          workload = "tcp_rr"          // request and reply on an open connection
	udpEstablished workload = "udp_established" // request and reply from one socket
	udpNewFlow     workload = "udp_new_flow"    // request and reply, each from a new source port
)

// workloads in the order of the tables.
var workloads = []workload{tcpShort, udpEstablished, udpNewFlow, tcpRR}

func (w workload) title() string {
	return map[workload]string{
		tcpShort: "short TCP connections", tcpRR: "TCP_RR, open connection",
		udpEstablished: "UDP, established", udpNewFlow: "UDP, new flow",
	}[w]
}

// listener is the server socket that the workload talks to.
func (w workload) listener() listener {
	switch w {
	case tcpShort:
		return listeners[listenShort]
	case tcpRR:
		return listeners[listenRR]
	}
	return listeners[listenUDP]
}

// Source ports of explicit binds: above the ephemeral range, which the slices of TCP use.
const (
	firstPort = 10000
	lastPort  = 64999
)

// client runs a workload's operations on raw sockets. A watchdog shuts the socket down when an
// operation hangs, so that a lost packet is a counted error and not a dead benchmark.
type client struct {
	kind    workload
	target  *sockaddr
	sources []*sockaddr
	fd      int // the open socket, or -1
	request [messageSize]byte
	reply   [messageSize]byte
	next    int // of the sources
	port    uint16

	ops     atomic.Uint64
	current atomic.Int64 // socket of the running operation, or -1
}

func newClient(kind workload, target netip.AddrPort, sources []netip.Addr) *client {
	c := &client{kind: kind, target: newSockaddr(target.Addr(), target.Port()), fd: -1, port: firstPort}
	for _, s := range sources {
		c.sources = append(c.sources, newSockaddr(s, 0))
	}
	c.current.Store(-1)
	return c
}

// open makes the lasting socket of the workloads that keep one.
func (c *client) open() error {
	switch c.kind {
	case tcpRR:
		return c.dial(unix.SOCK_STREAM)
	case udpEstablished:
		return c.dial(unix.SOCK_DGRAM)
	}
	return nil
}

func (c *client) dial(typ int) error {
	fd, e := rawSocket(c.target.domain(), typ)
	if e != 0 {
		return e
	}
	c.current.Store(int64(fd))
	defer c.current.Store(-1)
	if e := rawBind(fd, c.sources[0]); e != 0 {
		rawClose(fd)
		return fmt.Errorf("bind: %w", e)
	}
	if e := rawConnect(fd, c.target); e != 0 {
		rawClose(fd)
		return fmt.Errorf("connect: %w", e)
	}
	if typ == unix.SOCK_STREAM {
		if e := rawSetInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); e != 0 {
			rawClose(fd)
			return e
		}
	}
	c.fd = fd
	return nil
}

func (c *client) close() {
	if c.fd >= 0 {
		rawClose(c.fd)
		c.fd = -1
	}
}

// run repeats the workload's operation for d and returns how many succeeded and failed, and the
// time that they took.
func (c *client) run(d time.Duration) (ops, failed uint64, took time.Duration) {
	start := time.Now()
	for {
		var ok bool
		switch c.kind {
		case tcpShort:
			ok = c.shortConnection()
		case udpNewFlow:
			ok = c.newFlow()
		default:
			ok = c.exchange(c.fd)
		}
		c.ops.Add(1)
		if ok {
			ops++
		} else {
			failed++
			c.reopen()
		}
		if took = time.Since(start); took >= d {
			return ops, failed, took
		}
	}
}

// reopen replaces the lasting socket after an error on it: the watchdog may have shut it down.
func (c *client) reopen() {
	if c.kind == tcpShort || c.kind == udpNewFlow {
		return
	}
	c.close()
	_ = c.open() // if this fails so does the next operation, and it is tried again
}

// exchange sends one request on a connected socket and reads the reply.
func (c *client) exchange(fd int) bool {
	c.current.Store(int64(fd))
	n, e := rawSend(fd, c.request[:])
	if e != 0 || n != messageSize {
		return false
	}
	n, e = rawRecv(fd, c.reply[:])
	return e == 0 && n == messageSize
}

func (c *client) shortConnection() bool {
	fd, e := rawSocket(c.target.domain(), unix.SOCK_STREAM)
	if e != 0 {
		return false
	}
	c.current.Store(int64(fd))
	ok := c.connectFrom(fd, c.nextSource()) && c.exchange(fd)
	c.current.Store(-1)
	rawClose(fd)
	return ok
}

// connectFrom connects from a given address; the port is chosen by connect(), so that it is unique
// for the pair of ends and not for the address alone.
func (c *client) connectFrom(fd int, source *sockaddr) bool {
	if rawSetInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) != 0 {
		return false
	}
	return rawBind(fd, source) == 0 && rawConnect(fd, c.target) == 0
}

// newFlow walks through all source ports of all source addresses before one is used again.
func (c *client) newFlow() bool {
	fd, e := rawSocket(c.target.domain(), unix.SOCK_DGRAM)
	if e != 0 {
		return false
	}
	source := c.nextSource()
	source.setPort(c.port)
	c.current.Store(int64(fd))
	ok := rawBind(fd, source) == 0 && c.askOnce(fd)
	c.current.Store(-1)
	rawClose(fd)
	return ok
}

// askOnce sends one request from an unconnected socket and reads the reply.
func (c *client) askOnce(fd int) bool {
	n, e := rawSendTo(fd, c.request[:], c.target)
	if e != 0 || n != messageSize {
		return false
	}
	n, e = rawRecv(fd, c.reply[:])
	return e == 0 && n == messageSize
}

func (c *client) nextSource() *sockaddr {
	s := c.sources[c.next]
	if c.next++; c.next == len(c.sources) {
		c.next = 0
		if c.port++; c.port > lastPort {
			c.port = firstPort
		}
	}
	return s
}

// idle tells the watchdog that no operation is running. It may be called on nil.
func (c *client) idle() {
	if c != nil {
		c.current.Store(-1)
	}
}

// watch ends operations that make no progress within the given time. It runs on a thread of its own
// until stop is closed.
func (c *client) watch(every time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, stalled := c.ops.Load(), 0
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now, fd := c.ops.Load(), c.current.Load()
		if now != last || fd < 0 {
			stalled = 0
		} else if stalled++; stalled > 2 { // else the machine may only have been busy
			// An error is of no interest: the socket may just have been closed.
			_, _, _ = syscall.Syscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_RDWR, 0)
		}
		last = now
	}
}
