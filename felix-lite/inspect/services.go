// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// Services lists the frontends with the backends that they lead to.
type Services []Frontend

// Frontend is one entry of a frontend map.
type Frontend struct {
	Family    string     `json:"family"`
	Address   netip.Addr `json:"address"`
	AnyNode   bool       `json:"anyNode,omitempty"` // a NodePort on the address of any other node
	Port      uint16     `json:"port"`
	Protocol  string     `json:"protocol"`
	ServiceID uint32     `json:"serviceID"`
	Service   string     `json:"service"`
	Flags     []string   `json:"flags"`
	Affinity  uint32     `json:"affinitySeconds,omitempty"`
	Cluster   []Backend  `json:"cluster"`
	Local     []Backend  `json:"local"`
}

// Backend is one entry of a backend list. Missing marks a place that a frontend counts and the map
// does not have: packets that choose it are dropped.
type Backend struct {
	Ordinal uint32     `json:"ordinal"`
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	Weight  uint16     `json:"weight,omitempty"`
	ID      uint32     `json:"id,omitempty"`
	Missing bool       `json:"missing,omitempty"`
}

// Services reads the service maps.
func (v *View) Services() (Services, error) {
	backends := map[maps.BackendKey]maps.Backend{}
	if err := v.Maps.Backends.All(func(k maps.BackendKey, b maps.Backend) bool {
		backends[k] = b
		return true
	}); err != nil {
		return nil, fmt.Errorf("read backends: %w", err)
	}
	out := Services{}
	err := v.Maps.Frontends.All(func(k maps.FrontendKey, f layout.FEValue) bool {
		family := layout.FamilyOf(k.Addr)
		fe := Frontend{Family: family.String(), Address: k.Addr, AnyNode: k.Addr == maps.AnyNode(family), Port: k.Port,
			Protocol: protocol(k.Proto), ServiceID: f.SvcID, Service: v.serviceName(family, f.SvcID),
			Flags: flagList(layout.FEFlag(f.Flags).String()), Affinity: f.AffinityTimeout,
			Cluster: list(backends, family, f.SvcID, 0, f.ClusterCount),
			Local:   list(backends, family, f.SvcID, uint32(layout.BELocal), f.LocalCount)}
		out = append(out, fe)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read frontends: %w", err)
	}
	slices.SortFunc(out, func(a, b Frontend) int {
		if c := strings.Compare(a.Service, b.Service); c != 0 {
			return c
		}
		if c := strings.Compare(a.Family, b.Family); c != 0 {
			return c
		}
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		if c := int(a.Port) - int(b.Port); c != 0 {
			return c
		}
		return strings.Compare(a.Protocol, b.Protocol)
	})
	return out, nil
}

func list(all map[maps.BackendKey]maps.Backend, family layout.Family, svc, bits, count uint32) []Backend {
	// A count beyond what the map can hold is shown as one missing place, not as millions.
	out := []Backend{}
	for i := range count {
		b, ok := all[maps.BackendKey{Family: family, SvcID: svc, Ordinal: i | bits}]
		out = append(out, Backend{Ordinal: i, Address: b.Addr, Port: b.Port, Weight: b.Weight, ID: b.ID, Missing: !ok})
		if !ok && len(all) < int(i) {
			break
		}
	}
	return out
}

// Table implements Lister.
func (s Services) Table() Table {
	t := Table{Columns: []string{"SERVICE", "FRONTEND", "PROTO", "FLAGS", "AFFINITY", "CLUSTER", "LOCAL", "BACKENDS"},
		Empty: "no services are programmed"}
	for _, f := range s {
		addr := netip.AddrPortFrom(f.Address, f.Port).String()
		if f.AnyNode {
			addr = fmt.Sprintf("*(%s):%d", f.Family, f.Port)
		}
		affinity := ""
		if f.Affinity != 0 {
			affinity = fmt.Sprintf("%ds", f.Affinity)
		}
		shown := f.Cluster
		if len(shown) == 0 {
			shown = f.Local
		}
		var backends []string
		for _, b := range shown {
			backends = append(backends, b.String())
		}
		t.Rows = append(t.Rows, []string{f.Service, addr, f.Protocol, strings.Join(f.Flags, ","), affinity,
			strconv.Itoa(len(f.Cluster)), strconv.Itoa(len(f.Local)), some(backends, 4)})
	}
	return t
}

// String is address:port.
func (b Backend) String() string {
	if b.Missing {
		return fmt.Sprintf("missing[%d]", b.Ordinal)
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}

func protocol(p uint8) string {
	switch p {
	case 6:
		return "TCP"
	case 17:
		return "UDP"
	case 132:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

// flagList splits what the generated flag types print; "-" means none.
func flagList(s string) []string {
	if s == "-" || s == "" {
		return []string{}
	}
	return strings.Split(s, ",")
}
