// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// testHZ is the jiffies a second in tests; startJiffies is just before the 32-bit clock wraps, so that every test that
// lets time pass crosses the wrap.
const (
	testHZ       = 250
	startJiffies = uint64(7)<<32 - 100*testHZ
)

// kernel is a set of private maps and a clock that the test sets.
type kernel[A layout.Address] struct {
	t      testing.TB
	f      family[A]
	tables Tables
	clock  Clock
	now    uint64
	wall   time.Time
}

func newKernel[A layout.Address](t testing.TB, confirmed, half uint32) *kernel[A] {
	t.Helper()
	testenv.RequireRoot(t)
	k := &kernel[A]{t: t, now: startJiffies, wall: time.Unix(1000, 0)}
	k.f = family[A]{newMap[A](t, ebpf.Hash, confirmed), newMap[A](t, ebpf.LRUHash, half)}
	var a A
	if a.Family() == layout.FamilyV6 {
		k.tables = Tables{V6: k.f.confirmed, V6Half: k.f.half}
	} else {
		k.tables = Tables{V4: k.f.confirmed, V4Half: k.f.half}
	}
	k.clock = Clock{HZ: testHZ, Jiffies: func() (uint64, error) { return k.now, nil }}
	return k
}

func newMap[A layout.Address](t testing.TB, typ ebpf.MapType, entries uint32) *ebpf.Map {
	t.Helper()
	var key layout.CTKey[A]
	var value layout.CTValue[A]
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "ct_test", Type: typ, MaxEntries: entries,
		KeySize: uint32(unsafe.Sizeof(key)), ValueSize: uint32(unsafe.Sizeof(value)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// sleep lets the datapath's and the loop's time pass.
func (k *kernel[A]) sleep(d time.Duration) {
	k.now += uint64(d.Seconds() * testHZ)
	k.wall = k.wall.Add(d)
}

func (k *kernel[A]) sweeper(opts Options) *Sweeper {
	opts.Tables = func() Tables { return k.tables }
	opts.Clock = k.clock
	if opts.Now == nil {
		opts.Now = func() time.Time { return k.wall }
	}
	return NewSweeper(opts)
}

// sweep runs a whole sweep and returns its statistics.
func (k *kernel[A]) sweep(s *Sweeper) Stats {
	k.t.Helper()
	for range 1000 {
		finished, err := s.Step()
		if err != nil {
			k.t.Fatal(err)
		}
		if finished {
			return s.Last()
		}
	}
	k.t.Fatal("the sweep does not end")
	return Stats{}
}

func (k *kernel[A]) list(f Filter) []Entry {
	k.t.Helper()
	entries, err := List(k.tables, k.clock, f)
	if err != nil {
		k.t.Fatal(err)
	}
	return entries
}

func (k *kernel[A]) wantEntries(n int) []Entry {
	k.t.Helper()
	entries := k.list(Filter{})
	if len(entries) != n {
		for i := range entries {
			k.t.Log(entries[i].String())
		}
		k.t.Fatalf("%d entries, want %d", len(entries), n)
	}
	return entries
}

// flow is what the datapath would write for a flow.
type flow[A layout.Address] struct {
	client, server, backend netip.AddrPort // backend: only where translated
	proto                   uint8
	state                   layout.CTState
	timeout                 time.Duration
	flags                   layout.CTFlag
	half                    bool
	service                 uint32
}

// addrs returns an address of the family for small numbers.
func addr[A layout.Address](n byte, port uint16) netip.AddrPort {
	var a A
	if a.Family() == layout.FamilyV6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x65, 15: n}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 65, 0, n}), port)
}

// keyOf makes a flow's key and the flag that says that leg 0 is side b.
func keyOf[A layout.Address](t testing.TB, src, dst netip.AddrPort, proto, zone uint8) (layout.CTKey[A], layout.CTFlag) {
	t.Helper()
	s, err := layout.AddrFrom[A](src.Addr())
	if err != nil {
		t.Fatal(err)
	}
	d, err := layout.AddrFrom[A](dst.Addr())
	if err != nil {
		t.Fatal(err)
	}
	key := normalKey(s, d, layout.PortBE(src.Port()), layout.PortBE(dst.Port()), proto, zone)
	if key.AddrA != s || key.PortABE != layout.PortBE(src.Port()) {
		return key, layout.CTFKeySwapped
	}
	return key, 0
}

// put writes the entries of a flow, seen now, and returns their keys: one, or forward and reverse.
func (k *kernel[A]) put(fl flow[A]) []layout.CTKey[A] {
	k.t.Helper()
	m := k.f.confirmed
	if fl.half {
		m = k.f.half
	}
	if fl.proto == 0 {
		fl.proto = 6
	}
	value := layout.CTValue[A]{
		LastSeen: uint32(k.now), Created: k.now, Timeout: uint32(fl.timeout.Seconds() * testHZ),
		TCPState: uint8(fl.state), SvcID: fl.service, Packets: [2]uint64{3, 2}, Bytes: [2]uint64{300, 200},
	}
	nat := func(src, dst netip.AddrPort) {
		value.NATSrc, _ = layout.AddrFrom[A](src.Addr())
		value.NATDst, _ = layout.AddrFrom[A](dst.Addr())
		value.NATSportBE, value.NATDportBE = layout.PortBE(src.Port()), layout.PortBE(dst.Port())
	}
	write := func(key layout.CTKey[A], typ layout.CTType, swapped layout.CTFlag) layout.CTKey[A] {
		value.Type, value.Flags = uint8(typ), uint32(fl.flags|swapped)
		if err := m.Put(&key, &value); err != nil {
			k.t.Fatal(err)
		}
		return key
	}
	if !fl.backend.IsValid() {
		key, swapped := keyOf[A](k.t, fl.client, fl.server, fl.proto, 0)
		return []layout.CTKey[A]{write(key, layout.CTNormal, swapped)}
	}
	var zone uint8
	if fl.flags&layout.CTFConflict != 0 {
		zone = 1
	}
	fwd, fwdSwapped := keyOf[A](k.t, fl.client, fl.server, fl.proto, zone)
	rev, revSwapped := keyOf[A](k.t, fl.client, fl.backend, fl.proto, 0)
	nat(fl.client, fl.backend)
	write(fwd, layout.CTNATFwd, fwdSwapped)
	nat(fl.server, fl.client)
	write(rev, layout.CTNATRev, revSwapped)
	return []layout.CTKey[A]{fwd, rev}
}

// see refreshes one entry, as a packet would.
func (k *kernel[A]) see(key layout.CTKey[A]) {
	k.t.Helper()
	var v layout.CTValue[A]
	m, err := k.f.lookup(&key, &v)
	if err != nil || m == nil {
		k.t.Fatalf("entry %s: %v, %v", keyString(&key), m, err)
	}
	v.LastSeen = uint32(k.now)
	if err := m.Put(&key, &v); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel[A]) del(key layout.CTKey[A]) {
	k.t.Helper()
	for _, m := range []*ebpf.Map{k.f.confirmed, k.f.half} {
		if err := m.Delete(&key); err == nil {
			return
		}
	}
	k.t.Fatalf("no entry %s", keyString(&key))
}

// bothFamilies runs a test in each family.
func bothFamilies(t *testing.T, v4 func(*testing.T, *kernel[layout.AddrV4]), v6 func(*testing.T, *kernel[layout.AddrV6])) {
	t.Run("IPv4", func(t *testing.T) { v4(t, newKernel[layout.AddrV4](t, 1024, 1024)) })
	t.Run("IPv6", func(t *testing.T) { v6(t, newKernel[layout.AddrV6](t, 1024, 1024)) })
}
