// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
)

// Mode says whose sockets are balanced at connect time.
type Mode string

// The modes, as the setting connectTimeLoadBalancing writes them.
const (
	Enabled  Mode = "Enabled"  // TCP and UDP, of the host and of pods
	TCPOnly  Mode = "TCPOnly"  // TCP alone
	HostOnly Mode = "HostOnly" // TCP and UDP, of the host alone
	Disabled Mode = "Disabled" // none
)

// Plan is what a mode comes to on a kernel.
type Plan struct {
	// Hooks are the programs to be attached.
	Hooks []load.CgroupHook
	// Flags are their constants.
	Flags layout.CTLBFlag
	// Fallback: traffic of the host may have to be balanced packet by packet.
	Fallback bool
	// Why is the reason for Fallback, for people.
	Why string
	// Missing are features that the kernel lacks, or that are hidden, and that the mode would use.
	Missing []features.Feature
}

// Balances reports whether any socket is balanced at connect time.
func (p Plan) Balances() bool { return len(p.Hooks) > 0 }

// PlanFor decides what to attach, and whether the fallback is needed too. It is a pure function of the mode and
// of what the kernel can do (features.Set.Has). ipv4 and ipv6 are the families that the node serves.
func PlanFor(mode Mode, has func(features.Feature) bool, ipv4, ipv6 bool) Plan {
	var p Plan
	var why []string
	need := func(f features.Feature, reason string) bool {
		if has(f) {
			return true
		}
		p.Missing = append(p.Missing, f)
		if reason != "" {
			why = append(why, fmt.Sprintf("the kernel lacks %s: %s", f, reason))
		}
		return false
	}
	none := func() Plan {
		p.Hooks, p.Flags, p.Fallback, p.Why = nil, 0, true, strings.Join(why, "; ")
		return p
	}
	if mode == Disabled {
		why = append(why, "connectTimeLoadBalancing is Disabled")
		return none()
	}
	if !need(features.CTLBConnect, "no socket is balanced at connect time") {
		return none()
	}
	kinds := []string{"connect"}
	if need(features.NetnsCookie, "") {
		p.Flags |= layout.CTLBNetNSCookie
	} else if mode == HostOnly {
		why = append(why, fmt.Sprintf("the kernel lacks %s: sockets of the host can not be told from those of pods", features.NetnsCookie))
		return none()
	}
	if mode == HostOnly {
		p.Flags |= layout.CTLBHostOnly
	}
	if mode == TCPOnly {
		why = append(why, "connectTimeLoadBalancing is TCPOnly: UDP is balanced packet by packet")
	} else {
		send := need(features.CTLBSendmsg, "UDP is balanced packet by packet")
		receive := need(features.CTLBRecvmsg, "UDP is balanced packet by packet")
		if send && receive {
			p.Flags |= layout.CTLBUDP
			kinds = append(kinds, "sendmsg", "recvmsg")
		}
	}
	if need(features.SetRetval, "services without endpoints are refused packet by packet") {
		p.Flags |= layout.CTLBSetRetval
	}
	for _, o := range []struct {
		feature features.Feature
		kind    string
	}{{features.CTLBGetpeername, "getpeername"}, {features.CTLBSockRelease, "release"}, {features.CTLBPostBind, "post_bind"}} {
		if need(o.feature, "") {
			kinds = append(kinds, o.kind)
		}
	}
	for _, h := range load.CgroupHooks() {
		if kind, family := split(h.Name); slices.Contains(kinds, kind) && (family == "6" && ipv6 || family != "6" && ipv4) {
			p.Hooks = append(p.Hooks, h)
		}
	}
	p.Fallback, p.Why = len(why) > 0, strings.Join(why, "; ")
	return p
}

// split takes a hook's name apart: recvmsg46 is kind recvmsg, family 46.
func split(hook string) (kind, family string) {
	kind = strings.TrimRight(hook, "46")
	return kind, hook[len(kind):]
}

// opening tells the hooks that begin something new from those that serve what was begun: the first are taken
// away at once when they are not wanted any more, the others only when sockets had time to end.
func opening(hook string) bool {
	switch kind, _ := split(hook); kind {
	case "connect", "sendmsg", "post_bind":
		return true
	}
	return false
}
