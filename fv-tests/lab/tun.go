// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// TunInterface is the name of the layer 3 device on a node that has a TUN client. An agent serves it
// when its l3InterfacePattern matches.
const TunInterface = "l3tun"

var (
	tunNet4 = netip.MustParsePrefix("172.30.200.0/24")
	tunNet6 = netip.MustParsePrefix("fd30:0:0:200::/64")
)

// AddTunClient makes an outside client that reaches a node through a layer 3 device, as through
// WireGuard: two TUN devices, one on the node and one in the client's namespace, and a user-space
// process that carries packets between them.
func (l *Lab) AddTunClient(ctx context.Context, node *Node) (*Client, error) {
	name := "l3c" + strconv.Itoa(node.Index)
	c := &Client{
		Place: Place{
			Name: name, Namespace: l.namespace(name), IPv4: nth(tunNet4, 10), IPv6: nth(tunNet6, 16),
			Dir: filepath.Join(l.dir(), name),
		},
		Gateway4: routerIn(tunNet4), Gateway6: routerIn(tunNet6),
	}
	if err := c.Namespace.create(); err != nil {
		return nil, err
	}
	cg, err := labCgroup(l.Name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("client %s: %w", name, err)
	}
	_, err = command{
		argv:    []string{l.Options.ProbeExecutable, tunArgument, string(node.Namespace), TunInterface, string(c.Namespace), uplinkName},
		cgroup:  cg.child(node.Name, "tun"),
		logFile: filepath.Join(c.Dir, "tun.log"),
	}.start()
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", name, err)
	}
	ends := []struct {
		ns     Namespace
		dev    string
		v4, v6 netip.Addr
		routes []netip.Addr
	}{
		{node.Namespace, TunInterface, c.Gateway4, c.Gateway6, nil},
		{c.Namespace, uplinkName, c.IPv4, c.IPv6, []netip.Addr{c.Gateway4, c.Gateway6}},
	}
	for _, end := range ends {
		h, err := end.ns.handle()
		if err != nil {
			return nil, err
		}
		defer h.Close()
		err = WaitFor(ctx, end.dev+" in "+string(end.ns), func() (bool, string) {
			err := configure(h, end.dev, netip.PrefixFrom(end.v4, 24), netip.PrefixFrom(end.v6, 64))
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return nil, err
		}
		for _, gw := range end.routes {
			if err := addRoute(h, end.dev, netip.Prefix{}, gw, false); err != nil {
				return nil, fmt.Errorf("client %s: %w", name, err)
			}
		}
	}
	if err := l.startProber(&c.Place); err != nil {
		return nil, err
	}
	l.Clients = append(l.Clients, c)
	return c, errors.Join(l.save(), c.waitProber(ctx))
}

// runTun makes both devices and carries packets between them until it is killed. args are two pairs of
// namespace and device.
func runTun(args []string) error {
	var files [2]*os.File
	for i := range files {
		ns, dev := Namespace(args[2*i]), args[2*i+1]
		err := ns.Do(func() error {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open /dev/net/tun: %w", err)
			}
			req, err := unix.NewIfreq(dev)
			if err != nil {
				return err
			}
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
				return fmt.Errorf("TUNSETIFF: %w", err)
			}
			files[i] = os.NewFile(uintptr(fd), dev)
			return nil
		})
		if err != nil {
			return fmt.Errorf("tun %s in %s: %w", dev, ns, err)
		}
	}
	failed := make(chan error, 2)
	for i := range files {
		go func() { failed <- pump(files[i], files[1-i]) }()
	}
	return <-failed
}

// pump carries packets one by one; a packet the other side refuses (device down) is lost, as on a wire.
func pump(from, to *os.File) error {
	packet := make([]byte, 64<<10)
	for {
		n, err := from.Read(packet)
		if err != nil {
			return fmt.Errorf("tun: %w", err)
		}
		_, _ = to.Write(packet[:n])
	}
}
