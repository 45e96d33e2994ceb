// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// runTime is what a hook's program takes, by the kernel's own measure, while do runs n times.
func (n *node) runTime(b *testing.B, hook string, do func()) float64 {
	b.Helper()
	links, err := attach.CgroupLinks(n.root)
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range links {
		if l.Hook != hook {
			continue
		}
		program, err := ebpf.NewProgramFromID(l.Program)
		if err != nil {
			b.Fatal(err)
		}
		defer program.Close()
		// The median call: a busy machine takes the CPU away in the middle of some.
		var times []time.Duration
		last, err := program.Stats()
		for range b.N {
			do()
			now, err := program.Stats()
			if err != nil {
				b.Fatal(err)
			}
			if runs := now.RunCount - last.RunCount; runs > 0 { // the server's sockets run it, too
				times = append(times, (now.Runtime-last.Runtime)/time.Duration(runs))
			}
			last = now
		}
		if err != nil || len(times) == 0 {
			b.Fatalf("%s did not run (%v)", hook, err)
		}
		slices.Sort(times)
		return float64(times[len(times)/2])
	}
	b.Fatalf("no program on %s", hook)
	return 0
}

// BenchmarkProgram prints what one run of a program costs: ns/run is the goal's figure (connect4 650, sendmsg4
// of a known socket 450).
func BenchmarkProgram(b *testing.B) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Skipf("the kernel measures no run times: %v", err)
	}
	defer stats.Close()
	n := newNode(b)
	for _, f := range families {
		n.servers(f)
	}
	n.attach(allFlags)
	for _, f := range families {
		s := clusterIP(f, unix.IPPROTO_UDP)
		s.backends = backends[f]
		tcp := s
		tcp.proto = unix.IPPROTO_TCP
		n.serve(s, tcp)
	}
	sock := func(f layout.Family, kind int) int {
		fd, err := openSocket(f, kind)
		if err != nil {
			b.Fatal(err)
		}
		return fd
	}
	connect := func(f layout.Family, kind int, addr string, p uint16) func() {
		return func() {
			fd := sock(f, kind)
			if err := unix.Connect(fd, sockaddr(target(addr, p))); err != nil {
				b.Fatal(err)
			}
			unix.Close(fd)
		}
	}
	exchange := func(f layout.Family, addr string, p uint16) func() {
		fd, buf := -1, make([]byte, 64)
		b.Cleanup(func() { unix.Close(fd) })
		return func() {
			if fd < 0 {
				fd = sock(f, unix.SOCK_DGRAM)
			}
			if err := unix.Sendto(fd, []byte("x"), 0, sockaddr(target(addr, p))); err != nil {
				b.Fatal(err)
			}
			if _, _, err := unix.Recvfrom(fd, buf, 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	// Nobody answers: what is measured is the client's sendmsg alone.
	sink := [2]service{}
	for _, f := range families {
		sink[f] = service{id: 30 + uint32(f), addr: otherVIP[f], port: port, proto: unix.IPPROTO_UDP, backends: []string{own[f]}, family: f}
		n.serve(sink[f])
		packetConn(b, "udp", target(own[f], backendPort).String())
	}
	send := func(f layout.Family, addr string, p uint16) func() {
		fd := -1
		b.Cleanup(func() { unix.Close(fd) })
		return func() {
			if fd < 0 {
				fd = sock(f, unix.SOCK_DGRAM)
			}
			if err := unix.Sendto(fd, []byte("x"), 0, sockaddr(target(addr, p))); err != nil {
				b.Fatal(err)
			}
		}
	}
	direct := func(f layout.Family) string { return backends[f][0] }
	for _, c := range []struct {
		name, hook string
		do         func()
	}{
		{"connect4/service", "connect4", connect(0, unix.SOCK_STREAM, vip[0], port)},
		{"connect6/service", "connect6", connect(1, unix.SOCK_STREAM, vip[1], port)},
		{"connect4/no_service", "connect4", connect(0, unix.SOCK_STREAM, direct(0), backendPort)},
		{"connect4/UDP_service", "connect4", connect(0, unix.SOCK_DGRAM, vip[0], port)},
		{"release4/service", "release4", connect(0, unix.SOCK_STREAM, vip[0], port)},
		{"sendmsg4/service_known", "sendmsg4", send(0, otherVIP[0], port)},
		{"sendmsg6/service_known", "sendmsg6", send(1, otherVIP[1], port)},
		{"sendmsg4/no_service", "sendmsg4", send(0, own[0], backendPort)},
		{"recvmsg4/service", "recvmsg4", exchange(0, vip[0], port)},
		{"recvmsg6/service", "recvmsg6", exchange(1, vip[1], port)},
		{"recvmsg4/no_service", "recvmsg4", exchange(0, direct(0), backendPort)},
	} {
		b.Run(c.name, func(b *testing.B) {
			// A sub-benchmark is another goroutine, and so in another network namespace.
			if err := testenv.Enter(n.host, func() error {
				b.ReportMetric(n.runTime(b, c.hook, c.do), "ns/run")
				return nil
			}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
