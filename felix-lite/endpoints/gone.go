// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isNotFound recognises every way in which the kernel says that an interface is gone.
func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return err != nil && (errors.As(err, &notFound) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO))
}
