// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Where the guest mounts what the tests need.
const (
	bpffsPath   = "/sys/fs/bpf"
	cgroup2Path = "/sys/fs/cgroup"
	moduleGlob  = "/modules/*.ko"
)

var mounts = []struct{ fstype, target string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"tmpfs", "/run"},
	{"tmpfs", "/tmp"},
	{"bpf", bpffsPath},
	{"cgroup2", cgroup2Path},
}

// mounted is set in the environment of the second life of this process.
const mounted = "GUEST_MOUNTED=1"

// mountAll mounts what the kernel does not mount by itself, then starts the binary anew: packages
// that look at /proc or at bpffs while they are initialised ran before either was there.
func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := unix.Exec("/init", os.Args, append(os.Environ(), mounted)); err != nil {
		return fmt.Errorf("start /init again: %w", err)
	}
	return nil
}

// setUpSystem turns the bare machine into what a node's agent finds.
func setUpSystem() error {
	if err := loadModules(); err != nil {
		return err
	}
	// Before 5.11 maps and programs are charged to this limit.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("remove memlock limit: %w", err)
	}
	return nil
}

// loadModules loads the initramfs' modules; their names are in the order of loading.
func loadModules() error {
	paths, err := filepath.Glob(moduleGlob)
	if err != nil {
		return fmt.Errorf("load modules: %w", err)
	}
	sort.Strings(paths)
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("load modules: %w", err)
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load module %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// powerOff ends the machine. The console is written synchronously: nothing is lost.
func powerOff() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("power off:", err) // process 1 ends, the kernel panics, QEMU ends all the same
	}
}
