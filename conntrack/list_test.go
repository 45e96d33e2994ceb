// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestAnEntryIsListedInWordsOfPeople(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 16, 16)
	type A = layout.AddrV4
	// A client whose address is higher than the server's: the key's sides are swapped.
	k.put(flow[A]{client: addr[A](200, 40000), server: addr[A](9, 80), backend: addr[A](2, 8080), service: 5,
		state: layout.CTEstablished, timeout: time.Hour, flags: layout.CTFApproved0 | layout.CTFApproved1})
	k.sleep(3500 * time.Millisecond)
	var fwd, rev Entry
	for _, e := range k.wantEntries(2) {
		if e.Type == "nat-fwd" {
			fwd = e
		} else {
			rev = e
		}
	}
	wantLine := func(e *Entry, want string) {
		t.Helper()
		if got := e.String(); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	wantLine(&fwd, "tcp 10.65.0.200:40000 -> 10.65.0.9:80 => 10.65.0.200:40000 -> 10.65.0.2:8080 nat-fwd established "+
		"idle 3.5s/1h0m0s age 3.5s | out 3 pkt 300 B approved unknown | in 2 pkt 200 B approved unknown | service 5 backend 0 "+
		"| "+strings.Join(fwd.Flags, ","))
	wantLine(&rev, "tcp 10.65.0.200:40000 -> 10.65.0.2:8080 => 10.65.0.9:80 -> 10.65.0.200:40000 nat-rev established "+
		"idle 3.5s/1h0m0s age 3.5s | out 3 pkt 300 B approved unknown | in 2 pkt 200 B approved unknown | service 5 backend 0 "+
		"| "+strings.Join(rev.Flags, ","))
	if !strings.Contains(strings.Join(fwd.Flags, ","), "approved-0,approved-1") {
		t.Fatalf("flags %v", fwd.Flags)
	}
	raw, err := json.Marshal(&fwd)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if back["source"] != "10.65.0.200:40000" || back["natDestination"] != "10.65.0.2:8080" || back["idle"] != 3.5 {
		t.Fatalf("JSON %s", raw)
	}
	var again Entry
	if err := json.Unmarshal(raw, &again); err != nil || !reflect.DeepEqual(again, fwd) {
		t.Fatalf("read back from JSON: %+v, %v; want %+v", again, err, fwd)
	}
}

func TestListAndFlushSelectTheSame(t *testing.T) { bothFamilies(t, testFilter, testFilter) }

func testFilter[A layout.Address](t *testing.T, k *kernel[A]) {
	fillAll := func() {
		k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080), service: 5,
			state: layout.CTEstablished, timeout: time.Hour})
		k.put(flow[A]{client: addr[A](1, 1001), server: addr[A](2, 8080), state: layout.CTNew, timeout: time.Hour, half: true})
		k.put(flow[A]{client: addr[A](3, 1000), server: addr[A](4, 53), proto: 17, state: layout.CTEstablished, timeout: time.Hour})
	}
	host := func(n byte) netip.Prefix {
		a := addr[A](n, 0).Addr()
		return netip.PrefixFrom(a, a.BitLen())
	}
	for name, c := range map[string]struct {
		filter        Filter
		listed, flush int // flushing one of a pair takes the other along
	}{
		"everything":                      {Filter{}, 4, 4},
		"an address":                      {Filter{Prefix: host(1)}, 3, 3},
		"a virtual address, in both ways": {Filter{Prefix: host(9)}, 2, 2},
		"a prefix":                        {Filter{Prefix: netip.PrefixFrom(addr[A](0, 0).Addr(), addr[A](0, 0).Addr().BitLen()-8)}, 4, 4},
		"a port":                          {Filter{Port: 8080}, 3, 3},
		"address and port":                {Filter{Prefix: host(3), Port: 1000}, 1, 1},
		"a protocol":                      {Filter{Proto: 17}, 1, 1},
		"a service":                       {Filter{ServiceID: 5}, 2, 2},
		"a state":                         {Filter{State: "new"}, 1, 1},
		"nothing":                         {Filter{Prefix: host(77)}, 0, 0},
		"the other family":                {Filter{Prefix: netip.MustParsePrefix("::/0")}, map[bool]int{true: 4}[familyName[A]() == "v6"], map[bool]int{true: 4}[familyName[A]() == "v6"]},
	} {
		fillAll()
		if got := len(k.list(c.filter)); got != c.listed {
			t.Errorf("%s: %d listed, want %d", name, got, c.listed)
		}
		n, err := Flush(k.tables, k.clock, c.filter)
		if err != nil || n != c.flush {
			t.Errorf("%s: %d flushed (%v), want %d", name, n, err, c.flush)
		}
		rest := k.list(Filter{})
		if len(rest) != 4-c.flush {
			t.Errorf("%s: %d left, want %d", name, len(rest), 4-c.flush)
		}
		if errs := CheckInvariants(rest, 0); errs != nil {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestFlushingOneEntryOfAPairTakesItsTwinAlong(t *testing.T) {
	k := newKernel[layout.AddrV4](t, 16, 16)
	type A = layout.AddrV4
	keys := k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080), timeout: time.Hour})
	var v layout.CTValue[A]
	if err := k.f.confirmed.Lookup(&keys[1], &v); err != nil {
		t.Fatal(err)
	}
	v.SvcID = 7 // only this one is selected
	if err := k.f.confirmed.Put(&keys[1], &v); err != nil {
		t.Fatal(err)
	}
	if n, err := Flush(k.tables, k.clock, Filter{ServiceID: 7}); n != 2 || err != nil {
		t.Fatalf("flushed %d, %v; want both", n, err)
	}
}

