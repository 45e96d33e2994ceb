// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	agent "github.com/felix-lite/felix-lite/bpf-go/features"
)

// never is the first kernel of a feature that no tested kernel has.
const never = "99.0"

// featureTable is docs/kernels.md's table: what the datapath uses or may come to use, and the first
// of the tested kernels that has it. A distribution may have taken a feature back to an older
// kernel than the one that brought it, so the probe decides and the table is held against it.
var featureTable = []struct {
	name  string
	since string
	probe func() error
}{
	{"fib_lookup", "5.10", helper(ebpf.SchedCLS, asm.FnFibLookup)},
	{"redirect_peer", "5.10", helper(ebpf.SchedCLS, asm.FnRedirectPeer)},
	{"redirect_neigh", "5.10", helper(ebpf.SchedCLS, asm.FnRedirectNeigh)},
	{"csum_diff", "5.10", helper(ebpf.SchedCLS, asm.FnCsumDiff)},
	{"jiffies64", "5.10", helper(ebpf.SchedCLS, asm.FnJiffies64)},
	{"ktime_get_coarse_ns", "6.1", helper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs)},
	{"check_mtu", "6.1", helper(ebpf.SchedCLS, asm.FnCheckMtu)},
	{"bpf_loop", "6.1", helper(ebpf.SchedCLS, asm.FnLoop)},
	{"for_each_map_elem", "6.1", helper(ebpf.SchedCLS, asm.FnForEachMapElem)},
	{"timer", "6.1", helper(ebpf.SchedCLS, asm.FnTimerInit)},
	{"xdp_load_bytes", "6.1", helper(ebpf.XDP, asm.FnXdpLoadBytes)},
	{"set_retval in connect", "6.1", helper(ebpf.CGroupSockAddr, asm.FnSetRetval)},
	{"get_netns_cookie in tc", never, helper(ebpf.SchedCLS, asm.FnGetNetnsCookie)},
	{"fib flag SKIP_NEIGH", "6.1", fibFlag(fibSkipNeigh)},
	{"fib flag TBID", "6.1", fibFlag(1 << 3)},
	{"fib flag SRC", "6.1", fibFlag(1 << 4)},
	{"fib flag MARK", "6.12", fibFlag(1 << 5)},
	{"tcx link", "6.12", probeTCX},
	{"cgroup connect4", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect)},
	{"cgroup connect6", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect)},
	{"cgroup sendmsg4", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Sendmsg)},
	{"cgroup sendmsg6", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP6Sendmsg)},
	{"cgroup recvmsg4", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Recvmsg)},
	{"cgroup recvmsg6", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP6Recvmsg)},
	{"cgroup getpeername4", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetPeername)},
	{"cgroup getpeername6", "5.10", cgroupLink(ebpf.CGroupSockAddr, ebpf.AttachCgroupInet6GetPeername)},
	{"cgroup sock_release", "5.10", cgroupLink(ebpf.CGroupSock, ebpf.AttachCgroupInetSockRelease)},
	{"cgroup post_bind4", "5.10", cgroupLink(ebpf.CGroupSock, ebpf.AttachCGroupInet4PostBind)},
	{"cgroup post_bind6", "5.10", cgroupLink(ebpf.CGroupSock, ebpf.AttachCGroupInet6PostBind)},
	{"LPM_TRIE batch operations", "6.1", probeLPMBatch},
	{"open-coded iterators", "6.12", kernelFunc("bpf_iter_num_new")},
	{"sock_destroy", "6.12", kernelFunc("bpf_sock_destroy")},
	{"iterator tcp", "5.10", kernelFunc("bpf_iter_tcp")},
	{"iterator udp", "5.10", kernelFunc("bpf_iter_udp")},
	{"iterator map elements", "5.10", kernelFunc("bpf_iter_bpf_map_elem")},
	{"ring buffer", "5.10", func() error { return features.HaveMapType(ebpf.RingBuf) }},
	{"bounded loops", "5.10", features.HaveBoundedLoops},
	{"1M instructions", "5.10", features.HaveLargeInstructions},
	{"instruction set v3", "5.10", features.HaveV3ISA},
}

