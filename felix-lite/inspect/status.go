// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// Status is the node at a glance.
type Status struct {
	Agent      AgentStatus `json:"agent"`
	Programs   Programs    `json:"programs"`
	Globals    Globals     `json:"globals"`
	Interfaces []ClassSum  `json:"interfaces"`
	SocketLB   SocketLB    `json:"socketLB"`
	Frontends  int         `json:"frontends"`
	Backends   int         `json:"backends"`
	Routes     int         `json:"routes"`
	Drops      []Counter   `json:"drops"` // summed over interfaces, largest first
}

// AgentStatus is what the agent itself says, where it can be asked.
type AgentStatus struct {
	Node      string    `json:"node,omitempty"`
	Build     string    `json:"build,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	Reachable bool      `json:"reachable"`
	Ready     bool      `json:"ready"`
	Reasons   []string  `json:"reasons,omitempty"`
}

// Programs says what the active bank of the jump map holds.
type Programs struct {
	Bank     uint32 `json:"bank"`
	Variants int    `json:"variants"` // with a main program
	Expected int    `json:"expected"`
}

// Globals is cali_globals2 in the words of people.
type Globals struct {
	RouteEpoch    uint32     `json:"routeEpoch"`
	TunnelIfindex uint32     `json:"tunnelIfindex"`
	TunnelMTU     uint32     `json:"tunnelMTU"`
	PodMTU        uint16     `json:"podMTU"`
	VNI           uint32     `json:"vni"`
	VXLANPort     uint16     `json:"vxlanPort"`
	HostIPv4      netip.Addr `json:"hostIPv4,omitzero"`
	HostIPv6      netip.Addr `json:"hostIPv6,omitzero"`
	Flags         []string   `json:"flags"`
	AdoptionEnd   uint64     `json:"adoptionEndJiffies"`
}

// ClassSum counts the interfaces of one class.
type ClassSum struct {
	Class string `json:"class"`
	Total int    `json:"total"`
	Ready int    `json:"ready"`
}

// Status reads the maps, and asks the agent at its health address; empty: it is not asked.
func (v *View) Status(ctx context.Context, health string) (*Status, error) {
	s := &Status{Agent: AgentStatus{Node: v.State.Node, Build: v.State.Build, PID: v.State.PID, Started: v.State.Started}}
	s.Agent.ask(ctx, health)
	g, err := v.Maps.Globals.Read()
	if err != nil {
		return nil, err
	}
	s.Globals = globalsOf(g)
	s.Programs = Programs{Bank: g.JumpBase / uint32(layout.BankStride), Expected: len(variants.All())}
	for _, variant := range variants.All() {
		if _, found, err := v.Maps.Jump.Get(g.JumpBase + variant.Slot(layout.SlotMain)); err == nil && found {
			s.Programs.Variants++
		}
	}
	if err := v.Maps.Frontends.All(func(maps.FrontendKey, layout.FEValue) bool { s.Frontends++; return true }); err != nil {
		return nil, err
	}
	if err := v.Maps.Backends.All(func(maps.BackendKey, maps.Backend) bool { s.Backends++; return true }); err != nil {
		return nil, err
	}
	if err := v.Maps.Routes.All(func(netip.Prefix, maps.Route) bool { s.Routes++; return true }); err != nil {
		return nil, err
	}
	if s.Interfaces, err = v.classSums(); err != nil {
		return nil, err
	}
	s.SocketLB = v.socketLB()
	s.Drops, err = v.dropSums()
	return s, err
}

func globalsOf(g layout.Globals) Globals {
	return Globals{RouteEpoch: g.RouteEpoch, TunnelIfindex: g.TunnelIfindex, TunnelMTU: g.TunnelMTU, PodMTU: g.PodMTU, VNI: g.VNI,
		VXLANPort: layout.PortOf(g.VXLANPortBE), HostIPv4: layout.AddrAny{W: [4]uint32{g.HostIP4}}.Addr(false),
		HostIPv6: layout.AddrAny{W: g.HostIP6}.Addr(true), Flags: flagList(layout.GlobalFlag(g.Flags).String()),
		AdoptionEnd: g.AdoptionEnd}
}

func (v *View) classSums() ([]ClassSum, error) {
	list, err := v.Interfaces()
	if err != nil {
		return nil, err
	}
	sums := []ClassSum{}
	for _, i := range list {
		at := slices.IndexFunc(sums, func(c ClassSum) bool { return c.Class == i.Class })
		if at < 0 {
			at = len(sums)
			sums = append(sums, ClassSum{Class: i.Class})
		}
		sums[at].Total++
		if i.Ready {
			sums[at].Ready++
		}
	}
	slices.SortFunc(sums, func(a, b ClassSum) int { return strings.Compare(a.Class, b.Class) })
	return sums, nil
}

func (v *View) dropSums() ([]Counter, error) {
	all, err := v.Counters(CounterFilter{Drops: true})
	if err != nil {
		return nil, err
	}
	sums := []Counter{}
	for _, c := range all {
		at := slices.IndexFunc(sums, func(s Counter) bool { return s.number == c.number && s.Family == c.Family })
		if at < 0 {
			sums = append(sums, Counter{Family: c.Family, Name: c.Name, Drop: true, Count: c.Count, number: c.number})
			continue
		}
		sums[at].Count += c.Count
	}
	slices.SortStableFunc(sums, func(a, b Counter) int {
		switch {
		case a.Count > b.Count:
			return -1
		case a.Count < b.Count:
			return 1
		}
		return int(a.number) - int(b.number)
	})
	return sums, nil
}

// ask gets /readyz. An agent that does not answer is a finding, not an error.
func (s *AgentStatus) ask(ctx context.Context, address string) {
	if address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		s.Reasons = []string{err.Error()}
		return
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		s.Reasons = []string{err.Error()}
		return
	}
	defer resp.Body.Close()
	var h struct {
		Ready      bool `json:"ready"`
		Conditions []struct {
			Name    string `json:"name"`
			OK      bool   `json:"ok"`
			Message string `json:"message"`
		} `json:"conditions"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&h); err != nil {
		s.Reasons = []string{fmt.Sprintf("%s does not answer as an agent: %v", address, err)}
		return
	}
	s.Reachable, s.Ready = true, h.Ready
	for _, c := range h.Conditions {
		if !c.OK {
			s.Reasons = append(s.Reasons, c.Name+": "+c.Message)
		}
	}
}

