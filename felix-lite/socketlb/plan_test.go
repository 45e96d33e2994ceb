// SPDX-License-Identifier: Apache-2.0

package socketlb

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

var (
	udpHooks   = []string{"sendmsg4", "sendmsg6", "recvmsg4", "recvmsg6", "recvmsg46"}
	tcpHooks   = []string{"connect4", "connect6", "connect46", "getpeername4", "getpeername6", "getpeername46", "release4", "release6", "post_bind4", "post_bind6", "post_bind46"}
	everything = layout.CTLBUDP | layout.CTLBSetRetval | layout.CTLBNetNSCookie
)

func TestAModeComesToHooksConstantsAndAFallback(t *testing.T) {
	all := append(slices.Clone(tcpHooks), udpHooks...)
	without := func(list []string, prefix string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(h string) bool { return strings.HasPrefix(h, prefix) })
	}
	for name, c := range map[string]struct {
		mode    Mode
		missing []features.Feature
		hooks   []string
		flags   layout.CTLBFlag
		why     string // part of the reason for the fallback; "": there is none
	}{
		"Enabled on a kernel that has it all": {mode: Enabled, hooks: all, flags: everything},
		"HostOnly":                            {mode: HostOnly, hooks: all, flags: everything | layout.CTLBHostOnly},
		"TCPOnly leaves UDP to packets":       {mode: TCPOnly, hooks: tcpHooks, flags: everything &^ layout.CTLBUDP, why: "TCPOnly"},
		"Disabled":                            {mode: Disabled, why: "Disabled"},
		"without connect there is nothing":    {mode: Enabled, missing: []features.Feature{features.CTLBConnect}, why: "ctlb-connect"},
		"without sendmsg UDP goes by packet": {mode: Enabled, missing: []features.Feature{features.CTLBSendmsg}, hooks: tcpHooks,
			flags: everything &^ layout.CTLBUDP, why: "ctlb-sendmsg"},
		"without recvmsg too": {mode: Enabled, missing: []features.Feature{features.CTLBRecvmsg}, hooks: tcpHooks,
			flags: everything &^ layout.CTLBUDP, why: "ctlb-recvmsg"},
		"without set-retval packets are answered": {mode: Enabled, missing: []features.Feature{features.SetRetval}, hooks: all,
			flags: everything &^ layout.CTLBSetRetval, why: "set-retval"},
		"getpeername is a comfort": {mode: Enabled, missing: []features.Feature{features.CTLBGetpeername},
			hooks: without(all, "getpeername"), flags: everything},
		"so is release": {mode: Enabled, missing: []features.Feature{features.CTLBSockRelease}, hooks: without(all, "release"),
			flags: everything},
		"so is post_bind": {mode: Enabled, missing: []features.Feature{features.CTLBPostBind}, hooks: without(all, "post_bind"),
			flags: everything},
		"without cookies nobody can opt out": {mode: Enabled, missing: []features.Feature{features.NetnsCookie}, hooks: all,
			flags: everything &^ layout.CTLBNetNSCookie},
		"and HostOnly can not be": {mode: HostOnly, missing: []features.Feature{features.NetnsCookie}, why: "netns-cookie"},
	} {
		t.Run(name, func(t *testing.T) {
			p := PlanFor(c.mode, func(f features.Feature) bool { return !slices.Contains(c.missing, f) }, true, true)
			var hooks []string
			for _, h := range p.Hooks {
				hooks = append(hooks, h.Name)
			}
			slices.Sort(hooks)
			want := slices.Clone(c.hooks)
			slices.Sort(want)
			if diff := cmp.Diff(want, hooks); diff != "" {
				t.Errorf("hooks (-want +got):\n%s", diff)
			}
			if p.Flags != c.flags {
				t.Errorf("flags %v, want %v", p.Flags, c.flags)
			}
			if p.Fallback != (c.why != "") || !strings.Contains(p.Why, c.why) || (p.Why == "") != (c.why == "") {
				t.Errorf("fallback %v because %q, want because of %q", p.Fallback, p.Why, c.why)
			}
			if !slices.Equal(p.Missing, c.missing) {
				t.Errorf("missing %v, want %v", p.Missing, c.missing)
			}
		})
	}
}

func TestANodeOfOneFamilyHasItsHooksAlone(t *testing.T) {
	has := func(features.Feature) bool { return true }
	for _, c := range []struct {
		ipv4, ipv6 bool
		want       []string
	}{{true, false, []string{"4", "46"}}, {false, true, []string{"6"}}} {
		var got []string
		for _, h := range PlanFor(Enabled, has, c.ipv4, c.ipv6).Hooks {
			if kind, family := split(h.Name); kind == "connect" {
				got = append(got, family)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("IPv4 %v, IPv6 %v: connect hooks %v, want %v", c.ipv4, c.ipv6, got, c.want)
		}
	}
}
