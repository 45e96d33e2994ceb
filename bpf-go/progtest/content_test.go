// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/conntrack"
)

// service is one frontend with its backends.
type service struct {
	id       uint32 // 1 if zero
	at       string // "vip:80"
	proto    uint8
	flags    layout.FEFlag
	affinity uint32   // seconds
	cluster  []string // backends of the cluster list: "podB:8080"
	local    []string
	missing  bool // the frontend counts backends that are not there
}

// svc is a ClusterIP.
func svc(at string, proto uint8, backends ...string) service {
	return service{at: at, proto: proto, cluster: backends}
}

// external is a NodePort, ExternalIP or LoadBalancer IP.
func external(at string, proto uint8, backends ...string) service {
	return service{at: at, proto: proto, cluster: backends, flags: layout.FEExternal}
}

func (s service) with(flags layout.FEFlag) service   { s.flags |= flags; return s }
func (s service) locally(backends ...string) service { s.local = backends; return s }
func (s service) sticky(seconds uint32) service      { s.affinity = seconds; return s }
func (s service) number(id uint32) service           { s.id = id; return s }
func (s service) withoutBackends() service           { s.missing = true; return s }
func (s service) replaces() func(*run)               { return func(r *run) { r.must(r.addService(s)) } }
func (s service) svcID() uint32                      { return max(1, s.id) }
func (s service) key(f layout.Family) maps.FrontendKey {
	addr, port := endOf(s.at, f)
	return maps.FrontendKey{Addr: addr, Port: port, Proto: s.proto}
}

// addService writes a service in the order that the agent keeps: backends, then the frontend.
func (r *run) addService(s service) error {
	ids := map[string]uint32{}
	put := func(ordinal uint32, end string, flags layout.BEFlag) error {
		addr, port := endOf(end, r.family)
		return r.set.Backends.Put(
			maps.BackendKey{Family: r.family, SvcID: s.svcID(), Ordinal: ordinal},
			maps.Backend{Addr: addr, Port: port, ID: ids[end], Flags: uint32(flags)})
	}
	for _, end := range append(slices.Clone(s.cluster), s.local...) {
		if _, known := ids[end]; !known {
			ids[end] = backendNumber(end)
		}
	}
	for i, end := range s.cluster {
		if s.missing {
			break
		}
		if err := put(uint32(i), end, 0); err != nil {
			return err
		}
	}
	for i, end := range s.local {
		if err := put(uint32(layout.BELocal)|uint32(i), end, 0); err != nil {
			return err
		}
	}
	if !s.missing {
		for end, id := range ids {
			var in layout.BEFlag
			if slices.Contains(s.cluster, end) {
				in |= layout.BefCluster
			}
			if slices.Contains(s.local, end) {
				in |= layout.BefLocal
			}
			if err := put(uint32(layout.BEByID)|id, end, in); err != nil {
				return err
			}
		}
	}
	return r.set.Frontends.Put(s.key(r.family), layout.FEValue{
		SvcID: s.svcID(), Flags: uint32(s.flags), AffinityTimeout: s.affinity,
		ClusterCount: uint32(len(s.cluster)), LocalCount: uint32(len(s.local)),
	})
}

// backendNumber is a backend's id: the same wherever it stands.
func backendNumber(end string) uint32 {
	var n uint32
	for _, c := range end {
		n = n*31 + uint32(c)
	}
	return n & 0x3fff
}

func parseVariant(name string) (variants.Variant, error) { return variants.Parse(name) }

// ctMap is one of the conntrack maps of either family.
type ctMap interface {
	clear() error
	age(jiffies uint64) error
	fill() error
}

func (n *node) conntrackMaps() []ctMap {
	return []ctMap{
		ctMapOf[layout.AddrV4]{n.set.ConntrackV4.Confirmed}, ctMapOf[layout.AddrV4]{n.set.ConntrackV4.HalfOpen},
		ctMapOf[layout.AddrV6]{n.set.ConntrackV6.Confirmed}, ctMapOf[layout.AddrV6]{n.set.ConntrackV6.HalfOpen},
	}
}

type ctMapOf[A layout.Address] struct {
	m *maps.Map[layout.CTKey[A], layout.CTValue[A]]
}

func (c ctMapOf[A]) entries() (map[layout.CTKey[A]]layout.CTValue[A], error) {
	found := map[layout.CTKey[A]]layout.CTValue[A]{}
	err := c.m.All(func(k layout.CTKey[A], v layout.CTValue[A]) bool {
		found[k] = v
		return true
	})
	return found, err
}

func (c ctMapOf[A]) clear() error {
	found, err := c.entries()
	for k := range found {
		if err == nil {
			err = c.m.Remove(k)
		}
	}
	return err
}

