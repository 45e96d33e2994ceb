// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Rules in the shape of kube-proxy's, written for this benchmark: what a packet meets on its way is
// the same (the number of hooks, jumps, look-ups and conntrack expressions), the texts are our own.

// nftRules writes one family's table: two verdict maps lead from the frontend to the service's chain,
// a random number to the endpoint's chain, which marks hairpin traffic and translates the address.
func nftRules(w io.Writer, f family, ports []servicePort) {
	ip, addrType := "ip", "ipv4_addr"
	if f == 6 {
		ip, addrType = "ip6", "ipv6_addr"
	}
	fmt.Fprintf(w, "table %s bench-proxy {\n", ip)
	fmt.Fprintf(w, " set cluster-ips { type %s; elements = { %s } }\n", addrType, strings.Join(addresses(ports), ", "))
	fmt.Fprintf(w, " set node-ips { type %s; elements = { %s } }\n", addrType, nodeAddr[f])
	for _, m := range []string{"empty-services", "firewalled"} {
		fmt.Fprintf(w, " map %s { type %s . inet_proto . inet_service : verdict; }\n", m, addrType)
	}
	fmt.Fprintf(w, " map empty-node-ports { type inet_proto . inet_service : verdict; }\n")
	fmt.Fprintf(w, " map node-ports { type inet_proto . inet_service : verdict; }\n")
	for i, p := range ports {
		for j, be := range p.backends {
			fmt.Fprintf(w, " chain endpoint-%d-%d {\n  %s saddr %s jump mark-masquerade\n  meta l4proto %s dnat to %s\n }\n",
				i, j, ip, be.addr, p.protoName(), hostPort(f, be))
		}
		var picks []string
		for j := range p.backends {
			picks = append(picks, fmt.Sprintf("%d : goto endpoint-%d-%d", j, i, j))
		}
		fmt.Fprintf(w, " chain service-%d {\n  %s daddr %s %s dport %d %s saddr != %s jump mark-masquerade\n  numgen random mod %d vmap { %s }\n }\n",
			i, ip, p.addr, p.protoName(), p.port, ip, podCIDR[f], len(p.backends), strings.Join(picks, ", "))
	}
	fmt.Fprintf(w, " map services-by-address { type %s . inet_proto . inet_service : verdict; elements = {\n", addrType)
	for i, p := range ports {
		fmt.Fprintf(w, "  %s . %s . %d : goto service-%d,\n", p.addr, p.protoName(), p.port, i)
	}
	fmt.Fprintf(w, " } }\n")
	fmt.Fprintf(w, ` chain mark-masquerade { meta mark set meta mark or 0x4000; }
 chain masquerading {
  meta mark and 0x4000 == 0 return
  meta mark set meta mark xor 0x4000
  masquerade fully-random
 }
 chain services {
  %[1]s daddr . meta l4proto . th dport vmap @services-by-address
  %[1]s daddr @node-ips meta l4proto . th dport vmap @node-ports
 }
 chain empty-check { %[1]s daddr . meta l4proto . th dport vmap @empty-services; }
 chain empty-node-port-check { %[1]s daddr @node-ips meta l4proto . th dport vmap @empty-node-ports; }
 chain firewall-check { %[1]s daddr . meta l4proto . th dport vmap @firewalled; }
 chain cluster-ips-check { %[1]s daddr @cluster-ips reject; }
 chain filter-prerouting { type filter hook prerouting priority -110; ct state new jump firewall-check; }
 chain filter-input {
  type filter hook input priority -110
  ct state new jump empty-node-port-check
  ct state new jump empty-check
 }
 chain filter-forward {
  type filter hook forward priority -110
  ct state new jump empty-check
  ct state new jump cluster-ips-check
 }
 chain filter-output {
  type filter hook output priority -110
  ct state new jump empty-check
  ct state new jump firewall-check
 }
 chain filter-output-late { type filter hook output priority -90; ct state new jump cluster-ips-check; }
 chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
 chain nat-output { type nat hook output priority -100; jump services; }
 chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
`, ip)
}

func hostPort(f family, be endpoint) string {
	if f == 6 {
		return fmt.Sprintf("[%s]:%d", be.addr, be.port)
	}
	return fmt.Sprintf("%s:%d", be.addr, be.port)
}

// addresses are the distinct addresses of service ports.
func addresses(ports []servicePort) []string {
	var out []string
	for i, p := range ports {
		if i == 0 || ports[i-1].addr != p.addr {
			out = append(out, p.addr.String())
		}
	}
	return out
}

