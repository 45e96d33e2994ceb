// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/internal/statefile"
)

// SocketLB says whose sockets are balanced when they connect.
type SocketLB struct {
	statefile.SocketLB          // what the agent said last
	Hooks              []string `json:"hooks"`                // that carry a program now
	HooksError         string   `json:"hooksError,omitempty"` // why there may be more
}

// socketLB asks the kernel for the hooks, and takes the rest from the agent's state file.
func (v *View) socketLB() SocketLB {
	s := SocketLB{SocketLB: v.State.SocketLB, Hooks: []string{}}
	links, err := attach.CgroupLinks(v.Maps.Root())
	if err != nil {
		s.HooksError = err.Error()
	}
	there := map[string]bool{}
	for _, l := range links {
		there[l.Hook] = l.CgroupID != 0
	}
	for _, h := range load.CgroupHooks() {
		if there[h.Name] {
			s.Hooks = append(s.Hooks, h.Name)
		}
	}
	return s
}

// rows are the lines of `felix-lite status`.
func (s SocketLB) rows(row func(name, value string)) {
	mode := s.Mode
	if mode == "" {
		mode = "not known: no agent has run"
	}
	if s.Cgroup != "" {
		mode += ", cgroup " + s.Cgroup
	}
	if s.SelfTest != "" {
		mode += ", self-test " + s.SelfTest
	}
	if s.OptedOut > 0 {
		mode += fmt.Sprintf(", %d pods opted out", s.OptedOut)
	}
	row("Connect time", mode)
	hooks := "none"
	if len(s.Hooks) > 0 {
		hooks = strings.Join(s.Hooks, " ")
	}
	row("", "hooks: "+hooks)
	if s.HooksError != "" {
		row("", "hooks that can not be read: "+s.HooksError)
	}
	if s.Fallback {
		row("", "host traffic also by packet: "+s.Why)
	}
	if len(s.Missing) > 0 {
		row("", "kernel lacks: "+strings.Join(s.Missing, ", "))
	}
}
