// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The loops use raw system calls on blocking sockets: the runtime's poller and its bookkeeping
// around system calls would cost as much as what is measured, and not the same each time.

// sockaddr is an address in the kernel's form.
type sockaddr struct {
	buf [unix.SizeofSockaddrInet6]byte
	len uintptr
}

func newSockaddr(a netip.Addr, port uint16) *sockaddr {
	s := &sockaddr{}
	s.setPort(port)
	if a.Is4() {
		binary.NativeEndian.PutUint16(s.buf[0:], unix.AF_INET)
		b := a.As4()
		copy(s.buf[4:], b[:])
		s.len = unix.SizeofSockaddrInet4
		return s
	}
	binary.NativeEndian.PutUint16(s.buf[0:], unix.AF_INET6)
	b := a.As16()
	copy(s.buf[8:], b[:])
	s.len = unix.SizeofSockaddrInet6
	return s
}

func (s *sockaddr) setPort(port uint16) { binary.BigEndian.PutUint16(s.buf[2:], port) }

func (s *sockaddr) domain() int { return int(binary.NativeEndian.Uint16(s.buf[0:])) }

// end is the family-specific part that names the other end: port and address.
func (s *sockaddr) end() []byte {
	if s.domain() == unix.AF_INET {
		return s.buf[2:8]
	}
	return s.buf[2:24]
}

func rawSocket(domain, typ int) (int, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(domain), uintptr(typ|unix.SOCK_CLOEXEC), 0)
	return int(fd), e
}

func rawBind(fd int, s *sockaddr) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&s.buf)), s.len)
	return e
}

func rawConnect(fd int, s *sockaddr) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&s.buf)), s.len)
	return e
}

func rawAccept(fd, flags int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, uintptr(flags|unix.SOCK_CLOEXEC), 0, 0)
	return int(n), e
}

func rawSend(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

func rawRecv(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), e
}

func rawRecvFrom(fd int, b []byte, from *sockaddr) (int, syscall.Errno) {
	size := uint32(len(from.buf))
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&from.buf)), uintptr(unsafe.Pointer(&size)))
	from.len = uintptr(size)
	return int(n), e
}

func rawSendTo(fd int, b []byte, to *sockaddr) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL,
		uintptr(unsafe.Pointer(&to.buf)), to.len)
	return int(n), e
}

func rawClose(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func rawSetInt(fd, level, opt int, value int32) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return e
}

func rawEpollCreate() (int, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC, 0, 0)
	return int(fd), e
}

// rawEpollAdd lets an epoll report a socket's events, with a number of the caller's.
func rawEpollAdd(epoll, fd int, events uint32, number int) syscall.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(number)}
	_, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// rawEpollWait waits for events; milliseconds may be -1: for ever.
func rawEpollWait(epoll int, events []unix.EpollEvent, milliseconds int) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(milliseconds), 0, 0)
	return int(n), e
}
