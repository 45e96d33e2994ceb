// SPDX-License-Identifier: Apache-2.0

// Package features finds out what the running kernel can do, by trying it.
//
// In: a list of features to hide, so that tests and operators can make a new kernel look like an old
// one. Out: a Set that is asked by name, and printed by the CLI. The agent probes once at start and
// hands the Set down; nobody else asks the kernel, and nobody compares version numbers. The package
// also reads the datapath's clock (jiffies), which takes a program of its own.
package features

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// ErrNotSupported is wrapped by the error for a feature that is missing or hidden.
var ErrNotSupported = ebpf.ErrNotSupported

// Feature is the name of something that not every supported kernel can do.
type Feature string

// The features. Those without a present user are here for the ones to come, and for the table of
// kernels that the tests hold against reality.
const (
	TCX             Feature = "tcx"
	RedirectPeer    Feature = "redirect-peer"
	RedirectNeigh   Feature = "redirect-neigh"
	FIBSkipNeigh    Feature = "fib-skip-neigh"
	FIBTableID      Feature = "fib-table-id"
	FIBSource       Feature = "fib-source"
	FIBMark         Feature = "fib-mark"
	CheckMTU        Feature = "check-mtu"
	CoarseClock     Feature = "coarse-clock"
	BatchHash       Feature = "batch-hash"
	BatchLPM        Feature = "batch-lpm"
	RingBuffer      Feature = "ring-buffer"
	Loop            Feature = "loop"
	ForEachMapElem  Feature = "for-each-map-elem"
	Timer           Feature = "timer"
	NetnsCookieTC   Feature = "netns-cookie-tc"
	CgroupSockAddr  Feature = "cgroup-sock-addr"
	CTLBConnect     Feature = "ctlb-connect"
	CTLBSendmsg     Feature = "ctlb-sendmsg"
	CTLBRecvmsg     Feature = "ctlb-recvmsg"
	CTLBGetpeername Feature = "ctlb-getpeername"
	CTLBSockRelease Feature = "ctlb-sock-release"
	CTLBPostBind    Feature = "ctlb-post-bind"
	SetRetval       Feature = "set-retval"
	NetnsCookie     Feature = "netns-cookie"
	XDPLoadBytes    Feature = "xdp-load-bytes"
	OpenIterators   Feature = "open-coded-iterators"
	SocketDestroy   Feature = "socket-destroy"
	SocketIterators Feature = "socket-iterators"
)

// Status is what is known about a feature.
type Status struct {
	Name      Feature `json:"name"`
	Supported bool    `json:"supported"`        // the kernel has it and it is not hidden
	Hidden    bool    `json:"hidden,omitempty"` // by the list of disabled features
	Since     string  `json:"since"`            // first kernel version that has it
	Use       string  `json:"use"`              // what it is used for, and what happens without it
	Reason    string  `json:"reason,omitempty"` // why it is not supported
}

// Set is what a kernel can do.
type Set struct {
	status map[Feature]Status
}

// Probe tries every feature. disabled are names of features to hide; an unknown one is an error that
// lists those there are. Requires CAP_BPF and CAP_NET_ADMIN.
func Probe(disabled []string) (*Set, error) {
	hidden := map[Feature]bool{}
	for _, name := range disabled {
		f := Feature(strings.ToLower(strings.TrimSpace(name)))
		if !known(f) {
			return nil, fmt.Errorf("feature %q to be disabled is not known: there are %s", name, strings.Join(Names(), ", "))
		}
		hidden[f] = true
	}
	if err := rlimit.RemoveMemlock(); err != nil { // limits BPF below Linux 5.11
		return nil, fmt.Errorf("lift the memlock limit: %w", err)
	}
	s := &Set{status: map[Feature]Status{}}
	for _, p := range probes {
		st := Status{Name: p.name, Since: p.since, Use: p.use}
		err := p.probe()
		switch {
		case hidden[p.name]:
			st.Hidden, st.Reason = true, "disabled by configuration"
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("probe feature %s: %w", p.name, err)
		case err != nil: // an odd kernel answers oddly: what can not be tried can not be used
			st.Reason = err.Error()
		default:
			st.Supported = true
		}
		s.status[p.name] = st
	}
	return s, nil
}

// Names are all features' names, sorted.
func Names() []string {
	var names []string
	for _, p := range probes {
		names = append(names, string(p.name))
	}
	sort.Strings(names)
	return names
}

func known(f Feature) bool {
	for _, p := range probes {
		if p.name == f {
			return true
		}
	}
	return false
}

// Has tells whether a feature may be used.
func (s *Set) Has(f Feature) bool { return s.status[f].Supported }

// Require is nil if the feature may be used, else an error that wraps ErrNotSupported and names the
// kernel version that has it.
func (s *Set) Require(f Feature) error {
	st, ok := s.status[f]
	switch {
	case !ok:
		return fmt.Errorf("feature %s: %w: it is not known", f, ErrNotSupported)
	case st.Supported:
		return nil
	case st.Hidden:
		return fmt.Errorf("feature %s: %w: %s", f, ErrNotSupported, st.Reason)
	}
	return fmt.Errorf("feature %s: %w: requires Linux %s", f, ErrNotSupported, st.Since)
}

// List is all of it, sorted by name.
func (s *Set) List() []Status {
	var list []Status
	for _, name := range Names() {
		list = append(list, s.status[Feature(name)])
	}
	return list
}

// Flags are the features that programs are told of, for Config.Features.
func (s *Set) Flags() layout.Feature {
	var flags layout.Feature
	for f, flag := range map[Feature]layout.Feature{
		RedirectPeer:  layout.FeatRedirectPeer,
		RedirectNeigh: layout.FeatRedirectNeigh,
		FIBSkipNeigh:  layout.FeatFIBSkipNeigh,
	} {
		if s.Has(f) {
			flags |= flag
		}
	}
	return flags
}
