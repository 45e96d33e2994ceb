// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestErrorsAreSortedIntoWhatAUserWouldCallThem(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a RST to the SYN", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "refused"},
		{"a RST later", fmt.Errorf("receive: %w", syscall.ECONNRESET), "reset"},
		{"a write after the RST", syscall.EPIPE, "reset"},
		{"no route", syscall.EHOSTUNREACH, "unreachable"},
		{"no answer", os.ErrDeadlineExceeded, "timeout"},
		{"the end in the middle", fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), "short read"},
		{"payload that came back changed", fmt.Errorf("receive: %w", errChecksum), "wrong checksum"},
		{"a datagram beyond the path MTU", syscall.EMSGSIZE, "too big"},
		{"an open connection that broke", &brokenError{syscall.ECONNRESET}, "reset"},
		{"anything else", errors.New("no idea"), "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Kind(tt.err); got != tt.want {
				t.Errorf("want %q, have %q", tt.want, got)
			}
		})
	}
}

func TestTallyCountsErrorsSlowAttemptsAndSpread(t *testing.T) {
	var y tally
	for i := range 100 {
		y.add(observation{server: fmt.Sprintf("pod%d", i%2), client: "10.0.0.1"}, nil, time.Duration(i)*time.Millisecond)
	}
	y.add(observation{}, syscall.ECONNRESET, 3*time.Second)
	r := y.result()
	if r.Attempts != 101 || r.OK != 100 || r.Errors["reset"] != 1 || r.Slow != 1 || r.Backends["pod1"] != 50 {
		t.Errorf("have %+v", r)
	}
	if r.Latency.P50 != 50*time.Millisecond || r.Latency.Max != 99*time.Millisecond {
		t.Errorf("latency of what succeeded: %+v", r.Latency)
	}
}

func TestEchoTellsIdentityAndReturnsPayload(t *testing.T) {
	s := &server{name: "here", loads: map[string]*load{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go s.acceptLoop(l)
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go s.udpLoop(u)

	for _, mapped := range []bool{false, true} {
		tcp := runTCP(t.Context(), TCPArgs{Address: l.Addr().String(), Bytes: 1 << 20, Count: 10, Concurrency: 3, Mapped: mapped})
		if tcp.OK != 10 || tcp.Backends["here"] != 10 || tcp.Clients["127.0.0.1"] != 10 || tcp.Bytes != 10<<20 ||
			tcp.Peers[l.Addr().String()] != 10 || len(tcp.Originals) != 0 {
			t.Errorf("TCP, v4-mapped %v: %s %v", mapped, tcp, tcp.Examples)
		}
		for _, connected := range []bool{false, true} {
			udp := runUDP(t.Context(), UDPArgs{
				Address: u.LocalAddr().String(), Sizes: []int{1, 1200, 60000}, Connected: connected, Mapped: mapped,
			})
			if udp.OK != 1 || udp.ReplySources[u.LocalAddr().String()] != 1 {
				t.Errorf("UDP, connected %v, v4-mapped %v: %s %v", connected, mapped, udp, udp.Examples)
			}
			if named := udp.Peers[u.LocalAddr().String()] == 1; named != connected {
				t.Errorf("UDP, connected %v, v4-mapped %v: getpeername says %v", connected, mapped, udp.Peers)
			}
		}
	}
	refused := runTCP(t.Context(), TCPArgs{Address: "127.0.0.1:1", Mapped: true})
	if refused.Errors["refused"] != 1 {
		t.Errorf("a v4-mapped connection that is refused: %s %v", refused, refused.Examples)
	}
}

func TestLoadRunsUntilItIsStopped(t *testing.T) {
	s := &server{name: "here", loads: map[string]*load{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go s.acceptLoop(l)
	socket := filepath.Join(t.TempDir(), "control.sock")
	control, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	go func() {
		for {
			conn, err := control.Accept()
			if err != nil {
				return
			}
			go s.control(conn)
		}
	}()

	c := NewClient(socket)
	args := LoadArgs{ID: "a", Kind: LoadTCPOpen, Address: l.Addr().String(), Workers: 5, Interval: time.Millisecond}
	if err := c.StartLoad(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	if err := c.StartLoad(t.Context(), args); err == nil {
		t.Error("a second load with the same id was accepted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		r, err := c.LoadStats(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if r.OK >= 50 {
			break
		}
	}
	r, err := c.StopLoad(t.Context(), "a")
	if err != nil || r.OK != r.Attempts {
		t.Errorf("have %s, %v", r, err)
	}
	if _, err := c.LoadStats(t.Context(), "a"); err == nil {
		t.Error("a stopped load still has figures")
	}
}

func TestFloodPacketsAreValidSYNsFromThePrefix(t *testing.T) {
	for _, tt := range []struct{ sources, target string }{
		{"10.128.0.0/9", "172.30.0.11:30001"}, {"2001:db8:f000::/36", "[fd30::11]:30001"},
	} {
		prefix := netip.MustParsePrefix(tt.sources)
		target := netip.MustParseAddrPort(tt.target)
		source := randomIn(prefix)
		if !prefix.Contains(source) {
			t.Errorf("%s is not in %s", source, prefix)
		}
		data, err := syn(net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}, source, target)
		if err != nil {
			t.Fatal(err)
		}
		packet := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || !tcp.SYN || tcp.ACK || tcp.DstPort != layers.TCPPort(target.Port()) {
			t.Errorf("not a SYN to %s: %v", target, packet)
		}
	}
}
