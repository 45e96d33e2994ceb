// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// ownerVariable makes the test binary a process that builds a lab, says its name and waits to be
// killed.
const ownerVariable = "LAB_TEST_OWNER"

func TestMain(m *testing.M) {
	RunChild()
	if os.Getenv(ownerVariable) != "" {
		l, err := Up(context.Background(), Options{NoAgent: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(l.Name)
		select {}
	}
	os.Exit(m.Run())
}

func TestFabricCarriesEveryPathInBothFamiliesWithoutAgents(t *testing.T) {
	t.Parallel()
	l := UpForTest(t, Options{NoAgent: true, SecondUplink: true, SecondaryIP: true})
	for _, path := range []struct{ name, from, to string }{
		{"pod to pod of the same node", "pod11", "pod12"},
		{"pod to pod of another node", "pod11", "pod21"},
		{"pod to itself", "pod11", "pod11"},
		{"outside client to pod", "out1", "pod22"},
		{"pod to outside client", "pod22", "out2"},
		{"node to its pod", "node1", "pod11"},
		{"node to a pod of another node", "node1", "pod21"},
		{"outside client to node", "out2", "node2"},
	} {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ipv6 %v", path.name, ipv6), func(t *testing.T) {
				from, err := l.Place(path.from)
				if err != nil {
					t.Fatal(err)
				}
				to, err := l.Place(path.to)
				if err != nil {
					t.Fatal(err)
				}
				target := netip.AddrPortFrom(to.Address(ipv6), probe.Port).String()
				tcp, err := from.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: 1 << 20})
				check(t, tcp, err, path.to, from.Address(ipv6))
				size := 1500 - 28
				if ipv6 {
					size = 1500 - 48
				}
				udp, err := from.Probe().UDP(t.Context(), probe.UDPArgs{Address: target, Sizes: []int{1, 1200, size}})
				check(t, udp, err, path.to, from.Address(ipv6))
			})
		}
	}
}

func check(t *testing.T, r probe.Result, err error, server string, client netip.Addr) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if r.OK != 1 || r.Backends[server] != 1 || r.Clients[client.String()] != 1 {
		t.Errorf("want one answer from %s to %s, have %s %v", server, client, r, r.Examples)
	}
}

func TestPodWithOneFamilyDoesNotHaveTheOther(t *testing.T) {
	t.Parallel()
	l := UpForTest(t, Options{NoAgent: true, Nodes: []NodeSpec{{Pods: []PodSpec{
		{Name: "four", IPv4: true}, {Name: "six", IPv6: true},
	}}}})
	for _, tt := range []struct {
		pod   string
		has   bool
		proto string
	}{{"four", true, "-4"}, {"four", false, "-6"}, {"six", false, "-4"}, {"six", true, "-6"}} {
		out, err := l.Pod(tt.pod).Run(t.Context(), "ip", tt.proto, "addr", "show", "dev", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(out, "inet"); has != tt.has {
			t.Errorf("pod %s: addresses of ip %s: want %v, have %q", tt.pod, tt.proto, tt.has, out)
		}
	}
}

func TestPodsComeAndGoWhileALabRuns(t *testing.T) {
	t.Parallel()
	l := UpForTest(t, Options{NoAgent: true})
	p, err := l.AddPod(t.Context(), l.Node("node2"), PodSpec{Name: "extra"})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(l.Name)
	if err != nil {
		t.Fatal(err)
	}
	if opened.Pod("extra") == nil {
		t.Error("another process does not see the new pod in the state file")
	}
	if _, err := opened.AddPod(t.Context(), opened.Node("node1"), PodSpec{Name: "theirs"}); err != nil {
		t.Errorf("another process adds a pod: %v", err)
	}
	if err := l.RemovePod(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Namespace.Path()); err == nil {
		t.Error("the removed pod's namespace is still there")
	}
}

func TestLayer3ClientReachesItsNodeThroughTUN(t *testing.T) {
	t.Parallel()
	l := UpForTest(t, Options{NoAgent: true})
	c, err := l.AddTunClient(t.Context(), l.Node("node1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, ipv6 := range []bool{false, true} {
		target := netip.AddrPortFrom(l.Pod("pod11").Address(ipv6), probe.Port).String()
		r, err := c.Probe().TCP(t.Context(), probe.TCPArgs{Address: target, Bytes: 1 << 20})
		check(t, r, err, "pod11", c.Address(ipv6))
	}
}

func TestFloodSendsWhatItSays(t *testing.T) {
	t.Parallel()
	l := UpForTest(t, Options{NoAgent: true})
	from := l.Clients[0]
	r, err := from.Probe().Flood(t.Context(), probe.FloodArgs{
		Interface: uplinkName, GatewayMAC: macFor("router/" + from.Name).String(), Sources: "10.128.0.0/9",
		Target: net.JoinHostPort(l.Pod("pod11").IPv4.String(), strconv.Itoa(probe.Port)), Count: 10000,
	})
	if err != nil || r.Sent != 10000 {
		t.Fatalf("want 10000 packets, have %+v, %v", r, err)
	}
}

func TestKilledOwnerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	name, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	name = strings.TrimSpace(name)
	if len(Leftovers(name)) == 0 {
		t.Fatalf("lab %q has made nothing", name)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := WaitFor(ctx, "the guard to remove lab "+name, func() (bool, string) {
		left := Leftovers(name)
		return len(left) == 0, strings.Join(left, "\n")
	}); err != nil {
		t.Error(err)
	}
}

func TestJanitorRemovesLabsOfDeadOwnersOnly(t *testing.T) {
	t.Parallel()
	mine := UpForTest(t, Options{NoAgent: true, Nodes: []NodeSpec{{}}})
	dead, err := create(Options{NoAgent: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.buildFabric(); err != nil {
		t.Fatal(err)
	}
	dead.Owner = ProcessID{PID: os.Getpid(), Start: 1} // the id was reused by another process
	if err := dead.save(); err != nil {
		t.Fatal(err)
	}
	if err := Janitor(); err != nil {
		t.Fatal(err)
	}
	if left := Leftovers(dead.Name); len(left) > 0 {
		t.Errorf("the dead owner's lab is still there: %v", left)
	}
	if err := mine.Nodes[0].waitProber(t.Context()); err != nil {
		t.Errorf("the living owner's lab was touched: %v", err)
	}
}
