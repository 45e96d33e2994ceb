// SPDX-License-Identifier: Apache-2.0

// Package testenv gives a test its own piece of the kernel: a network namespace and a bpffs that
// nobody else sees, both gone when the test ends, however it ends.
//
// Tests of the kernel's edge call it; nothing else may import it. A test that needs root fails
// where root is not: it never passes by being skipped.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// RequireRoot fails the test unless it runs as root, and lifts the memory limit of old kernels.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: run `make test` as root")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatalf("lift the memlock limit: %v", err)
	}
}

// NetNS moves the test into a new network namespace with lo up and returns a handle of it. The
// test's goroutine is locked to its OS thread until the test has ended; goroutines that it starts
// are in the old namespace unless they enter by Enter.
func NetNS(t testing.TB) netns.NsHandle {
	t.Helper()
	RequireRoot(t)
	runtime.LockOSThread()
	old, err := netns.Get()
	if err != nil {
		t.Fatalf("current network namespace: %v", err)
	}
	created, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() {
		// A thread that can not go back must not be reused: it stays locked, and ends with the goroutine.
		if err := netns.Set(old); err != nil {
			t.Errorf("return to the old network namespace: %v", err)
		} else {
			runtime.UnlockOSThread()
		}
		old.Close()
		created.Close()
	})
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatalf("loopback: %v", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatalf("loopback up: %v", err)
	}
	return created
}

// NewNetNS makes another network namespace without entering it: the far end of a veth. It lives
// until the test ends.
func NewNetNS(t testing.TB) netns.NsHandle {
	t.Helper()
	RequireRoot(t)
	var created netns.NsHandle
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		created, err = netns.New()
	}()
	<-done
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() { created.Close() })
	return created
}

// Enter runs f on a thread of its own inside a network namespace and returns its error.
func Enter(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		defer close(result)    // t.Fatal in f ends the goroutine without a result
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			result <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

// BPFFS mounts a private bpffs in the test's temporary directory, returns the path, and unmounts
// it at the end.
func BPFFS(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	dir := filepath.Join(t.TempDir(), "bpffs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpffs", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mount bpffs at %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// Veth makes a pair of veth devices, both up, in the current network namespace, or with the second
// one in peerNS if that is open.
func Veth(t testing.TB, name, peer string, peerNS netns.NsHandle) (a, b netlink.Link) {
	t.Helper()
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatalf("add veth %s: %v", name, err)
	}
	a = linkUp(t, name)
	if !peerNS.IsOpen() {
		return a, linkUp(t, peer)
	}
	far, err := netlink.LinkByName(peer)
	if err != nil {
		t.Fatalf("veth %s: %v", peer, err)
	}
	if err := netlink.LinkSetNsFd(far, int(peerNS)); err != nil {
		t.Fatalf("move veth %s: %v", peer, err)
	}
	if err := Enter(peerNS, func() error {
		b, err = netlink.LinkByName(peer)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(b)
	}); err != nil {
		t.Fatalf("veth %s up: %v", peer, err)
	}
	return a, b
}

func linkUp(t testing.TB, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatalf("link %s up: %v", name, err)
	}
	return l
}

// Run runs a command in the test's namespace and fails the test with its output if it fails.
func Run(t testing.TB, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// SkipIfNotSupported skips the test, with the reason printed, where the kernel lacks the feature.
func SkipIfNotSupported(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("this kernel can not: %v", err)
	}
}