// Table implements Lister.
func (s *Status) Table() Table {
	t := Table{}
	row := func(name, value string) { t.Rows = append(t.Rows, []string{name, value}) }
	row("Node", s.Agent.Node)
	switch {
	case s.Agent.Ready:
		row("Agent", "ready"+s.since())
	case s.Agent.Reachable:
		row("Agent", "not ready"+s.since())
	default:
		row("Agent", "not reachable; the dataplane goes on without it")
	}
	for _, r := range s.Agent.Reasons {
		row("", r)
	}
	row("Programs", fmt.Sprintf("%d of %d variants in bank %d", s.Programs.Variants, s.Programs.Expected, s.Programs.Bank))
	for _, c := range s.Interfaces {
		row("Interfaces "+c.Class, fmt.Sprintf("%d, %d ready", c.Total, c.Ready))
	}
	s.SocketLB.rows(row)
	row("Services", fmt.Sprintf("%d frontends, %d backend entries", s.Frontends, s.Backends))
	row("Routes", fmt.Sprintf("%d, epoch %d", s.Routes, s.Globals.RouteEpoch))
	row("Addresses", addresses(s.Globals.HostIPv4, s.Globals.HostIPv6))
	row("Tunnel", fmt.Sprintf("interface %d, VNI %d, UDP %d, MTU %d; pods' MTU %d", s.Globals.TunnelIfindex, s.Globals.VNI,
		s.Globals.VXLANPort, s.Globals.TunnelMTU, s.Globals.PodMTU))
	if len(s.Drops) == 0 {
		row("Drops", "none")
	}
	for i, d := range s.Drops {
		name := ""
		if i == 0 {
			name = "Drops"
		}
		row(name, fmt.Sprintf("%s %s %s", strconv.FormatUint(d.Count, 10), d.Family, d.Name))
	}
	return t
}

func (s *Status) since() string {
	if s.Agent.Started.IsZero() {
		return ""
	}
	return fmt.Sprintf(", pid %d, version %s, since %s", s.Agent.PID, s.Agent.Build, s.Agent.Started.Format(time.RFC3339))
}

func addresses(addrs ...netip.Addr) string {
	var out []string
	for _, a := range addrs {
		if a.IsValid() {
			out = append(out, a.String())
		}
	}
	return strings.Join(out, ", ")
}
