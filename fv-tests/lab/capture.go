// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// captureLimit bounds what one capture keeps: the first packets of a flow say most.
const captureLimit = 200

// Capture records the packets of one interface, as a packet socket sees them: at a pod's eth0 what
// redirect_peer delivered is there too, at the host side of its veth it is not.
type Capture struct {
	Title string

	fd    int
	done  chan struct{}
	mu    sync.Mutex
	lines []string
	lost  int
}

// StartCapture opens a capture point on an interface of a namespace.
func StartCapture(ns Namespace, dev string) (*Capture, error) {
	c := &Capture{Title: string(ns) + " " + dev, done: make(chan struct{})}
	var err error
	if c.fd, err = packetSocket(ns, dev); err != nil {
		return nil, fmt.Errorf("capture on %s: %w", c.Title, err)
	}
	go c.read()
	return c, nil
}

// packetSocket opens a packet socket on an interface of a namespace.
func packetSocket(ns Namespace, dev string) (fd int, err error) {
	err = ns.Do(func() error {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		protocol := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})) // network byte order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: uint16(protocol)}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		)
	})
	return fd, err
}

func (c *Capture) read() {
	defer close(c.done)
	buf := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(c.fd, buf, unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		arrow := "in "
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			arrow = "out"
		}
		c.keep(fmt.Sprintf("%s %s %s", time.Now().Format("05.000000"), arrow, summary(buf[:min(n, len(buf))], n)))
	}
}

func (c *Capture) keep(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) == captureLimit {
		c.lost++
		return
	}
	c.lines = append(c.lines, line)
}

// Stop ends the capture and returns its lines under a title.
func (c *Capture) Stop() string {
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	unix.Close(c.fd)
	select {
	case <-c.done:
	case <-time.After(time.Second):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text := fmt.Sprintf("--- capture %s: %d packets, %d more not kept ---\n", c.Title, len(c.lines), c.lost)
	return text + strings.Join(c.lines, "\n")
}

// summary prints a packet in one line, with the inner one where it is VXLAN.
func summary(data []byte, length int) string {
	packet := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true, Lazy: true})
	var parts []string
	for _, layer := range packet.Layers() {
		switch l := layer.(type) {
		case *layers.Ethernet:
			if l.EthernetType != layers.EthernetTypeIPv4 && l.EthernetType != layers.EthernetTypeIPv6 {
				parts = append(parts, l.EthernetType.String())
			}
		case *layers.IPv4:
			parts = append(parts, fmt.Sprintf("%s > %s ttl %d", l.SrcIP, l.DstIP, l.TTL))
		case *layers.IPv6:
			parts = append(parts, fmt.Sprintf("%s > %s hlim %d", l.SrcIP, l.DstIP, l.HopLimit))
		case *layers.TCP:
			parts = append(parts, fmt.Sprintf("tcp %d > %d %s seq %d ack %d len %d",
				l.SrcPort, l.DstPort, tcpFlags(l), l.Seq, l.Ack, len(l.Payload)))
		case *layers.UDP:
			parts = append(parts, fmt.Sprintf("udp %d > %d len %d", l.SrcPort, l.DstPort, len(l.Payload)))
		case *layers.ICMPv4:
			parts = append(parts, "icmp "+l.TypeCode.String())
		case *layers.ICMPv6:
			parts = append(parts, "icmp6 "+l.TypeCode.String())
		case *layers.VXLAN:
			parts = append(parts, fmt.Sprintf("vxlan %d [", l.VNI))
		}
	}
	return fmt.Sprintf("%s (%d bytes)", strings.Join(parts, " "), length)
}

func tcpFlags(t *layers.TCP) string {
	flags := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{t.SYN, "S"}, {t.FIN, "F"}, {t.RST, "R"}, {t.PSH, "P"}, {t.ACK, "."}} {
		if f.set {
			flags += f.name
		}
	}
	return "[" + flags + "]"
}
