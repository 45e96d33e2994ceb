// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// xtables runs iptables-restore of a family with some rules; rules of others stay.
func (p *Place) xtables(ctx context.Context, ipv6 bool, rules string) error {
	tool := "iptables-restore"
	if ipv6 {
		tool = "ip6tables-restore"
	}
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "--noflush", "-w")
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(rules), &out, &out
	err := p.Namespace.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w: %s", tool, p.Name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// both runs the same rules for both families.
func (p *Place) both(ctx context.Context, rules string) error {
	if err := p.xtables(ctx, false, rules); err != nil {
		return err
	}
	return p.xtables(ctx, true, rules)
}

// ForwardNothing gives the node a firewall as Docker and careful people make it: FORWARD has the policy
// DROP, and what netfilter calls INVALID is dropped first.
func (n *Node) ForwardNothing(ctx context.Context) error {
	return n.both(ctx, `*filter
:FORWARD DROP
-I FORWARD -m conntrack --ctstate INVALID -j DROP
-I INPUT -m conntrack --ctstate INVALID -j DROP
COMMIT
`)
}

// ForwardAll takes ForwardNothing's firewall away.
func (n *Node) ForwardAll(ctx context.Context) error {
	return n.both(ctx, `*filter
:FORWARD ACCEPT
-D FORWARD -m conntrack --ctstate INVALID -j DROP
-D INPUT -m conntrack --ctstate INVALID -j DROP
COMMIT
`)
}

// HostPort publishes a pod's port on its node as the portmap plugin does: netfilter's DNAT for what is
// sent to one of the node's own addresses.
func (n *Node) HostPort(ctx context.Context, port uint16, to netip.AddrPort) error {
	var rules strings.Builder
	rules.WriteString("*nat\n:CNI-HOSTPORT-DNAT -\n")
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		fmt.Fprintf(&rules, "-A %s -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n", chain)
	}
	for _, proto := range []string{"tcp", "udp"} {
		fmt.Fprintf(&rules, "-A CNI-HOSTPORT-DNAT -p %s --dport %d -j DNAT --to-destination %s\n", proto, port, to)
	}
	rules.WriteString("COMMIT\n")
	return n.xtables(ctx, to.Addr().Is6(), rules.String())
}

// KubeProxy gives the node kube-proxy's rules, in iptables mode and its shape, for one address that the
// agent does not know: balanced at random, masqueraded where the client is no pod or the backend itself.
func (n *Node) KubeProxy(ctx context.Context, vip netip.AddrPort, backends ...netip.AddrPort) error {
	pods, bits := "10.65.0.0/16", 32
	if vip.Addr().Is6() {
		pods, bits = "fd00:65::/32", 128
	}
	var chains, services, ends strings.Builder
	for _, proto := range []string{"tcp", "udp"} {
		match := fmt.Sprintf("-d %s/%d -p %s --dport %d", vip.Addr(), bits, proto, vip.Port())
		service := "KUBE-SVC-" + strings.ToUpper(proto)
		fmt.Fprintf(&chains, ":%s -\n", service)
		fmt.Fprintf(&services, "-A KUBE-SERVICES %s -j %s\n", match, service)
		fmt.Fprintf(&services, "-A %s ! -s %s %s -j KUBE-MARK-MASQ\n", service, pods, match)
		for i, b := range backends {
			end := fmt.Sprintf("KUBE-SEP-%s-%d", strings.ToUpper(proto), i)
			fmt.Fprintf(&chains, ":%s -\n", end)
			choice := ""
			if left := len(backends) - i; left > 1 {
				choice = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
			}
			fmt.Fprintf(&services, "-A %s %s-j %s\n", service, choice, end)
			fmt.Fprintf(&ends, "-A %s -s %s/%d -j KUBE-MARK-MASQ\n", end, b.Addr(), bits)
			fmt.Fprintf(&ends, "-A %s -p %s -j DNAT --to-destination %s\n", end, proto, b)
		}
	}
	return n.xtables(ctx, vip.Addr().Is6(), `*filter
:KUBE-FORWARD -
-I FORWARD -j KUBE-FORWARD
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES -
:KUBE-MARK-MASQ -
:KUBE-POSTROUTING -
`+chains.String()+`-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
`+services.String()+ends.String()+"COMMIT\n")
}

// RedirectTo redirects the place's own TCP connections to some addresses to a port of its own, as a
// mesh's init container does for its sidecar.
func (p *Place) RedirectTo(ctx context.Context, to netip.Prefix, port int) error {
	return p.xtables(ctx, to.Addr().Is6(), fmt.Sprintf(
		"*nat\n-A OUTPUT -p tcp -d %s -j REDIRECT --to-ports %d\nCOMMIT\n", to, port))
}

// ReversePathFilter sets rp_filter of an interface. The kernel uses the larger of its value and that of
// "all", which the lab's nodes have from the machine.
func (n *Node) ReversePathFilter(dev string, value int) error {
	return n.Namespace.sysctls(map[string]string{"net/ipv4/conf/" + dev + "/rp_filter": fmt.Sprint(value)})
}

// AddAddress puts an address on the node's uplink, as keepalived or kube-vip does with a virtual one.
func (n *Node) AddAddress(addr netip.Addr) error {
	h, err := n.Namespace.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	return configure(h, uplinkName, netip.PrefixFrom(addr, addr.BitLen()))
}

// RemoveAddress takes an address off the node's uplink.
func (n *Node) RemoveAddress(ctx context.Context, addr netip.Addr) error {
	out, err := n.Run(ctx, "ip", "addr", "del", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", uplinkName)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
