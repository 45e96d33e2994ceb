// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errShortRead marks a connection that ended in the middle of an answer.
var errShortRead = errors.New("short read")

// Kind sorts an error into what a user would call it: refused, unreachable, timeout, reset, short read,
// wrong checksum, too big, address in use, or other.
func Kind(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.EMSGSIZE):
		return "too big"
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "address in use"
	case errors.Is(err, errChecksum):
		return "wrong checksum"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errShortRead):
		return "short read"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	}
	return "other"
}

// attempts runs count attempts, some at a time, into one result.
func attempts(ctx context.Context, count, concurrency int, one func() (observation, error)) Result {
	var (
		t  tally
		wg sync.WaitGroup
	)
	tickets := make(chan struct{}, max(count, 1))
	for range max(count, 1) {
		tickets <- struct{}{}
	}
	close(tickets)
	for range max(concurrency, 1) {
		wg.Go(func() {
			for range tickets {
				if ctx.Err() != nil {
					return
				}
				start := time.Now()
				o, err := one()
				t.add(o, err, time.Since(start))
			}
		})
	}
	wg.Wait()
	return t.result()
}

func runTCP(ctx context.Context, a TCPArgs) Result {
	if a.Timeout == 0 {
		a.Timeout = 5 * time.Second
	}
	return attempts(ctx, a.Count, a.Concurrency, func() (observation, error) {
		s, err := dialTCP(ctx, a, a.Timeout)
		if err != nil {
			return observation{}, err
		}
		defer s.conn.Close()
		if a.Bytes > 0 {
			if err := s.exchange(a.Bytes, a.Timeout); err != nil {
				return s.seen, err
			}
		}
		if err := s.finish(a.Timeout); err != nil {
			return s.seen, err
		}
		s.seen.bytes = int64(a.Bytes)
		return s.seen, nil
	})
}

// finish closes the connection from this side and waits for the other side's end: when it returns no
// packet of the connection is still to come.
func (s *session) finish(timeout time.Duration) error {
	_ = s.conn.SetDeadline(time.Now().Add(timeout))
	half, ok := s.conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if _, err := s.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the end: %w", errors.Join(errShortRead, err))
	}
	return nil
}

// session is an open TCP connection to an echo server that has said hello.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	seen observation
}

// dialTCP opens a connection as the arguments say and reads the server's hello.
func dialTCP(ctx context.Context, a TCPArgs, timeout time.Duration) (*session, error) {
	d := net.Dialer{Timeout: timeout, Control: reuseAddress}
	if a.SourcePort != 0 {
		d.LocalAddr = &net.TCPAddr{Port: a.SourcePort}
	}
	var conn net.Conn
	var err error
	if a.Mapped {
		var to netip.AddrPort
		if to, err = netip.ParseAddrPort(a.Address); err == nil {
			conn, err = dialMapped(unix.SOCK_STREAM, to, a.SourcePort, timeout)
		}
	} else {
		conn, err = d.DialContext(ctx, "tcp", a.Address)
	}
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	line, err := s.in.ReadBytes('\n')
	if err == nil {
		err = s.seen.learn(line, conn.RemoteAddr())
	}
	if c, ok := conn.(syscall.Conn); ok && err == nil {
		s.seen.peer = peerName(c)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("read hello: %w", err)
	}
	return s, nil
}

// exchange sends random payload and wants the same back. Sending and receiving overlap only as far as
// the server's: it reads a frame whole before it answers.
func (s *session) exchange(size int, timeout time.Duration) error {
	_ = s.conn.SetDeadline(time.Now().Add(timeout))
	sent := randomBytes(size)
	if err := writeFrame(s.conn, sent); err != nil {
		return fmt.Errorf("send %d bytes: %w", size, err)
	}
	got, err := readFrame(s.in)
	if err != nil {
		return fmt.Errorf("receive %d bytes: %w", size, err)
	}
	if !bytes.Equal(got, sent) {
		return errChecksum
	}
	return nil
}

