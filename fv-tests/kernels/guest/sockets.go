// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
)

// startSocketLB attaches the programs at connect time, over the node's maps, to the whole machine: from here on
// all sockets of the guest are balanced as the node's are. That the hooks exist the feature table says. The first
// programs do not know which network namespace is the host's and learn it; the second take their places.
func (n *node) startSocketLB() error {
	cfg := layout.CTLBConfig{HZ: n.dp.hz, Flags: uint32(layout.CTLBUDP | layout.CTLBNetNSCookie | layout.CTLBOptOuts)}
	if features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval) == nil {
		cfg.Flags |= uint32(layout.CTLBSetRetval)
	}
	if err := n.attachSocketLB(cfg); err != nil {
		return err
	}
	var err error
	if cfg.HostNetNS, err = n.askNetNS(); err != nil {
		return fmt.Errorf("cookie of the host's network namespace: %w", err)
	}
	if err := n.attachSocketLB(cfg); err != nil {
		return err
	}
	return n.dp.set.Globals.Change(func(g *layout.Globals) { g.Flags |= uint32(layout.GFCTLB) })
}

func (n *node) attachSocketLB(cfg layout.CTLBConfig) error {
	hooks := load.CgroupHooks()
	programs, err := load.Cgroup(hooks, cfg, n.dp.set.Raw())
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range programs {
			p.Close()
		}
	}()
	cgroup, err := attach.NewCgroup(cgroup2Path, filepath.Join(bpffsPath, n.name))
	if err != nil {
		return err
	}
	for _, h := range hooks {
		if _, err := cgroup.Attach(h, programs[h.Name]); err != nil {
			return err
		}
	}
	return nil
}

// askNetNS has the programs tell the cookie of the node's network namespace: 5.10 has no other way.
func (n *node) askNetNS() (cookie uint64, err error) {
	var probe [4]byte
	binary.BigEndian.PutUint32(probe[:], uint32(layout.CTLBProbeAddr))
	target := &unix.SockaddrInet4{Addr: probe, Port: int(layout.CTLBProbePort)}
	err = n.ns.do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, target); err != nil {
			return err
		}
		socket, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			return err
		}
		return n.dp.set.Raw()["cali_ctlb_probe2"].Lookup(socket, &cookie)
	})
	return cookie, err
}

// socketPaths are carried without any packet being translated: no program at TC counts a DNAT.
var socketPaths = []smokePath{
	{"pod to service at connect time, backend on the same node", "a1", toVIP(portLocal), "a2", "", layout.CountRedirectPeer, 0},
	{"pod to service at connect time, backend on the other node", "a1", toVIP(portRemote), "b1", "", layout.CountRedirectTunnel, 0},
	{"pod to service at connect time, backend is itself", "a1", toVIP(portSelf), "a1", "", noCounter, 0},
	{"node to service at connect time, backend on the node", "node-a", toVIP(portLocal), "a2", "", layout.CountToStack, 0},
	{"node to service at connect time, backend on the other node", "node-a", toVIP(portRemote), "b1", "", layout.CountTunnelKey, 0},
	{"node to its own NodePort at connect time", "node-a", toNode(0, nodePort), "a2", "", layout.CountToStack, 0},
	{"node to the NodePort at its loopback", "node-a", toLoopback(nodePort), "a2", "", layout.CountToStack, 0},
}

func toLoopback(port uint16) func(*world, layout.Family) netip.AddrPort {
	return func(_ *world, family layout.Family) netip.AddrPort {
		return netip.AddrPortFrom(dual("127.0.0.1", "::1").of(family), port)
	}
}

// tryUnconnected sends a datagram from a socket that names its destination each time, and wants the answer to come
// from there.
func tryUnconnected(from *namespace, target netip.AddrPort, server string) error {
	var conn *net.UDPConn
	if err := from.do(func() (err error) {
		conn, err = net.ListenUDP("udp", nil)
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout))
	if _, err := conn.WriteToUDPAddrPort([]byte("hello"), target); err != nil {
		return err
	}
	buffer := make([]byte, 2048)
	n, source, err := conn.ReadFromUDPAddrPort(buffer)
	if err != nil {
		return err
	}
	if source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port()); source != target {
		return fmt.Errorf("the answer came from %v, not from %v", source, target)
	}
	if !strings.HasPrefix(string(buffer[:n]), server+" ") {
		return fmt.Errorf("answer %q, want one of %s", buffer[:n], server)
	}
	return nil
}

// tryPeerName connects and asks the kernel to whom.
func tryPeerName(from *namespace, proto string, target netip.AddrPort) error {
	conn, err := dial(from, proto, target)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var peer unix.Sockaddr
	if ctl := raw.Control(func(fd uintptr) { peer, err = unix.Getpeername(int(fd)) }); ctl != nil {
		return ctl
	}
	if err != nil {
		return err
	}
	var got netip.AddrPort
	switch p := peer.(type) {
	case *unix.SockaddrInet4:
		got = netip.AddrPortFrom(netip.AddrFrom4(p.Addr), uint16(p.Port))
	case *unix.SockaddrInet6:
		got = netip.AddrPortFrom(netip.AddrFrom16(p.Addr).Unmap(), uint16(p.Port))
	}
	if got != target {
		return fmt.Errorf("the peer is %v, not %v", got, target)
	}
	return nil
}
