// SPDX-License-Identifier: Apache-2.0

package maps

import "github.com/felix-lite/felix-lite/bpf-go/layout"

// SocketOff is cali_ctlb_off2: the cookies of network namespaces whose sockets are not balanced at connect
// time. The values say nothing.
type SocketOff struct{ *Map[uint64, uint32] }

// SocketProbes is cali_ctlb_probe2: by the cookie of a socket that connected to the probe's destination, the
// cookie of its network namespace. The programs at connect time write it, self-tests read it.
type SocketProbes struct{ *Map[uint64, uint64] }

// SocketRecords are one family's records of translated sockets. The programs at connect time write and
// delete them; TC reads Asked.
type SocketRecords[A layout.Address] struct {
	// Asked is what a socket asked for, by socket and backend (cali_v*_ct_nats).
	Asked *Map[layout.SockKey[A], layout.SockValue[A]]
	// Chosen is the backend of a UDP socket, by socket and service (cali_v*_srmsg).
	Chosen *Map[layout.SockKey[A], layout.SockValue[A]]
}

func socketRecords[A layout.Address](s *Set) *SocketRecords[A] {
	var a A
	prefix := "cali_" + a.Family().String() + "_"
	return &SocketRecords[A]{
		Asked:  typed[layout.SockKey[A], layout.SockValue[A]](s, prefix+"ct_nats"),
		Chosen: typed[layout.SockKey[A], layout.SockValue[A]](s, prefix+"srmsg"),
	}
}