func runUDP(ctx context.Context, a UDPArgs) Result {
	if a.Timeout == 0 {
		a.Timeout = 2 * time.Second
	}
	return attempts(ctx, a.Count, a.Concurrency, func() (observation, error) {
		s, err := openUDP(a)
		if err != nil {
			return observation{}, err
		}
		defer s.conn.Close()
		if err := s.identify(a.Timeout); err != nil {
			return s.seen, err
		}
		for _, size := range a.Sizes {
			if err := s.echo(size, a.Timeout); err != nil {
				return s.seen, fmt.Errorf("datagram of %d bytes: %w", size, err)
			}
			s.seen.bytes += int64(size)
		}
		return s.seen, nil
	})
}

// datagrams is a UDP socket that talks to one address.
type datagrams struct {
	conn      *net.UDPConn
	to        netip.AddrPort
	connected bool
	seen      observation
}

// openUDP makes a socket as the arguments say.
func openUDP(a UDPArgs) (*datagrams, error) {
	to, err := netip.ParseAddrPort(a.Address)
	if err != nil {
		return nil, err
	}
	network := "udp4"
	if to.Addr().Is6() {
		network = "udp6"
	}
	var local *net.UDPAddr
	if a.SourcePort != 0 {
		local = &net.UDPAddr{Port: a.SourcePort}
	}
	s := &datagrams{to: to, connected: a.Connected}
	switch {
	case a.Connected && a.Mapped:
		var conn net.Conn
		if conn, err = dialMapped(unix.SOCK_DGRAM, to, a.SourcePort, a.Timeout); err == nil {
			s.conn = conn.(*net.UDPConn)
		}
	case a.Connected:
		s.conn, err = net.DialUDP(network, local, net.UDPAddrFromAddrPort(to))
	case a.Mapped:
		s.conn, err = net.ListenUDP("udp", local) // an IPv6 socket for both families
	default:
		s.conn, err = net.ListenUDP(network, local)
	}
	if err != nil {
		return nil, err
	}
	s.seen.peer = peerName(s.conn)
	return s, nil
}

// roundTrip sends one datagram and returns the next one that comes.
func (s *datagrams) roundTrip(out []byte, timeout time.Duration) ([]byte, netip.AddrPort, error) {
	_ = s.conn.SetDeadline(time.Now().Add(timeout))
	var err error
	if s.connected {
		_, err = s.conn.Write(out)
	} else {
		_, err = s.conn.WriteToUDPAddrPort(out, s.to)
	}
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	buf := make([]byte, 64<<10)
	n, from, err := s.conn.ReadFromUDPAddrPort(buf)
	return buf[:n], from, err
}

func (s *datagrams) identify(timeout time.Duration) error {
	answer, from, err := s.roundTrip([]byte{askIdentity}, timeout)
	if err != nil {
		return err
	}
	return s.seen.learn(answer, net.UDPAddrFromAddrPort(from))
}

func (s *datagrams) echo(size int, timeout time.Duration) error {
	out := randomBytes(size)
	out[0] = '='
	answer, from, err := s.roundTrip(out, timeout)
	if err != nil {
		return err
	}
	if !bytes.Equal(answer, out) {
		return errChecksum
	}
	if got := plain(net.UDPAddrFromAddrPort(from)); got != s.seen.source {
		return fmt.Errorf("answer from %s after %s", got, s.seen.source)
	}
	return nil
}

// learn takes in what the server said and where it came from.
func (o *observation) learn(message []byte, from net.Addr) error {
	var id identity
	if err := json.Unmarshal(message, &id); err != nil {
		return fmt.Errorf("%w: identity: %w", errChecksum, err)
	}
	o.server, o.client, o.source, o.original = id.Server, id.Client, plain(from), id.Original
	if host, _, err := net.SplitHostPort(id.Client); err == nil {
		o.client = host
	}
	return nil
}

// reuseAddress lets a probe choose a source port that is in TIME_WAIT.
func reuseAddress(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}); e != nil {
		return e
	}
	return err
}

// randomBytes is cheap noise: no run of it repeats, so shifted or lost segments are noticed.
func randomBytes(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())})
	_, _ = r.Read(b)
	return b
}
