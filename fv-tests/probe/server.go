// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
)

// server is one prober.
type server struct {
	name string

	mu    sync.Mutex
	loads map[string]*load
}

// The TCP echo protocol: the server sends one line of JSON (identity), then answers each frame with a
// frame of the same payload. A frame is length and CRC-32C of the payload, big-endian, then the
// payload; a server that got a wrong checksum answers with an empty frame.
const (
	frameHeader = 8
	maxFrame    = 8 << 20
)

// The UDP protocol: a datagram that starts with askIdentity is answered by the identity, any other is
// echoed as it is.
const askIdentity = '?'

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errChecksum marks payload that came back changed.
var errChecksum = errors.New("wrong checksum")

func (s *server) serveEcho(port int) error {
	for _, family := range []string{"4", "6"} {
		l, err := net.Listen("tcp"+family, net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("echo server: %w", err)
		}
		u, err := net.ListenUDP("udp"+family, &net.UDPAddr{Port: port})
		if err != nil {
			return fmt.Errorf("echo server: %w", err)
		}
		go s.acceptLoop(l)
		go s.udpLoop(u)
	}
	return nil
}

// serveMesh serves connections that netfilter redirects.
func (s *server) serveMesh(port int) error {
	for _, family := range []string{"4", "6"} {
		l, err := net.Listen("tcp"+family, net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("mesh server: %w", err)
		}
		go s.acceptLoop(l)
	}
	return nil
}

func (s *server) acceptLoop(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			continue // too many open files for the moment
		}
		go func() {
			defer conn.Close()
			_ = s.serveTCP(conn)
		}()
	}
}

func (s *server) serveTCP(conn net.Conn) error {
	id := identity{Server: s.name, Client: plain(conn.RemoteAddr()), Local: plain(conn.LocalAddr())}
	if tcp, ok := conn.(*net.TCPConn); ok {
		id.Original = redirectedFrom(tcp)
	}
	hello, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(hello, '\n')); err != nil {
		return err
	}
	for {
		payload, err := readFrame(conn)
		if errors.Is(err, errChecksum) {
			payload, err = nil, nil
		}
		if err != nil {
			return err
		}
		if err := writeFrame(conn, payload); err != nil {
			return err
		}
	}
}

// udpLoop answers datagrams from the address that they were sent to: on a host with several, the kernel
// would choose one for a socket that is bound to none.
func (s *server) udpLoop(conn *net.UDPConn) {
	_ = control(conn, askForDestination)
	buf, oob := make([]byte, 64<<10), make([]byte, 128)
	for {
		n, oobn, _, from, err := conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error for an earlier answer
		}
		answer := buf[:n]
		if n > 0 && buf[0] == askIdentity {
			client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			answer, _ = json.Marshal(identity{Server: s.name, Client: client.String(), Local: plain(conn.LocalAddr())})
		}
		_, _, _ = conn.WriteMsgUDPAddrPort(answer, sourceFor(oob[:oobn]), from)
	}
}

func writeFrame(w io.Writer, payload []byte) error {
	frame := make([]byte, frameHeader, frameHeader+len(payload))
	binary.BigEndian.PutUint32(frame, uint32(len(payload)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(payload, castagnoli))
	_, err := w.Write(append(frame, payload...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxFrame {
		return nil, errChecksum
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(header[4:]) {
		return payload, errChecksum
	}
	return payload, nil
}

// plain writes an address without the v4-mapped form.
func plain(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
}
