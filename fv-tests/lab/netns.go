// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where named network namespaces are mounted, the same place iproute2 uses, so that
// "ip netns list" and nsenter --net=/run/netns/X see the lab's.
const netnsDir = "/run/netns"

// Namespace is a named network namespace of a lab.
type Namespace string

// Path returns the file that holds the namespace.
func (n Namespace) Path() string { return filepath.Join(netnsDir, string(n)) }

// create makes the namespace and brings its loopback up.
func (n Namespace) create() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("create network namespace %s: %w", n, err)
	}
	f, err := os.OpenFile(n.Path(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("create network namespace %s: %w", n, err)
	}
	f.Close()
	err = onLockedThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", n.Path(), "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount: %w", err)
		}
		// No duplicate address detection anywhere: it would cost the first seconds of each interface.
		for _, conf := range []string{"all", "default"} {
			for _, name := range []string{"accept_dad", "dad_transmits", "accept_ra", "router_solicitations"} {
				if err := writeSysctl("net/ipv6/conf/"+conf+"/"+name, "0"); err != nil {
					return err
				}
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		n.remove()
		return fmt.Errorf("create network namespace %s: %w", n, err)
	}
	return nil
}

// remove unmounts and deletes the namespace; what is absent is not an error.
func (n Namespace) remove() error {
	err := unix.Unmount(n.Path(), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount network namespace %s: %w", n, err)
	}
	if err := os.Remove(n.Path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", n, err)
	}
	return nil
}

// Do runs fn on an OS thread that is inside the namespace. What fn opens (sockets, /proc/sys/net,
// child processes it starts) belongs to the namespace; goroutines it starts do not run there.
func (n Namespace) Do(fn func() error) error {
	target, err := netns.GetFromPath(n.Path())
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n, err)
	}
	defer target.Close()
	return onLockedThread(func() error {
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n, err)
		}
		return fn()
	})
}

// handle returns a netlink handle into the namespace; the caller closes it.
func (n Namespace) handle() (*netlink.Handle, error) {
	target, err := netns.GetFromPath(n.Path())
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", n, err)
	}
	defer target.Close()
	h, err := netlink.NewHandleAt(target, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink in %s: %w", n, err)
	}
	return h, nil
}

// sysctls writes values below /proc/sys inside the namespace.
func (n Namespace) sysctls(values map[string]string) error {
	return n.Do(func() error {
		for name, value := range values {
			if err := writeSysctl(name, value); err != nil {
				return fmt.Errorf("%s: %w", n, err)
			}
		}
		return nil
	})
}

// onLockedThread runs fn on a thread of its own, which is given back to the runtime only when its
// namespace could be restored, and ends with the goroutine otherwise.
func onLockedThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		origin, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("read own network namespace: %w", err)
			return
		}
		defer origin.Close()
		err = fn()
		if netns.Set(origin) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// writeSysctl writes one value of the calling thread's network namespace. Only the network tree is
// reachable: nothing outside a namespace can be changed by mistake.
func writeSysctl(name, value string) error {
	if !strings.HasPrefix(name, "net/") {
		return fmt.Errorf("sysctl %s: not a network setting", name)
	}
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
	}
	return nil
}
