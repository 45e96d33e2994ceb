// SPDX-License-Identifier: Apache-2.0

package socktest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestATCPSocketGetsABackendAndShowsTheService(t *testing.T) {
	each(t, func(t *testing.T, n *node, f layout.Family) {
		n.serve(clusterIP(f, unix.IPPROTO_TCP))
		tcp(target(vip[f], port)).want(t, backends[f][0], target(vip[f], port))
	})
}