func TestInvariantsFindWhatIsWrong(t *testing.T) {
	type A = layout.AddrV4
	for name, c := range map[string]struct {
		harm func(*kernel[A], []layout.CTKey[A])
		want string
	}{
		"a twin is missing": {func(k *kernel[A], keys []layout.CTKey[A]) { k.del(keys[0]) }, "twin is missing"},
		"twins name different backends": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[0], func(v *layout.CTValue[A]) { v.BackendID = 9 })
		}, "different backends"},
		"the twin belongs to another flow": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) { v.NATSportBE = layout.PortBE(81) })
		}, "another flow"},
		"spare bytes are used": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) { v.Spare[3] = 1 })
		}, "spare bytes"},
		"an unknown state": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) { v.TCPState = 77 })
		}, "unknown state"},
		"an unknown type": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) { v.Type = 9 })
		}, "unknown type"},
		"a confirmed flow without an answer": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) { v.TCPState = uint8(layout.CTNew) })
		}, "nobody answered"},
		"sides out of order": {func(k *kernel[A], keys []layout.CTKey[A]) {
			k.change(keys[1], func(v *layout.CTValue[A]) {
				key := keys[1]
				key.AddrA, key.AddrB, key.PortABE, key.PortBBE = key.AddrB, key.AddrA, key.PortBBE, key.PortABE
				if err := k.f.confirmed.Put(&key, v); err != nil {
					k.t.Fatal(err)
				}
			})
		}, "not in order"},
	} {
		k := newKernel[A](t, 16, 16)
		keys := k.put(flow[A]{client: addr[A](1, 1000), server: addr[A](9, 80), backend: addr[A](2, 8080),
			state: layout.CTEstablished, timeout: time.Hour})
		if errs := CheckInvariants(k.wantEntries(2), 0); errs != nil {
			t.Fatal(errs)
		}
		c.harm(k, keys)
		found := false
		for _, err := range CheckInvariants(k.list(Filter{}), 0) {
			found = found || strings.Contains(err.Error(), c.want)
		}
		if !found {
			t.Errorf("%s: not found in %v", name, CheckInvariants(k.list(Filter{}), 0))
		}
	}
}

// change edits an entry in place.
func (k *kernel[A]) change(key layout.CTKey[A], edit func(*layout.CTValue[A])) {
	k.t.Helper()
	var v layout.CTValue[A]
	m, err := k.f.lookup(&key, &v)
	if err != nil || m == nil {
		k.t.Fatal(keyString(&key), err)
	}
	edit(&v)
	if err := m.Put(&key, &v); err != nil {
		k.t.Fatal(err)
	}
}

func TestProtocolsAreReadByNameAndNumber(t *testing.T) {
	for in, want := range map[string]uint8{"tcp": 6, "UDP": 17, "icmpv6": 58, "sctp": 132, "47": 47} {
		if got, err := ParseProto(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "tcpp", "256", "-1", "6 ", "0x6"} {
		if got, err := ParseProto(in); err == nil {
			t.Errorf("%q is taken for %d", in, got)
		}
	}
}

func TestStatesAreKnownByNameAndOthersAreRefused(t *testing.T) {
	if got, err := ParseState("Established"); err != nil || got != layout.CTEstablished.String() {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ParseState("open"); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q, %v: want an error that names the states", got, err)
	}
}
