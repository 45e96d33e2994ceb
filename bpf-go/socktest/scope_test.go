// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func TestAPodThatHasOptedOutIsLeftAloneAtOnce(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_TCP), clusterIP(f, unix.IPPROTO_UDP))
		pod := n.pod()
		translated := func() (yes bool) {
			in(t, pod, func() {
				fd := socket(t, f, unix.SOCK_DGRAM)
				if err := unix.Connect(fd, sockaddr(target(vip[f], port))); err != nil {
					t.Fatal(err)
				}
			})
			asked, _ := n.records(f)
			n.forgetAsked(f)
			return asked == 1
		}
		if !translated() {
			t.Error("a pod's socket is not translated")
		}
		if err := n.set.SocketOff.Put(cookieOf(t, pod), 1); err != nil {
			t.Fatal(err)
		}
		if translated() {
			t.Error("a pod that has opted out is translated")
		}
		tcp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port)) // the host has not
		if err := n.set.SocketOff.Remove(cookieOf(t, pod)); err != nil {
			t.Fatal(err)
		}
		if !translated() {
			t.Error("a pod that has opted in again is not translated")
		}
	})
}

func TestWithHostOnlyPodsAreLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.attach(allFlags | layout.CTLBHostOnly)
		n.serve(clusterIP(f, unix.IPPROTO_TCP), clusterIP(f, unix.IPPROTO_UDP))
		tcp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
		in(t, n.pod(), func() {
			fd := socket(t, f, unix.SOCK_DGRAM)
			if err := unix.Connect(fd, sockaddr(target(vip[f], port))); err != nil {
				t.Fatal(err)
			}
			if peer, _ := unix.Getpeername(fd); addrPort(peer) != target(vip[f], port) {
				t.Errorf("peer %v", addrPort(peer))
			}
		})
		n.wantRecords(f, 0, 0)
	})
}

func TestTheProbesDestinationTellsTheNetworkNamespaceAndSendsNothing(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		for _, flags := range []layout.CTLBFlag{allFlags, allFlags &^ layout.CTLBUDP} {
			n.attach(flags)
			fd := socket(t, f, unix.SOCK_DGRAM)
			if err := unix.Connect(fd, sockaddr(target([]string{"169.254.1.9", "fe80::a9fe:109"}[f], uint16(layout.CTLBProbePort)))); err != nil {
				t.Fatal(err)
			}
			if peer, _ := unix.Getpeername(fd); !addrPort(peer).Addr().IsLoopback() {
				t.Errorf("peer %v, want the loopback", addrPort(peer))
			}
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			if err != nil {
				t.Fatal(err)
			}
			got, found, err := n.set.SocketProbes.Lookup(cookie)
			if want := cookieOf(t, n.host); err != nil || !found || got != want {
				t.Errorf("namespace %d, %v, %v; want %d", got, found, err, want)
			}
		}
	})
}

// foreign is somebody else's program on connect4: it counts its calls.
func foreign(t *testing.T, path string) (calls func() uint64) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("out"), asm.Return(),
		}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: path, Attach: ebpf.AttachCGroupInet4Connect, Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); program.Close(); m.Close() })
	return func() (n uint64) {
		if err := m.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func TestProgramsOfOthersOnTheSameCgroupRunToo(t *testing.T) {
	n := newNode(t)
	n.servers(layout.FamilyV4)
	before := foreign(t, n.path)
	n.attach(allFlags)
	after := foreign(t, n.path)
	n.serve(clusterIP(layout.FamilyV4, unix.IPPROTO_TCP))
	tcp(target(vip[0], port)).want(t, backends[0][0], target(vip[0], port))
	if before() != 1 || after() != 1 {
		t.Errorf("the program before ours ran %d times, the one behind %d times, want 1 and 1", before(), after())
	}
	n.detach()
	_ = tcp(target(backends[0][0], backendPort))
	if before() != 2 || after() != 2 {
		t.Errorf("after ours have gone: %d and %d, want 2 and 2", before(), after())
	}
}

func TestASecondAttachUpdatesTheLinksInPlace(t *testing.T) {
	n := newNode(t)
	n.servers(layout.FamilyV4)
	n.attach(allFlags)
	n.serve(clusterIP(layout.FamilyV4, unix.IPPROTO_TCP))
	pinned := func() map[string]attach.CgroupLink {
		links, err := attach.CgroupLinks(n.root)
		if err != nil {
			t.Fatal(err)
		}
		if len(links) != len(load.CgroupHooks()) {
			t.Errorf("%d links, want %d", len(links), len(load.CgroupHooks()))
		}
		byHook := map[string]attach.CgroupLink{}
		for _, l := range links {
			byHook[l.Hook] = l
		}
		return byHook
	}
	first := pinned()
	// Connections during the exchange must not fail.
	done, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		_ = testenv.Enter(n.host, func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if a := tcp(target(vip[0], port)); a.err != nil {
					failed <- a.err
					return nil
				}
			}
		})
	}()
	for range 20 {
		n.attach(allFlags)
	}
	close(done)
	if err := <-failed; err != nil {
		t.Errorf("a connection failed meanwhile: %v", err)
	}
	second := pinned()
	for hook, l := range first {
		if second[hook].Program == l.Program || second[hook].CgroupID != l.CgroupID || second[hook].LinkID != l.LinkID {
			t.Errorf("%s: %+v became %+v, want the same link with another program", hook, l, second[hook])
		}
	}
}
