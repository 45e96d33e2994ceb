// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// ProbeVerb is the hidden command of the agent's binary that Probe is behind.
const ProbeVerb = "socket-lb-probe"

// ErrSelfTest means that a process outside of the agent's cgroup is not balanced at connect time.
var ErrSelfTest = errors.New("sockets are not balanced at connect time")

// probeTimeout is for a process that does three system calls.
const probeTimeout = 10 * time.Second

// probeAddress is the destination that the programs know as the self-test's.
func probeAddress(f layout.Family) netip.AddrPort {
	var a [16]byte
	binary.BigEndian.PutUint32(a[12:], uint32(layout.CTLBProbeAddr))
	if f == layout.FamilyV4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[12:])), uint16(layout.CTLBProbePort))
	}
	a[0], a[1] = 0xfe, 0x80
	return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(layout.CTLBProbePort))
}

// socketReport is what a probe's process says of one socket.
type socketReport struct {
	Family string        `json:"family"` // v4, v6
	Cookie uint64        `json:"cookie"` // 0: the socket could not be opened
	Peer   string        `json:"peer,omitempty"`
	Error  string        `json:"error,omitempty"`
	Errno  syscall.Errno `json:"errno,omitempty"` // of Error, if a system call has failed
}

func (r *socketReport) fail(what string, err error) {
	r.Error = fmt.Sprintf("%s: %v", what, err)
	_ = errors.As(err, &r.Errno)
}

// Probe is the self-test's process: it connects a UDP socket of each family to the probe's destination, which
// sends nothing, and writes what came of it. netnsPath, if not empty, is the network namespace to do so in.
func Probe(out io.Writer, netnsPath string) error {
	if netnsPath != "" {
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(netnsPath)
		if err != nil {
			return fmt.Errorf("network namespace %s: %w", netnsPath, err)
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", netnsPath, err)
		}
	}
	var reports []socketReport
	for _, f := range []layout.Family{layout.FamilyV4, layout.FamilyV6} {
		reports = append(reports, probeSocket(f))
	}
	return json.NewEncoder(out).Encode(reports)
}

func probeSocket(f layout.Family) (r socketReport) {
	r.Family = f.String()
	domain, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(layout.CTLBProbePort), Addr: probeAddress(layout.FamilyV4).Addr().As4()})
	if f == layout.FamilyV6 {
		domain, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(layout.CTLBProbePort), Addr: probeAddress(layout.FamilyV6).Addr().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.fail("open socket", err)
		return r
	}
	defer unix.Close(fd)
	if r.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		r.fail("socket cookie", err)
		return r
	}
	if err = unix.Connect(fd, to); err != nil {
		r.fail("connect", err)
		return r
	}
	switch peer, err := unix.Getpeername(fd); peer := peer.(type) {
	case *unix.SockaddrInet4:
		r.Peer = netip.AddrFrom4(peer.Addr).String()
	case *unix.SockaddrInet6:
		r.Peer = netip.AddrFrom16(peer.Addr).String()
	default:
		r.fail("peer", err)
	}
	return r
}

// prober starts probe processes in a cgroup of their own beside everything else below the root.
type prober struct {
	root    string         // of the cgroups that are balanced
	ns      netns.NsHandle // network namespace of the process
	command []string
	lookup  func(cookie uint64) (netNS uint64, found bool, err error)
}

// seen is a probe's socket, and what the programs have noted of it.
type seen struct {
	socketReport
	found bool   // they have seen it connect
	netNS uint64 // cookie of its network namespace
}

// run lets a process connect to the probe's destination, in the network namespace at netnsPath or, if that is
// empty, in the prober's own, and returns what came of it by family.
func (p *prober) run(ctx context.Context, netnsPath string) (map[string]seen, error) {
	reports, err := p.start(ctx, netnsPath)
	if err != nil {
		return nil, err
	}
	sockets := map[string]seen{}
	for _, r := range reports {
		s := seen{socketReport: r}
		if r.Cookie != 0 {
			if s.netNS, s.found, err = p.lookup(r.Cookie); err != nil {
				return nil, err
			}
		}
		sockets[r.Family] = s
	}
	return sockets, nil
}

// selfTest finds out whether the programs see the sockets of a process beside all others, and the cookie of the
// host's network namespace, which they note.
func (p *prober) selfTest(ctx context.Context, families []layout.Family) (netNS uint64, err error) {
	sockets, err := p.run(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, f := range families {
		s := sockets[f.String()]
		if err := p.judge(f, s); err != nil {
			return 0, err
		}
		if s.found {
			netNS = s.netNS
		}
	}
	return netNS, nil
}

// judge says what is wrong with the self-test's socket of a family. A family that the node does not have, or that is
// switched off, is nothing that the programs could help: what counts is that they saw the socket, if there was one.
func (p *prober) judge(f layout.Family, s seen) error {
	peer, _ := netip.ParseAddr(s.Peer)
	switch {
	case s.Cookie == 0 && s.Errno == unix.EAFNOSUPPORT:
		return nil
	case s.Cookie == 0 && s.Error != "":
		return fmt.Errorf("%w: IP%s: %s", ErrSelfTest, f, s.Error)
	case !s.found:
		return fmt.Errorf("%w: a process in %s connected to %s by IP%s and the programs did not see it: is it the host's root?",
			ErrSelfTest, p.root, probeAddress(f), f)
	case s.Errno == unix.EADDRNOTAVAIL, s.Errno == unix.ENETUNREACH, s.Errno == unix.EAFNOSUPPORT:
		return nil
	case s.Error != "":
		return fmt.Errorf("%w: IP%s: %s", ErrSelfTest, f, s.Error)
	case !peer.IsLoopback():
		return fmt.Errorf("%w: a process in %s that connected to %s by IP%s got to %s: another program on the hook has changed it",
			ErrSelfTest, p.root, probeAddress(f), f, s.Peer)
	}
	return nil
}

// start runs the process, born in a new cgroup, and reads its reports.
func (p *prober) start(ctx context.Context, netnsPath string) ([]socketReport, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(p.root, "felix-lite-probe-")
	if err != nil {
		return nil, fmt.Errorf("cgroup for the self-test: %w", err)
	}
	defer removeCgroup(dir)
	cgroup, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cgroup for the self-test: %w", err)
	}
	defer cgroup.Close()
	args := p.command[1:]
	if netnsPath != "" {
		args = append(append([]string{}, args...), "--netns", netnsPath)
	}
	cmd := exec.CommandContext(ctx, p.command[0], args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: unix.SIGKILL}
	if err := inNamespace(p.ns, cmd.Run); err != nil {
		return nil, fmt.Errorf("self-test's process: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	var reports []socketReport
	if err := json.Unmarshal(out.Bytes(), &reports); err != nil {
		return nil, fmt.Errorf("self-test's process: %w", err)
	}
	return reports, nil
}

// removeCgroup removes the cgroup of a process that has ended: the kernel may need a moment to see that.
func removeCgroup(dir string) {
	for range 100 {
		if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// removeProbeCgroups removes what an agent that was killed in the middle of a self-test left.
func removeProbeCgroups(root string) {
	left, err := filepath.Glob(filepath.Join(root, "felix-lite-probe-*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		_ = unix.Rmdir(dir) // one in use stays
	}
}

// inNamespace calls f on a thread of its own in a network namespace.
func inNamespace(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if ns.IsOpen() {
			if err := netns.Set(ns); err != nil {
				result <- fmt.Errorf("enter network namespace: %w", err)
				return
			}
		}
		result <- f()
	}()
	return <-result
}
