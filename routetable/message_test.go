// SPDX-License-Identifier: Apache-2.0

package routetable

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

// FuzzMessages: whatever arrives is read or refused, never a panic.
func FuzzMessages(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWROUTE), []byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, 241, 253, 1, 0, 0, 0, 0, 8, 0, 1, 0, 10, 65, 2, 0})
	f.Add(uint16(unix.RTM_NEWROUTE), []byte{unix.AF_INET, 200, 0, 0, unix.RT_TABLE_MAIN, 241, 253, 1, 0, 0, 0, 0, 5, 0, 1, 0, 10})
	f.Add(uint16(unix.RTM_NEWLINK), make([]byte, unix.SizeofIfInfomsg))
	f.Add(uint16(unix.RTM_NEWNEIGH), []byte{unix.AF_INET6, 0, 0, 0, 1, 0, 0, 0, 128, 0, 0, 0, 8, 0, 2, 0, 1, 2, 3, 4})
	f.Add(uint16(unix.RTM_DELLINK), []byte{unix.AF_UNSPEC})
	f.Fuzz(func(t *testing.T, typ uint16, data []byte) {
		for _, m := range parseAll([]syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: typ}, Data: data}}) {
			if m.route != nil && !m.route.key.dst.IsValid() {
				t.Fatalf("an invalid destination was let through: %+v", m.route)
			}
		}
	})
}

func TestRoutesOfOtherTablesAndKindsAreNotTakenForOurs(t *testing.T) {
	t.Parallel()
	testenv.NetNS(t)
	testenv.Veth(t, "cali1", "cali1p", -1)
	for _, args := range []string{
		"route add 10.65.1.2/32 dev cali1 proto 241 table 100",
		"route add blackhole 10.65.1.3/32 proto 241",
		"route add 10.65.1.4/32 dev cali1 proto 241 metric 7",
		"route add 10.65.1.5/32 dev cali1 proto 241 src 127.0.0.1",
		"route add 10.65.1.6/32 dev cali1 proto 241",
		"route add 10.65.1.7/32 dev cali1 proto 241 mtu 1300",
		"route add 10.65.1.8/32 dev cali1 proto 241 mtu 1300 advmss 1000",
		"route add default dev cali1 proto 241",
	} {
		testenv.Run(t, "sh", "-c", "ip "+args)
	}
	c, err := newConn(-1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	got := map[routeKey]routeValue{}
	if err := c.dumpRoutes(unix.AF_INET, DefaultProtocol, func(m routeMsg) { got[m.key] = m.value }); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("cali1")
	if err != nil {
		t.Fatal(err)
	}
	index := l.Attrs().Index
	plain := routeValue{ifindex: index}
	want := map[routeKey]routeValue{
		keyOf(netip.MustParsePrefix("10.65.1.3/32")): {other: true},
		{netip.MustParsePrefix("10.65.1.4/32"), 7}:   plain,
		keyOf(netip.MustParsePrefix("10.65.1.5/32")): {ifindex: index, source: netip.MustParseAddr("127.0.0.1")},
		keyOf(netip.MustParsePrefix("10.65.1.6/32")): plain,
		keyOf(netip.MustParsePrefix("10.65.1.7/32")): {ifindex: index, mtu: 1300},
		keyOf(netip.MustParsePrefix("10.65.1.8/32")): {ifindex: index, mtu: 1300, other: true},
		keyOf(netip.MustParsePrefix("0.0.0.0/0")):    plain,
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%v: got %+v, want %+v", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}