// iptRules writes one family's tables for iptables-restore: a list of frontends that is walked from
// the top, a chain for each service and each endpoint.
func iptRules(w io.Writer, f family, ports []servicePort) {
	fmt.Fprint(w, "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:B-FIREWALL -\n:B-EXTERNAL -\n:B-FORWARD -\n:B-SERVICES -\n")
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		fmt.Fprintf(w, "-A %s -m conntrack --ctstate NEW -j B-FIREWALL\n", chain)
	}
	fmt.Fprint(w, "-A INPUT -m conntrack --ctstate NEW -j B-EXTERNAL\n-A FORWARD -j B-FORWARD\n")
	fmt.Fprint(w, "-A FORWARD -m conntrack --ctstate NEW -j B-SERVICES\n-A FORWARD -m conntrack --ctstate NEW -j B-EXTERNAL\n")
	fmt.Fprint(w, "-A OUTPUT -m conntrack --ctstate NEW -j B-SERVICES\n")
	fmt.Fprint(w, "-A B-FORWARD -m conntrack --ctstate INVALID -j DROP\n-A B-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n")
	fmt.Fprint(w, "-A B-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n")

	fmt.Fprint(w, "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\n:B-SERVICES -\n:B-MARK -\n:B-NODEPORTS -\n:B-POSTROUTING -\n")
	for i, p := range ports {
		fmt.Fprintf(w, ":B-SVC-%d -\n", i)
		for j := range p.backends {
			fmt.Fprintf(w, ":B-SEP-%d-%d -\n", i, j)
		}
	}
	fmt.Fprint(w, "-A PREROUTING -j B-SERVICES\n-A OUTPUT -j B-SERVICES\n-A POSTROUTING -j B-POSTROUTING\n")
	fmt.Fprint(w, "-A B-MARK -j MARK --or-mark 0x4000\n-A B-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n")
	fmt.Fprint(w, "-A B-POSTROUTING -j MARK --xor-mark 0x4000\n-A B-POSTROUTING -j MASQUERADE --random-fully\n")
	for i, p := range ports {
		name := p.service + ":" + p.portName
		fmt.Fprintf(w, "-A B-SERVICES -d %s -p %s -m comment --comment %q -m %s --dport %d -j B-SVC-%d\n",
			p.addr, p.protoName(), name+" cluster IP", p.protoName(), p.port, i)
		fmt.Fprintf(w, "-A B-SVC-%d ! -s %s -d %s -p %s -m comment --comment %q -m %s --dport %d -j B-MARK\n",
			i, podCIDR[f], p.addr, p.protoName(), name+" cluster IP", p.protoName(), p.port)
		for j, be := range p.backends {
			chance := ""
			if left := len(p.backends) - j; left > 1 {
				chance = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
			}
			fmt.Fprintf(w, "-A B-SVC-%d -m comment --comment %q %s-j B-SEP-%d-%d\n", i, name, chance, i, j)
			fmt.Fprintf(w, "-A B-SEP-%d-%d -s %s -m comment --comment %q -j B-MARK\n", i, j, be.addr, name)
			fmt.Fprintf(w, "-A B-SEP-%d-%d -p %s -m comment --comment %q -m %s -j DNAT --to-destination %s\n",
				i, j, p.protoName(), name, p.protoName(), hostPort(f, be))
		}
	}
	fmt.Fprint(w, "-A B-SERVICES -m addrtype --dst-type LOCAL -j B-NODEPORTS\nCOMMIT\n")
}

func carryNftables(ctx context.Context, s *site, services int) (func() error, error) {
	if err := s.addRoutes(); err != nil {
		return nothingToClose, err
	}
	for _, f := range []family{4, 6} {
		var rules bytes.Buffer
		nftRules(&rules, f, fleet(services, f))
		if err := s.node.pipe(ctx, &rules, "nft", "-f", "-"); err != nil {
			return nothingToClose, err
		}
	}
	return nothingToClose, nil
}

func carryIptables(ctx context.Context, s *site, services int) (func() error, error) {
	if err := s.addRoutes(); err != nil {
		return nothingToClose, err
	}
	for f, restore := range map[family]string{4: "iptables-legacy-restore", 6: "ip6tables-legacy-restore"} {
		var rules bytes.Buffer
		iptRules(&rules, f, fleet(services, f))
		if err := s.node.pipe(ctx, &rules, restore); err != nil {
			return nothingToClose, err
		}
	}
	return nothingToClose, nil
}

// pipe runs a command in the namespace with an input.
func (n *namespace) pipe(ctx context.Context, in io.Reader, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &out
	if err := inNamespace(n.handle, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, firstLines(out.String(), 5))
	}
	return nil
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "; ")
}
