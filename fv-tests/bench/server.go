// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// messageSize is the payload of every request and reply.
const messageSize = 64

// serve starts a pinned thread with a listening socket for each family and listener, and one for all
// backends of the crowd, and returns when all listen.
func serve(cfg workerConfig) error {
	ready := make(chan error, 1)
	go func() {
		if err := cfg.pin(cfg.Server); err != nil {
			ready <- err
			return
		}
		serveCrowd([]netip.Addr{zeroAddr(4), zeroAddr(6)}, ready)
	}()
	if err := <-ready; err != nil {
		return err
	}
	for _, text := range cfg.Listen {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("parse listen address: %w", err)
		}
		for _, l := range listeners {
			ready := make(chan error, 1)
			go func() {
				if err := cfg.pin(cfg.Server); err != nil {
					ready <- err
					return
				}
				fd, err := listen(addr, l)
				ready <- err
				switch {
				case err != nil:
				case l.proto == protoUDP:
					echoDatagrams(fd)
				default:
					echoConnections(fd)
				}
			}()
			if err := <-ready; err != nil {
				return fmt.Errorf("listen on %s port %d: %w", addr, l.targetPort, err)
			}
		}
	}
	return nil
}

func listen(addr netip.Addr, l listener) (int, error) {
	sa := newSockaddr(addr, l.targetPort)
	typ := unix.SOCK_STREAM
	if l.proto == protoUDP {
		typ = unix.SOCK_DGRAM
	}
	fd, e := rawSocket(sa.domain(), typ)
	if e != 0 {
		return 0, e
	}
	if e := rawSetInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); e != 0 {
		return 0, e
	}
	if addr.Is6() {
		if e := rawSetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); e != 0 {
			return 0, e
		}
	}
	if e := rawBind(fd, sa); e != 0 {
		return 0, e
	}
	if l.proto == protoUDP {
		return fd, nil
	}
	return fd, unix.Listen(fd, 1024)
}

// echoConnections serves one connection after the other until the client closes each.
func echoConnections(listener int) {
	buf := make([]byte, 4*messageSize)
	for {
		fd, e := rawAccept(listener, 0)
		if e != 0 {
			continue
		}
		for {
			n, e := rawRecv(fd, buf)
			if n <= 0 || e != 0 {
				break
			}
			if _, e := rawSend(fd, buf[:n]); e != 0 {
				break
			}
		}
		rawClose(fd)
	}
}

func echoDatagrams(fd int) {
	buf := make([]byte, 4*messageSize)
	from := &sockaddr{}
	for {
		n, e := rawRecvFrom(fd, buf, from)
		if e != 0 || n <= 0 {
			continue
		}
		rawSendTo(fd, buf[:n], from)
	}
}
