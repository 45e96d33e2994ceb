// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"
)

// The guest finds its modules in this directory, named so that the order of names is the order of
// loading.
const moduleDir = "modules"

// file is one entry of an initramfs: a regular file, a directory, or a character device.
type file struct {
	path string
	mode uint32 // with the type bits of stat
	rdev [2]uint32
	data []byte
}

const (
	typeDir  = 0o040000
	typeChar = 0o020000
	typeFile = 0o100000
)

// initramfsFiles lays out the guest: /init, the console that the kernel opens for it, and modules.
func initramfsFiles(init []byte, modules []Module) []file {
	files := []file{
		{path: "dev", mode: typeDir | 0o755},
		{path: "dev/console", mode: typeChar | 0o600, rdev: [2]uint32{5, 1}},
		{path: "init", mode: typeFile | 0o755, data: init},
		{path: moduleDir, mode: typeDir | 0o755},
	}
	for i, m := range modules {
		name := fmt.Sprintf("%s/%03d-%s.ko", moduleDir, i, m.Name)
		files = append(files, file{path: name, mode: typeFile | 0o644, data: m.Data})
	}
	sort.Slice(files, func(i, j int) bool { return files[i].path < files[j].path })
	return files
}

// writeInitramfs writes a cpio archive in the "newc" format, the one that the kernel unpacks. It is
// left uncompressed: under emulation unpacking costs more than reading.
func writeInitramfs(w io.Writer, files []file) error {
	out := bufio.NewWriter(w)
	for i, f := range append(files, file{path: "TRAILER!!!"}) {
		name := f.path + "\x00"
		links := 1
		// Field by field: magic, inode, mode, uid, gid, links, mtime, size, device, rdev, name size, check.
		header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
			i+1, f.mode, 0, 0, links, 0, len(f.data), 0, 0, f.rdev[0], f.rdev[1], len(name), 0)
		for _, part := range []string{header + name, string(f.data)} {
			if _, err := out.WriteString(part + strings.Repeat("\x00", padding(len(part)))); err != nil {
				return fmt.Errorf("write initramfs: %w", err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// padding is what brings a length to the next multiple of four.
func padding(n int) int { return (4 - n%4) % 4 }
