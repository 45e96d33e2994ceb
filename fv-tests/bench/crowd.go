// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is a client with many connections at a time, on one thread, as load generators are built: each
// connection does the next operation as soon as the last one is done. So the throughput is what the CPU
// gives, and how long an operation takes is mostly how long the others' take.
type crowd struct {
	kind    workload
	targets []*sockaddr // each connection goes to the next one
	sources []*sockaddr
	request []byte
	conns   []crowdConn
	epoll   int
	events  []unix.EpollEvent
	turn    int // of targets and sources
	start   time.Time
	times   latencies
}

// crowdConn is one of the connections.
type crowdConn struct {
	fd        int // -1: none
	connected bool
	asked     time.Duration // when the operation began, since the slice's start
	busy      bool          // an operation is running
	in        []byte        // what has been read of the answer
}

func newCrowd(kind workload, targets []netip.AddrPort, sources []netip.Addr, width int) (*crowd, error) {
	epoll, e := rawEpollCreate()
	if e != 0 {
		return nil, fmt.Errorf("create epoll: %w", e)
	}
	c := &crowd{kind: kind, epoll: epoll, events: make([]unix.EpollEvent, width), conns: make([]crowdConn, width)}
	switch kind {
	case httpClose:
		c.request = httpGetClose
	case httpKeep:
		c.request = httpGetKeep
	default:
		c.request = make([]byte, messageSize)
	}
	for _, t := range targets {
		c.targets = append(c.targets, newSockaddr(t.Addr(), t.Port()))
	}
	for _, s := range sources {
		c.sources = append(c.sources, newSockaddr(s, 0))
	}
	for i := range c.conns {
		c.conns[i] = crowdConn{fd: -1, in: make([]byte, 0, 4096)}
	}
	return c, nil
}

func (c *crowd) open() error { return nil }

func (c *crowd) close() {
	for i := range c.conns {
		c.hangUp(&c.conns[i])
	}
	rawClose(c.epoll)
}

// stall is how long the crowd waits for an event before it gives up what it waits for.
const stall = 500 * time.Millisecond

// run keeps every connection busy for warmup and d. What began and ended in between counts, and the time
// between the first and the last end. At the end all operations that run are finished, uncounted, so
// that nothing is left to do while other modes are measured.
func (c *crowd) run(warmup, d time.Duration) sample {
	var s sample
	var first, last time.Duration // ends: before the first one that counts, and of the last one
	c.times.reset()
	c.start = time.Now()
	end := warmup + d
	for {
		now := time.Since(c.start)
		busy := 0
		for i := range c.conns {
			conn := &c.conns[i]
			if !conn.busy && now < end && !c.begin(i, now) {
				s.Failed++
			}
			if conn.busy {
				busy++
			}
		}
		if busy == 0 && now >= end {
			break
		}
		n, e := rawEpollWait(c.epoll, c.events, int(stall/time.Millisecond))
		if e != 0 && e != unix.EINTR || n == 0 {
			s.Failed += c.giveUp()
			continue
		}
		for _, ev := range c.events[:max(n, 0)] {
			conn := &c.conns[ev.Fd]
			if !conn.busy {
				continue
			}
			done, ok := c.step(conn, ev.Events)
			if !ok {
				s.Failed++
				c.hangUp(conn)
				continue
			}
			if !done {
				continue
			}
			at := time.Since(c.start)
			switch {
			case at < warmup:
				first = at
			case at < end:
				if first == 0 {
					first = warmup
				}
				last = at
				s.Ops++
				c.times.add(at - conn.asked)
			}
			c.finish(conn)
			if at < end && !c.begin(int(ev.Fd), at) {
				s.Failed++
			}
		}
	}
	s.Took = last - first
	s.P50, s.P99 = c.times.quantiles()
	return s
}

// giveUp ends all operations: nothing has happened for too long.
func (c *crowd) giveUp() (failed uint64) {
	for i := range c.conns {
		if c.conns[i].busy {
			failed++
		}
		c.hangUp(&c.conns[i])
	}
	return failed
}

// begin starts an operation, on an open connection or a new one.
func (c *crowd) begin(i int, now time.Duration) bool {
	conn := &c.conns[i]
	conn.asked, conn.in, conn.busy = now, conn.in[:0], true
	if conn.fd >= 0 {
		return c.ask(conn) || c.hangUp(conn)
	}
	target, source := c.targets[c.turn%len(c.targets)], c.sources[c.turn%len(c.sources)]
	c.turn++
	fd, e := rawSocket(target.domain(), unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	if e != 0 {
		conn.busy = false
		return false
	}
	conn.fd = fd
	// The port is chosen by connect(), so that it is unique for the pair of ends.
	if rawSetInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) != 0 || rawBind(fd, source) != 0 {
		return c.hangUp(conn)
	}
	if e := rawConnect(fd, target); e != 0 && e != unix.EINPROGRESS {
		return c.hangUp(conn)
	}
	if rawEpollAdd(c.epoll, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, i) != 0 {
		return c.hangUp(conn)
	}
	return true
}

