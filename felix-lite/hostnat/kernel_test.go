// SPDX-License-Identifier: Apache-2.0

package hostnat

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/sysctl"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

func handle(t *testing.T) *netlink.Handle {
	t.Helper()
	testenv.NetNS(t)
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func ensure(t *testing.T, h *netlink.Handle, mtu int, wantChanged bool) Pair {
	t.Helper()
	p, changed, err := Ensure(h, Spec{MTU: mtu})
	if err != nil || changed != wantChanged {
		t.Fatalf("changed %v, %v; want changed %v", changed, err, wantChanged)
	}
	return p
}

func TestThePairIsMadeAsTheRecipeSaysAndThenLeftAlone(t *testing.T) {
	h := handle(t)
	p := ensure(t, h, 1400, true)
	for path, want := range map[string]string{
		"net/ipv4/conf/bpfout.cali/accept_local": "1", "net/ipv4/conf/bpfout.cali/rp_filter": "2", "net/ipv4/conf/bpfout.cali/forwarding": "1",
		"net/ipv6/conf/bpfout.cali/forwarding": "1", "net/ipv6/conf/bpfout.cali/addr_gen_mode": "1", "net/ipv6/conf/bpfin.cali/addr_gen_mode": "1",
		"net/ipv6/conf/bpfin.cali/accept_dad": "0",
	} {
		if got, err := sysctl.Get(path); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", path, got, err, want)
		}
	}
	addrs := testenv.Run(t, "ip", "-o", "addr")
	if !strings.Contains(addrs, "169.254.1.3/32 scope link bpfout.cali") || strings.Contains(addrs, "fe80") || strings.Contains(addrs, InName) {
		t.Errorf("addresses:\n%s", addrs)
	}
	links := testenv.Run(t, "ip", "-o", "link", "show", "up")
	if strings.Count(links, "mtu 1400") != 2 {
		t.Errorf("links:\n%s", links)
	}
	if again := ensure(t, h, 1400, false); again != p {
		t.Errorf("a second look says %+v instead of %+v", again, p)
	}
}

func TestWhatSomebodyChangesIsRepaired(t *testing.T) {
	h := handle(t)
	p := ensure(t, h, 1400, true)
	for _, c := range []struct {
		what, command string
		renewed       bool // the pair is another one afterwards
	}{
		{"an end is deleted", "ip link del bpfout.cali", true},
		{"an end is another device", "ip link del bpfin.cali; ip tuntap add dev bpfin.cali mode tap; ip tuntap add dev bpfout.cali mode tap", true},
		{"the ends belong to others", "ip link del bpfin.cali; ip link add bpfin.cali type veth peer name x; ip link add bpfout.cali type veth peer name y", true},
		{"MTU", "ip link set bpfin.cali mtu 1300; ip link set bpfout.cali mtu 1350", false},
		{"down", "ip link set bpfin.cali down; ip link set bpfout.cali down", false},
		{"address", "ip addr flush dev bpfout.cali", false},
		{"accept_local", "echo 0 > /proc/sys/net/ipv4/conf/bpfout.cali/accept_local", false},
		{"rp_filter", "echo 1 > /proc/sys/net/ipv4/conf/bpfout.cali/rp_filter", false},
		{"IPv6 forwarding", "echo 0 > /proc/sys/net/ipv6/conf/bpfout.cali/forwarding", false},
	} {
		testenv.Run(t, "sh", "-ec", c.command)
		got := ensure(t, h, 1400, true)
		if (got.In != p.In || got.Out != p.Out) != c.renewed {
			t.Errorf("%s: pair %+v, was %+v", c.what, got, p)
		}
		p = ensure(t, h, 1400, false)
	}
	testenv.Run(t, "ip", "link", "set", "bpfout.cali", "address", "02:00:00:00:00:99")
	if p := ensure(t, h, 1400, false); p.OutMAC != [6]byte{2, 0, 0, 0, 0, 0x99} {
		t.Errorf("a changed Ethernet address is not told: %+v", p)
	}
	ensure(t, h, 1500, true) // the uplink's MTU has changed
	ensure(t, h, 1500, false)
}

func TestRemovingThePairLeavesNothingAndNothingElseIsTouched(t *testing.T) {
	h := handle(t)
	state := func() string {
		return testenv.Run(t, "sh", "-c", "ip -br link; ip -br addr; ip route show table all; ip -6 route show table all; grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf 2>/dev/null | sort")
	}
	testenv.Run(t, "ip", "tuntap", "add", "dev", "other", "mode", "tap")
	before := state()
	if present, err := Present(h); present || err != nil {
		t.Errorf("present %v, %v", present, err)
	}
	ensure(t, h, 1500, true)
	if present, err := Present(h); !present || err != nil {
		t.Errorf("present %v, %v", present, err)
	}
	for _, want := range []bool{true, false} {
		if removed, err := Remove(h); removed != want || err != nil {
			t.Errorf("removed %v, %v; want %v", removed, err, want)
		}
	}
	if d := cmp.Diff(before, state()); d != "" {
		t.Errorf("-before +after:\n%s", d)
	}
}

func TestOnlyWhatIsInTheWayIsAdvised(t *testing.T) {
	handle(t)
	testenv.Run(t, "ip", "tuntap", "add", "dev", "eth0", "mode", "tap")
	check := func(v4, v6 bool) []Advice {
		t.Helper()
		advice, err := Check([]string{"eth0", "gone0"}, v4, v6)
		if err != nil {
			t.Fatal(err)
		}
		return advice
	}
	for path, value := range map[string]string{"net/ipv4/conf/eth0/forwarding": "0", "net/ipv6/conf/all/forwarding": "0"} {
		if _, err := sysctl.Set(path, value); err != nil {
			t.Fatal(err)
		}
	}
	four := Advice{Path: "net/ipv4/conf/eth0/forwarding", Value: "0", Need: "1",
		Why: "the kernel drops the answers to pods' connections out of the cluster"}
	six := Advice{Path: "net/ipv6/conf/all/forwarding", Value: "0", Need: "1",
		Why: "the kernel forwards no IPv6 packet, whatever the interface's own setting is"}
	if got := check(true, true); !slices.Equal(got, []Advice{four, six}) {
		t.Errorf("got %q", got)
	}
	if got := check(false, true); !slices.Equal(got, []Advice{six}) {
		t.Errorf("IPv6 alone: %q", got)
	}
	testenv.Run(t, "sh", "-ec", "echo 1 > /proc/sys/net/ipv4/conf/eth0/forwarding; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	if got := check(true, true); len(got) != 0 {
		t.Errorf("all is well: %q", got)
	}
}
