// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Machine is how the emulated machine looks. It has no network device: all traffic is between
// namespaces inside it.
type Machine struct {
	MemoryMiB int
	CPUs      int
	Niceness  int // of QEMU: emulation takes a whole core for minutes
}

// DefaultMachine is small: the tests create every map at a reduced size.
var DefaultMachine = Machine{MemoryMiB: 1024, CPUs: 1, Niceness: 19}

// Boot runs the init binary on a kernel until the guest powers off, ctx ends, or QEMU dies. Every
// line of the serial console goes to print as it comes, without its line end. guestArgs become the
// arguments of init.
func (m Machine) Boot(ctx context.Context, image Image, init []byte, guestArgs []string, print func(string)) (*Report, error) {
	dir, err := os.MkdirTemp("", "felix-lite-kernel-")
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", image.Release, err)
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initramfs")
	if err := packGuest(ctx, image, init, initrd); err != nil {
		return nil, fmt.Errorf("boot %s: %w", image.Release, err)
	}

	cmd := exec.CommandContext(ctx, "nice", m.command(image, initrd, guestArgs)...)
	// QEMU must not outlive this process, however it ends. The kernel looks at the thread that
	// started it, so that one is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	console, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", image.Release, err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("boot %s: %w", image.Release, err)
	}
	report := &Report{}
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r\n")
		print(line)
		report.Add(line)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	switch {
	case ctx.Err() != nil:
		return report, fmt.Errorf("boot %s: %w", image.Release, context.Cause(ctx))
	case err != nil:
		return report, fmt.Errorf("boot %s: qemu: %w", image.Release, err)
	}
	return report, nil
}

// command is QEMU's command line, as arguments of nice.
func (m Machine) command(image Image, initrd string, guestArgs []string) []string {
	kernelArgs := append([]string{
		"console=ttyS0", "rdinit=/init", "quiet", "loglevel=3", // warnings would cut verdicts in two
		"panic=-1",        // a panic reboots, and -no-reboot then ends QEMU
		"mitigations=off", // they only cost time here
		"--",
	}, guestArgs...)
	return []string{
		"-n", strconv.Itoa(m.Niceness), "qemu-system-x86_64",
		"-accel", "tcg", "-cpu", "max",
		"-m", strconv.Itoa(m.MemoryMiB), "-smp", strconv.Itoa(m.CPUs),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-serial", "stdio",
		"-kernel", image.Linux, "-initrd", initrd, "-append", strings.Join(kernelArgs, " "),
	}
}

// packGuest writes the initramfs.
func packGuest(ctx context.Context, image Image, init []byte, path string) error {
	modules, err := LoadOrder(ctx, image, Modules)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeInitramfs(out, initramfsFiles(init, modules)), out.Close())
}