func (c ctMapOf[A]) age(jiffies uint64) error {
	found, err := c.entries()
	for k, v := range found {
		v.LastSeen -= uint32(jiffies)
		v.Created -= jiffies
		if err == nil {
			err = c.m.Put(k, v)
		}
	}
	return err
}

// fill puts flows of others into the map until it takes no more.
func (c ctMapOf[A]) fill() error {
	for i := range 4 * confirmedSize {
		k := layout.CTKey[A]{PortABE: uint16(i), Proto: 99}
		err := c.m.Put(k, layout.CTValue[A]{Timeout: 1 << 30})
		if errors.Is(err, unix.E2BIG) {
			return nil // full
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%s takes more than %d entries", c.m.Name(), 4*confirmedSize)
}

// fillConfirmed leaves no room in the table of confirmed flows.
func fillConfirmed(r *run) {
	if r.family == layout.FamilyV4 {
		r.must(ctMapOf[layout.AddrV4]{r.set.ConntrackV4.Confirmed}.fill())
	} else {
		r.must(ctMapOf[layout.AddrV6]{r.set.ConntrackV6.Confirmed}.fill())
	}
}

func (n *node) ageAffinity(jiffies uint64) error {
	found := map[maps.AffinityKey]layout.AffValue{}
	if err := n.set.Affinity.All(func(k maps.AffinityKey, v layout.AffValue) bool {
		found[k] = v
		return true
	}); err != nil {
		return err
	}
	for k, v := range found {
		v.LastUsed -= jiffies
		if err := n.set.Affinity.Put(k, v); err != nil {
			return err
		}
	}
	return nil
}

// tables are the family's conntrack maps, for reading.
func (r *run) tables() conntrack.Tables {
	if r.family == layout.FamilyV4 {
		return conntrack.Tables{V4: r.set.ConntrackV4.Confirmed.Raw(), V4Half: r.set.ConntrackV4.HalfOpen.Raw()}
	}
	return conntrack.Tables{V6: r.set.ConntrackV6.Confirmed.Raw(), V6Half: r.set.ConntrackV6.HalfOpen.Raw()}
}

// checkEntries compares conntrack with what the fixture says, and looks for entries that contradict each other.
func (r *run) checkEntries(f fixture) {
	entries, err := conntrack.List(r.tables(), conntrack.Clock{Jiffies: r.clock.Jiffies, HZ: r.clock.HZ}, conntrack.Filter{})
	r.must(err)
	if f.keep {
		return
	}
	for _, err := range conntrack.CheckInvariants(entries, 24*time.Hour) {
		r.fail("conntrack: %v", err)
	}
	var have []string
	for i := range entries {
		have = append(have, r.entryText(&entries[i]))
	}
	want := slices.Clone(f.entries)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		r.fail("conntrack holds\n\t%s\nwant\n\t%s", quoted(have), quoted(want))
	}
}

func quoted(lines []string) string {
	var b []string
	for _, l := range lines {
		b = append(b, fmt.Sprintf("%q,", l))
	}
	return strings.Join(b, "\n\t")
}

// entryText is an entry in one line that is the same in both families:
//
//	tcp podA:40000 > vip:80 => podA:40000 > podB:8080 | nat-fwd new half-open | 1/0 packets | veth podB, peer podA | approved-0
//
// The two ways are those of the opener's packets and of the answers.
func (r *run) entryText(e *conntrack.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s > %s", strings.TrimSuffix(e.Proto, "v6"), nameOf(e.Source), nameOf(e.Destination))
	if e.Translated() {
		fmt.Fprintf(&b, " => %s > %s", nameOf(e.NATSource), nameOf(e.NATDestination))
	}
	fmt.Fprintf(&b, " | %s %s", e.Type, e.State)
	if e.HalfOpen {
		b.WriteString(" half-open")
	}
	if e.Dead {
		b.WriteString(" dead")
	}
	if e.Zone != 0 {
		fmt.Fprintf(&b, " zone %d", e.Zone)
	}
	fmt.Fprintf(&b, " | %d/%d packets | ", e.Packets[0], e.Packets[1])
	for leg := range 2 {
		if leg == 1 {
			b.WriteString(", ")
		}
		b.WriteString(e.Forward[leg])
		if i := e.Ifindex[1-leg]; i != 0 {
			fmt.Fprintf(&b, " %s", r.deviceName(i))
		}
	}
	if e.TunnelPeer.IsValid() {
		fmt.Fprintf(&b, " | peer %s", byAddress[e.TunnelPeer])
	}
	flags := slices.DeleteFunc(slices.Clone(e.Flags), func(s string) bool {
		return s == "key-swapped" || s == "tun-v6" || s == "tun-peer" // by address, by underlay, said above
	})
	if len(flags) > 0 {
		fmt.Fprintf(&b, " | %s", strings.Join(flags, " "))
	}
	return b.String()
}
