// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// where names a program on one of the two nodes: of the entry node (node 1: the client's, or where
// outside traffic comes in) or of the far one (node 2).
type where struct {
	far   bool
	hook  layout.Hook
	class layout.Class
}

// count is a counter that must have grown by at least min.
type count struct {
	at      where
	counter layout.Counter
	min     uint64
}

// whom is the client that the backend sees.
type whom int

const (
	theClient whom = iota // with its own address
	itsNode               // masqueraded
)

// mechanism is what the counters show when traffic took a certain way: counters that must have grown,
// and counters that must not have, on either node and in any program.
type mechanism struct {
	want    []count
	never   []layout.Counter
	sees    whom
	refused bool // there is no answer but a refusal
}

// redirected says whether netfilter in the client pod sends the cell to the pod's own sidecar.
func (c Cell) redirected() bool { return c.From == FromMesh && !c.Socket.udp() }

// refused says whether the cell wants a refusal.
func (c Cell) refused() bool {
	_, m, err := c.mechanism()
	return err == nil && m.refused
}

// mechanism finds what must carry the cell.
func (c Cell) mechanism() (name string, m mechanism, err error) {
	name = c.Packets
	if c.atConnect() {
		name = c.Connect
		m.never = append(m.never, balanced...)
	}
	for _, part := range strings.Split(name, " + ") {
		found, err := c.part(part)
		if err != nil {
			return "", mechanism{}, err
		}
		m.want = append(m.want, found.want...)
		m.never = append(m.never, found.never...)
		m.sees = max(m.sees, found.sees)
		m.refused = m.refused || found.refused
	}
	slices.Sort(m.never)
	m.never = slices.Compact(m.never)
	if c.atConnect() {
		name = "CTLB, " + name
	}
	return name, m, nil
}

func (c Cell) part(name string) (mechanism, error) {
	if other, ok := aliases[name+" "+c.protocol()]; ok {
		name = other
	}
	for _, full := range []string{name, name + " " + c.Site.Overlay, name + " " + c.protocol()} {
		if m, ok := mechanisms[full]; ok {
			return m, nil
		}
	}
	return mechanism{}, fmt.Errorf("cell %s to %s, %s: no mechanism %q", c.From, c.To, c.Backend, name)
}

func (w where) variant(ipv6 bool) lab.Variant {
	v := lab.Variant{Class: w.class, Hook: w.hook, Family: layout.FamilyV4}
	if ipv6 {
		v.Family = layout.FamilyV6
	}
	return v
}

func (w where) name(ipv6 bool) string {
	node := "node1"
	if w.far {
		node = "node2"
	}
	return node + " " + w.variant(ipv6).String()
}
