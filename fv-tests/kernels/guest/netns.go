// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// namespace is a network namespace without a name: it goes when its last handle, socket and
// interface do, and with the machine in any case.
type namespace struct {
	name   string
	handle netns.NsHandle
}

// newNamespace makes a namespace with lo up and addresses usable at once.
func newNamespace(name string) (*namespace, error) {
	ns := &namespace{name: name}
	err := onOwnThread(func() error {
		handle, err := netns.New()
		if err != nil {
			return err
		}
		ns.handle = handle
		// Duplicate address detection would lose the first packets of every new interface.
		for _, conf := range []string{"all", "default"} {
			if err := sysctl("net/ipv6/conf/"+conf+"/accept_dad", "0"); err != nil {
				return err
			}
		}
		return setUp("lo")
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return ns, nil
}

// do runs f inside the namespace, on a thread that is thrown away afterwards.
func (n *namespace) do(f func() error) error {
	err := onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

func (n *namespace) close() { n.handle.Close() }

// onOwnThread runs f on a locked thread. The goroutine ends without unlocking it, and so the
// runtime ends the thread: no other goroutine ever runs in the wrong namespace.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// sysctl writes a setting of the current namespace; names are paths, for interfaces have dots.
func sysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// setUp sets an interface of the current namespace up.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}