// ask sends the request. It is far smaller than a socket's buffer.
func (c *crowd) ask(conn *crowdConn) bool {
	n, e := rawSend(conn.fd, c.request)
	return e == 0 && n == len(c.request)
}

// step goes on with an operation after an event.
func (c *crowd) step(conn *crowdConn, events uint32) (done, ok bool) {
	if !conn.connected {
		if events&unix.EPOLLOUT == 0 || events&unix.EPOLLERR != 0 || !c.ask(conn) {
			return false, false
		}
		conn.connected = true
	}
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return false, true
	}
	for {
		room := conn.in[len(conn.in):cap(conn.in)]
		if len(room) == 0 {
			return false, false // no answer is so long
		}
		n, e := rawRecv(conn.fd, room)
		switch {
		case e == unix.EAGAIN:
			return false, true
		case e != 0 || n <= 0:
			return false, false // it ended before its answer did
		}
		conn.in = conn.in[:len(conn.in)+n]
		if done, ok = c.complete(conn.in); done || !ok {
			return done, ok
		}
	}
}

func (c *crowd) complete(in []byte) (done, ok bool) {
	if c.kind == tcpShort {
		return len(in) == messageSize, len(in) <= messageSize
	}
	return httpComplete(in)
}

// finish ends an operation, and the connection unless it is kept.
func (c *crowd) finish(conn *crowdConn) {
	conn.busy = false
	if c.kind != httpKeep {
		c.hangUp(conn)
	}
}

// hangUp closes a connection. It is false, as a failure's result.
func (c *crowd) hangUp(conn *crowdConn) bool {
	if conn.fd >= 0 {
		rawClose(conn.fd)
	}
	conn.fd, conn.busy, conn.connected = -1, false, false
	return false
}

// serveCrowd answers many connections on one thread: the backends of the service with many. ready is told
// when it listens, or why it does not.
func serveCrowd(families []netip.Addr, ready chan<- error) {
	epoll, e := rawEpollCreate()
	if e != 0 {
		ready <- fmt.Errorf("create epoll: %w", e)
		return
	}
	s := crowdServer{epoll: epoll, buf: make([]byte, 4096)}
	for _, any := range families {
		for i, l := range crowdListeners {
			if err := s.listen(any, l, i == crowdHTTP); err != nil {
				ready <- fmt.Errorf("listen on %s port %d: %w", any, l.targetPort, err)
				return
			}
		}
	}
	ready <- nil
	s.run()
}

// crowdServer is the server's state: sockets by their numbers.
type crowdServer struct {
	epoll   int
	sockets []crowdSocket
	buf     []byte
}

type crowdSocket struct {
	listens bool
	http    bool
	part    []byte // of a request that came in pieces
}

func (s *crowdServer) add(fd int, what crowdSocket, events uint32) syscall.Errno {
	for len(s.sockets) <= fd {
		s.sockets = append(s.sockets, crowdSocket{})
	}
	s.sockets[fd] = what
	return rawEpollAdd(s.epoll, fd, events, fd)
}

func (s *crowdServer) listen(any netip.Addr, l listener, http bool) error {
	fd, err := listen(any, l)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if e := s.add(fd, crowdSocket{listens: true, http: http}, unix.EPOLLIN); e != 0 {
		return e
	}
	return nil
}

func (s *crowdServer) run() {
	events := make([]unix.EpollEvent, 256)
	for {
		n, _ := rawEpollWait(s.epoll, events, -1)
		for _, ev := range events[:max(n, 0)] {
			if fd := int(ev.Fd); s.sockets[fd].listens {
				s.accept(fd)
			} else if !s.serve(fd) {
				rawClose(fd)
			}
		}
	}
}

func (s *crowdServer) accept(listener int) {
	for {
		fd, e := rawAccept(listener, unix.SOCK_NONBLOCK)
		if e != 0 {
			return
		}
		what := crowdSocket{http: s.sockets[listener].http}
		if s.add(fd, what, unix.EPOLLIN|unix.EPOLLRDHUP) != 0 {
			rawClose(fd)
		}
	}
}

// serve answers what a connection has sent. False: it is over.
func (s *crowdServer) serve(fd int) bool {
	n, e := rawRecv(fd, s.buf)
	if e == unix.EAGAIN {
		return true
	}
	if e != 0 || n <= 0 {
		return false
	}
	in, c := s.buf[:n], &s.sockets[fd]
	if !c.http {
		n, e = rawSend(fd, in)
		return e == 0 && n == len(in)
	}
	if len(c.part) > 0 {
		in = append(c.part, in...)
	}
	out, last := httpAnswer(in)
	if out == nil {
		c.part = append([]byte(nil), in...)
		return len(c.part) < len(s.buf)
	}
	c.part = nil
	n, e = rawSend(fd, out)
	return e == 0 && n == len(out) && !last
}
