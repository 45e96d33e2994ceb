// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

// An address that somebody else routes is his to serve: it keeps neither the mode from changing nor the agent from
// being ready.
func TestAForeignRouteInAServicesPlaceKeepsNoModeFromChanging(t *testing.T) {
	n := newTestNode(t)
	n.manifest("dual1.yaml", dualManifest(1))
	n.manifest("dual2.yaml", dualManifest(2))
	r := n.start()
	r.waitReady()
	r.stop()
	const foreign = "10.96.0.1 via 192.0.2.254 dev eth0"
	testenv.Run(t, "sh", "-c", "ip route add "+foreign)
	r = n.start("connectTimeLoadBalancing: Disabled")
	r.waitReady()
	n.untilShell("the routes beside it", "ip route show proto 241", "10.96.0.2 via 169.254.1.1 dev bpfin.cali")
	n.until("the hooks that open connections to go", func() (bool, string) {
		hooks := n.hooks()
		return !slices.ContainsFunc(hooks, func(h string) bool { return strings.HasPrefix(h, "connect") }), fmt.Sprint(hooks)
	})
	if got := n.shell("ip route show 10.96.0.1"); !strings.Contains(got, foreign) {
		t.Errorf("the foreign route has become %q", got)
	}
	r.waitReady()
}

// A connection of this host that netfilter has translated goes on when the pair comes, though its address is routed
// into it from then on: conntrack knows where it belongs.
func TestConnectionsThatNetfilterTranslatesSurviveThePair(t *testing.T) {
	for _, c := range []struct{ name, tool, network, own, server, prefix, services, vip string }{
		{"IPv4", "iptables", "tcp4", "198.51.100.1", "198.51.100.2", "/24", "10.96.0.0/24", "10.96.0.1"},
		{"IPv6", "ip6tables", "tcp6", "2001:db8:5::1", "2001:db8:5::2", "/64", "fd96::/64", "fd96::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t)
			testenv.Run(t, "ip", "link", "set", "lo", "up")
			other := testenv.NewNetNS(t)
			testenv.Veth(t, "ext"+c.network, "wire", other)
			testenv.Run(t, "sh", "-c", "ip addr add "+c.own+c.prefix+" dev ext"+c.network+nodad(c.network)+"; ip route add "+c.services+" dev ext"+c.network)
			var l net.Listener
			if err := testenv.Enter(other, func() (err error) {
				testenv.Run(t, "sh", "-c", "ip addr add "+c.server+c.prefix+" dev wire"+nodad(c.network))
				l, err = net.Listen(c.network, net.JoinHostPort(c.server, "8080"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() { _, _ = io.Copy(conn, conn) }()
				}
			}()
			testenv.Run(t, c.tool, "-t", "nat", "-A", "OUTPUT", "-d", c.vip, "-p", "tcp", "--dport", "80", "-j", "DNAT",
				"--to-destination", net.JoinHostPort(c.server, "8080"))
			conn, err := net.DialTimeout(c.network, net.JoinHostPort(c.vip, "80"), 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			echo := func(when string) {
				t.Helper()
				if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 5)
				if _, err = conn.Write([]byte("hello")); err == nil {
					_, err = io.ReadFull(conn, buf)
				}
				if err != nil || string(buf) != "hello" {
					t.Errorf("%s: %q, %v", when, buf, err)
				}
			}
			echo("before the agent")
			n.manifest("dual1.yaml", dualManifest(1))
			r := n.start("connectTimeLoadBalancing: Disabled")
			r.waitReady()
			n.untilFallback()
			n.untilShell("the pair's chains", c.tool+"-save", "FELIX-LITE-INPUT -i bpfin.cali")
			echo("with the pair in use")
			r.stop()
			echo("without the agent")
		})
	}
}

// nodad is what an address needs to be usable at once.
func nodad(network string) string {
	if network == "tcp6" {
		return " nodad"
	}
	return ""
}
