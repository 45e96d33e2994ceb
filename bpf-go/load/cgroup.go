// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

// CgroupHook is one program at connect time and the hook that it stands on. Two of them may stand on one
// hook: the kernel calls the IPv6 hooks for IPv4-mapped addresses too.
type CgroupHook struct {
	Name    string // unique: connect4, connect46
	Object  string
	Program string
	Attach  ebpf.AttachType
}

// cgroupHooks is the one table of them.
var cgroupHooks = []CgroupHook{
	{"connect4", objects.CTLBV4, "ctlb_connect", ebpf.AttachCGroupInet4Connect},
	{"connect6", objects.CTLBV6, "ctlb_connect", ebpf.AttachCGroupInet6Connect},
	{"connect46", objects.CTLBV46, "ctlb_connect", ebpf.AttachCGroupInet6Connect},
	{"sendmsg4", objects.CTLBV4, "ctlb_sendmsg", ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", objects.CTLBV6, "ctlb_sendmsg", ebpf.AttachCGroupUDP6Sendmsg},
	{"recvmsg4", objects.CTLBV4, "ctlb_recvmsg", ebpf.AttachCGroupUDP4Recvmsg},
	{"recvmsg6", objects.CTLBV6, "ctlb_recvmsg", ebpf.AttachCGroupUDP6Recvmsg},
	{"recvmsg46", objects.CTLBV46, "ctlb_recvmsg", ebpf.AttachCGroupUDP6Recvmsg},
	{"getpeername4", objects.CTLBV4, "ctlb_getpeername", ebpf.AttachCgroupInet4GetPeername},
	{"getpeername6", objects.CTLBV6, "ctlb_getpeername", ebpf.AttachCgroupInet6GetPeername},
	{"getpeername46", objects.CTLBV46, "ctlb_getpeername", ebpf.AttachCgroupInet6GetPeername},
	{"release4", objects.CTLBV4, "ctlb_release", ebpf.AttachCgroupInetSockRelease},
	{"release6", objects.CTLBV6, "ctlb_release", ebpf.AttachCgroupInetSockRelease},
	{"post_bind4", objects.CTLBV4, "ctlb_post_bind", ebpf.AttachCGroupInet4PostBind},
	{"post_bind6", objects.CTLBV6, "ctlb_post_bind", ebpf.AttachCGroupInet6PostBind},
	{"post_bind46", objects.CTLBV46, "ctlb_post_bind", ebpf.AttachCGroupInet6PostBind},
}

// CgroupHooks are all programs at connect time, in the order of their use: those that open a connection
// first. The result is the caller's.
func CgroupHooks() []CgroupHook { return slices.Clone(cgroupHooks) }

// Cgroup loads the programs of some hooks, and only those: a kernel that lacks a hook refuses its program.
// They are in the result by the hooks' names. maps are the node's, as for Variant. The error is an *Error.
func Cgroup(hooks []CgroupHook, cfg layout.CTLBConfig, nodeMaps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	programs := map[string]*ebpf.Program{}
	fail := func(err error) (map[string]*ebpf.Program, error) {
		for _, p := range programs {
			p.Close()
		}
		return nil, err
	}
	for _, object := range []string{objects.CTLBV4, objects.CTLBV6, objects.CTLBV46} {
		wanted := map[string]string{} // program -> hook
		for _, h := range hooks {
			if h.Object == object {
				wanted[h.Program] = h.Name
			}
		}
		if len(wanted) == 0 {
			continue
		}
		s, err := objects.Spec(object)
		if err != nil {
			return fail(&Error{Object: object, Err: err})
		}
		maps.DeleteFunc(s.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return wanted[name] == "" })
		o, err := Spec(object, s, cfg, nodeMaps)
		if err != nil {
			return fail(err)
		}
		for program := range wanted {
			if o.Programs[program] == nil {
				o.Close()
				return fail(&Error{Object: object, Err: fmt.Errorf("it has no program %s", program)})
			}
		}
		for program, p := range o.Programs {
			programs[wanted[program]] = p
		}
	}
	return programs, nil
}
