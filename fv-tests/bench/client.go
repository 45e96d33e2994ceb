// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	udpEstablished workload = "udp_established" // request and reply by one socket, which is connected
	udpUnconnected workload = "udp_unconnected" // the same by a socket that names its destination each time
	udpNewFlow     workload = "udp_new_flow"    // request and reply, each from a new source port
	httpClose      workload = "http_close"      // an HTTP request on a connection of its own
	httpKeep       workload = "http_keep"       // an HTTP request on an open connection
)

// listener is the server socket that the workload talks to.
func (w workload) listener() listener {
	switch w {
	case tcpShort:
		return listeners[listenShort]
	case tcpRR:
		return listeners[listenRR]
	case httpClose, httpKeep:
		return crowdListeners[crowdHTTP]
	}
	return listeners[listenUDP]
}

// opens says whether each operation opens a flow of its own.
func (w workload) opens() bool {
	return w == tcpShort || w == udpNewFlow || w == httpClose
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
	from    sockaddr // of the reply
	walk    *walk
	times   latencies
	stop    chan struct{} // ends the watchdog

	ops     atomic.Uint64
	current atomic.Int64 // socket of the running operation, or -1
}

// walk is how far the clients of one place have used its source addresses and ports: a client that comes
// after another one goes on where that has stopped, or its flows would not be new.
type walk struct {
	next int // of the sources
	port uint16
}

func newClient(kind workload, target netip.AddrPort, sources []netip.Addr, w *walk) *client {
	c := &client{kind: kind, target: newSockaddr(target.Addr(), target.Port()), fd: -1, walk: w, stop: make(chan struct{})}
	for _, s := range sources {
		c.sources = append(c.sources, newSockaddr(s, 0))
	}
	c.current.Store(-1)
	go c.watch(250 * time.Millisecond)
	return c
}

// open makes the lasting socket of the workloads that keep one.
func (c *client) open() error {
	switch c.kind {
	case tcpRR:
		return c.dial(unix.SOCK_STREAM)
	case udpEstablished, udpUnconnected:
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
	if c.kind != udpUnconnected {
		if e := rawConnect(fd, c.target); e != 0 {
			rawClose(fd)
			return fmt.Errorf("connect: %w", e)
		}
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

func (c *client) closeSocket() {
	if c.fd >= 0 {
		rawClose(c.fd)
		c.fd = -1
	}
}

func (c *client) close() {
	close(c.stop)
	c.closeSocket()
}

// run repeats the workload's operation, first for warmup, which does not count, then for d.
func (c *client) run(warmup, d time.Duration) sample {
	if warmup > 0 {
		c.repeat(warmup)
	}
	s := c.repeat(d)
	c.current.Store(-1)
	return s
}

func (c *client) repeat(d time.Duration) sample {
	var s sample
	c.times.reset()
	start := time.Now()
	for {
		var ok bool
		switch c.kind {
		case tcpShort:
			ok = c.shortConnection()
		case udpNewFlow:
			ok = c.newFlow()
		case udpUnconnected:
			ok = c.exchangeUnconnected()
		default:
			ok = c.exchange(c.fd)
		}
		c.ops.Add(1)
		before := s.Took
		s.Took = time.Since(start)
		if ok {
			s.Ops++
			c.times.add(s.Took - before)
		} else {
			s.Failed++
			c.reopen()
		}
		if s.Took >= d {
			s.P50, s.P99 = c.times.quantiles()
			return s
		}
	}
}

// reopen replaces the lasting socket after an error on it: the watchdog may have shut it down.
func (c *client) reopen() {
	if c.kind.opens() {
		return
	}
	c.closeSocket()
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

// exchangeUnconnected names the destination of the request, and wants the reply from there.
func (c *client) exchangeUnconnected() bool {
	c.current.Store(int64(c.fd))
	n, e := rawSendTo(c.fd, c.request[:], c.target)
	if e != 0 || n != messageSize {
		return false
	}
	n, e = rawRecvFrom(c.fd, c.reply[:], &c.from)
	return e == 0 && n == messageSize && bytes.Equal(c.from.end(), c.target.end())
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
	source.setPort(c.walk.port)
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
	s := c.sources[c.walk.next]
	if c.walk.next++; c.walk.next == len(c.sources) {
		c.walk.next = 0
		if c.walk.port++; c.walk.port > lastPort {
			c.walk.port = firstPort
		}
	}
	return s
}

// watch ends operations that make no progress within the given time. It runs on a thread of its own
// until the client is closed.
func (c *client) watch(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, stalled := c.ops.Load(), 0
	for {
		select {
		case <-c.stop:
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
