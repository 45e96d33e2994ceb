// SPDX-License-Identifier: Apache-2.0

// Package kernels is the host's half of the tests on other kernels: it fetches kernel packages,
// packs a tiny initramfs around the guest binary, boots it under QEMU's software emulation and
// reads the verdicts from the serial console.
//
// In: a Kernel of the list in kernels.go, and the directory that packages are kept in between runs.
// Out: a Report for each kernel. Package run calls it; the guest's half is package guest, and the
// line between them is package result.
//
// It never changes the machine's apt configuration (a private one stands in the cache directory),
// never touches a network interface (the guest has none but its own), and leaves nothing running.
package kernels
