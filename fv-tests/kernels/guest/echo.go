// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Emulation is slow and its host may be busy: long, but not so long that a broken path with
	// many cells takes the whole time-out of the run.
	probeTimeout = 15 * time.Second
	// Enough for many segments, and for the sender to build large ones.
	tcpPayload = 256 << 10
)

// echoServer answers on one port, over TCP and UDP, in both families: first a line with its name
// and the client's address as it sees it, then what it was sent.
type echoServer struct {
	name string
	tcp  net.Listener
	udp  *net.UDPConn
}

// startEcho starts a server inside a namespace. Its sockets stay there, wherever goroutines run.
func startEcho(ns *namespace, name string, port uint16) (*echoServer, error) {
	s := &echoServer{name: name}
	err := ns.do(func() (err error) {
		address := fmt.Sprintf("[::]:%d", port)
		if s.tcp, err = net.Listen("tcp", address); err != nil {
			return err
		}
		packets, err := net.ListenPacket("udp", address)
		if err != nil {
			s.tcp.Close()
			return err
		}
		s.udp = packets.(*net.UDPConn)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("start echo server: %w", err)
	}
	go s.serveTCP()
	go s.serveUDP()
	return s, nil
}

func (s *echoServer) close() {
	s.tcp.Close()
	s.udp.Close()
}

func (s *echoServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * probeTimeout))
			fmt.Fprint(conn, s.greeting(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()))
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func (s *echoServer) serveUDP() {
	buffer := make([]byte, 2048)
	for {
		n, client, err := s.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error of an earlier answer
		}
		answer := append([]byte(s.greeting(client.Addr())), buffer[:n]...)
		_, _ = s.udp.WriteToUDPAddrPort(answer, client)
	}
}

func (s *echoServer) greeting(client netip.Addr) string {
	return greeting(s.name, client.Unmap())
}

func greeting(server string, client netip.Addr) string { return server + " " + client.String() + "\n" }

// echo is what a client asks for and how it was answered.
func echo(ns *namespace, proto string, target netip.AddrPort) (greeting string, err error) {
	conn, err := dial(ns, proto, target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout))
	if proto == "tcp" {
		return echoTCP(conn.(*net.TCPConn))
	}
	return echoUDP(conn)
}

func dial(ns *namespace, proto string, target netip.AddrPort) (conn net.Conn, err error) {
	err = ns.do(func() (err error) {
		conn, err = net.DialTimeout(proto, target.String(), probeTimeout)
		return err
	})
	return conn, err
}

// echoTCP sends a payload and takes it back.
func echoTCP(conn *net.TCPConn) (string, error) {
	reader := bufio.NewReader(conn)
	hello, err := reader.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read greeting: %w", err)
	}
	payload := bytes.Repeat([]byte("felix-lite "), tcpPayload/11)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(payload)
		sent <- errors.Join(err, conn.CloseWrite())
	}()
	back, err := io.ReadAll(reader)
	if err := errors.Join(err, <-sent); err != nil {
		return hello, fmt.Errorf("after %d of %d bytes came back: %w", len(back), len(payload), err)
	}
	if !bytes.Equal(back, payload) {
		return hello, fmt.Errorf("%d bytes came back for %d, or others", len(back), len(payload))
	}
	return hello, nil
}

// echoUDP sends one datagram and waits for the answer.
func echoUDP(conn net.Conn) (string, error) {
	payload := strings.Repeat("u", 1200)
	if _, err := io.WriteString(conn, payload); err != nil {
		return "", err
	}
	buffer := make([]byte, 2048)
	n, err := conn.Read(buffer)
	if err != nil {
		return "", err
	}
	hello, back, _ := strings.Cut(string(buffer[:n]), "\n")
	if back != payload {
		return hello + "\n", fmt.Errorf("%d bytes came back for %d, or others", len(back), len(payload))
	}
	return hello + "\n", nil
}

// refused checks that a service without endpoints says so at once.
func refused(ns *namespace, proto string, target netip.AddrPort) error {
	_, err := echo(ns, proto, target)
	switch {
	case err == nil:
		return errors.New("somebody answered")
	case errors.Is(err, unix.ECONNREFUSED):
		return nil
	}
	return fmt.Errorf("want a refusal, got: %w", err)
}