// agentNames are the features that the agent probes for too, by the names in the table.
var agentNames = map[string]agent.Feature{
	"redirect_peer":             agent.RedirectPeer,
	"redirect_neigh":            agent.RedirectNeigh,
	"ktime_get_coarse_ns":       agent.CoarseClock,
	"check_mtu":                 agent.CheckMTU,
	"bpf_loop":                  agent.Loop,
	"for_each_map_elem":         agent.ForEachMapElem,
	"timer":                     agent.Timer,
	"xdp_load_bytes":            agent.XDPLoadBytes,
	"set_retval in connect":     agent.SetRetval,
	"get_netns_cookie in tc":    agent.NetnsCookieTC,
	"fib flag SKIP_NEIGH":       agent.FIBSkipNeigh,
	"fib flag TBID":             agent.FIBTableID,
	"fib flag SRC":              agent.FIBSource,
	"fib flag MARK":             agent.FIBMark,
	"tcx link":                  agent.TCX,
	"LPM_TRIE batch operations": agent.BatchLPM,
	"open-coded iterators":      agent.OpenIterators,
	"sock_destroy":              agent.SocketDestroy,
	"ring buffer":               agent.RingBuffer,
}

// runFeatures probes the kernel, and holds the table and the agent's own probe against the answers.
func runFeatures(r *reporter) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		r.verdict("kernel release", err)
		return
	}
	version := strings.TrimSpace(string(release))
	own, err := agent.Probe(nil)
	r.verdict("agent's probe", err)
	if err != nil {
		return
	}
	r.note("%-28s %-5s %-5s %s", "feature of "+version, "table", "here", "probe")
	for _, f := range featureTable {
		expected, err := atLeast(version, f.since)
		if err != nil {
			r.verdict("kernel release", err)
			return
		}
		probed := f.probe()
		r.note("%-28s %-5s %-5s %s", f.name, yesNo(expected), yesNo(probed == nil), reason(probed))
		err = agree(expected, probed)
		if name, ok := agentNames[f.name]; ok && own.Has(name) != (probed == nil) {
			err = errors.Join(err, fmt.Errorf("the agent's probe of %s says %s", name, yesNo(own.Has(name))))
		}
		r.verdict(f.name, err)
	}
}

// agree compares the table with a probe's answer.
func agree(expected bool, probed error) error {
	switch {
	case probed != nil && !errors.Is(probed, ebpf.ErrNotSupported):
		return fmt.Errorf("probe: %w", probed)
	case expected && probed != nil:
		return errors.New("the table says yes, this kernel has it not")
	case !expected && probed == nil:
		return errors.New("the table says no, this kernel has it")
	}
	return nil
}

// atLeast compares the first two numbers of a kernel release with those of a version.
func atLeast(release, version string) (bool, error) {
	var have, want [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return false, fmt.Errorf("kernel release %q: %w", release, err)
	}
	if _, err := fmt.Sscanf(version, "%d.%d", &want[0], &want[1]); err != nil {
		return false, fmt.Errorf("version %q: %w", version, err)
	}
	return have[0] > want[0] || (have[0] == want[0] && have[1] >= want[1]), nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return strings.SplitN(err.Error(), "\n", 2)[0]
}

// helper probes for a helper in programs of a type.
func helper(t ebpf.ProgramType, fn asm.BuiltinFunc) func() error {
	return func() error { return features.HaveProgramHelper(t, fn) }
}

// cgroupLink probes for a link of a cgroup hook by making one.
func cgroupLink(t ebpf.ProgramType, attach ebpf.AttachType) func() error {
	return func() error {
		return withProgram(&ebpf.ProgramSpec{Type: t, AttachType: attach, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 1), asm.Return(),
		}}, func(prog *ebpf.Program) error {
			l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup2Path, Attach: attach, Program: prog})
			if err != nil {
				return err
			}
			return l.Close()
		})
	}
}
