// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolSetTXChecksum is ETHTOOL_STXCSUM of linux/ethtool.h.
const ethtoolSetTXChecksum = 0x17

// ChecksumOffload says whether a device of the place finishes L4 checksums. With it the place's packets carry the
// pseudo-header's sum only, until they leave by a device without; without it they are whole when they leave.
func (p *Place) ChecksumOffload(dev string, on bool) error {
	value := struct{ command, data uint32 }{command: ethtoolSetTXChecksum}
	if on {
		value.data = 1
	}
	request := struct {
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		rest  [16]byte // struct ifreq is a union
	}{value: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], dev)
	err := p.Namespace.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set checksum offload of %s in %s to %t: %w", dev, p.Name, on, err)
	}
	return nil
}
