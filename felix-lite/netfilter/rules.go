// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Names of our chains.
const (
	Postrouting = "FELIX-LITE-POSTROUTING" // nat: masquerades what leaves the cluster
	Forward     = "FELIX-LITE-FORWARD"     // filter: what the datapath has judged, or will
	Input       = "FELIX-LITE-INPUT"       // filter: answers to this host by bpfin.cali and bpfout.cali
	Prerouting  = "FELIX-LITE-PREROUTING"  // raw: what comes in by the pair is not tracked
	Output      = "FELIX-LITE-OUTPUT"      // filter: this host's connections of which conntrack sees one direction only
)

// Spec is what the chains depend on. It must not be changed once it was handed over.
type Spec struct {
	IPv4, IPv6 bool
	Backend    Backend
	// MarkShift is the position of the datapath's lowest mark bit.
	MarkShift uint8
	// Workloads are the beginnings of workload interfaces' names. Where they can not be told by their beginning, it is
	// empty, and PodCIDRs, this node's own, tell by the destination.
	Workloads []string
	PodCIDRs  []netip.Prefix
	// Masquerade gives what the datapath marks as leaving the cluster the node's address.
	Masquerade bool
	// Pair says that traffic of this host goes by bpfin.cali and bpfout.cali. What only that needs, every packet of the
	// node's own traffic pays for: the kernel asks each chain of a table that has any.
	Pair bool
}

// Equal reports whether two specs want the same.
func (s Spec) Equal(o Spec) bool {
	return s.IPv4 == o.IPv4 && s.IPv6 == o.IPv6 && s.Backend == o.Backend && s.MarkShift == o.MarkShift && s.Masquerade == o.Masquerade && s.Pair == o.Pair &&
		slices.Equal(s.Workloads, o.Workloads) && slices.Equal(s.PodCIDRs, o.PodCIDRs)
}

// Chain is one of our chains with its rules; a rule is written as iptables -S prints it, without "-A chain".
type Chain struct {
	Table, Name, Parent string
	Rules               []string
	// Without says what does not work where the kernel refuses a rule of the chain; empty: the chain is needed.
	Without string
}

// places are all of our chains, whether wanted or not, with their parents.
var places = []Chain{
	{Table: "raw", Name: Prerouting, Parent: "PREROUTING",
		Without: "a firewall on this node that drops what conntrack calls INVALID may drop host traffic to services"},
	{Table: "raw", Name: Output, Parent: "OUTPUT"}, // of earlier builds
	{Table: "filter", Name: Forward, Parent: "FORWARD"},
	{Table: "filter", Name: Input, Parent: "INPUT"},
	{Table: "filter", Name: Output, Parent: "OUTPUT",
		Without: "a firewall on this node that drops what conntrack calls INVALID on its way out may drop host traffic to services"},
	{Table: "nat", Name: Postrouting, Parent: "POSTROUTING"},
}

// id tells chains of one name in two tables apart.
func (c Chain) id() string { return c.Table + " " + c.Name }

// forPair reports whether nothing but traffic by the pair needs the chain.
func (c Chain) forPair() bool { return c.Table == "raw" || c.Name == Input || c.Name == Output }

// Rules returns the chains that a family needs. randomFully says whether iptables can choose source ports at random.
func Rules(s Spec, f model.Family, randomFully bool) []Chain {
	var out []Chain
	for _, c := range places {
		if c.forPair() && !s.Pair {
			continue
		}
		switch c.id() {
		case "raw " + Prerouting:
			c.Rules = notrack()
		case "raw " + Output:
			continue
		case "filter " + Forward:
			c.Rules = s.forward(f)
		case "filter " + Input:
			c.Rules = s.input()
		case "filter " + Output:
			c.Rules = invalid()
		case "nat " + Postrouting:
			if !s.Masquerade && !s.Pair {
				continue
			}
			c.Rules = s.postrouting(f, randomFully)
		}
		out = append(out, c)
	}
	return out
}

// notrack keeps the kernel's conntrack away from what comes in by the pair: of a connection to a backend it would see one
// direction only, and call the second segment INVALID.
func notrack() []string {
	var out []string
	for _, name := range []string{interfaces.NATInName, interfaces.NATOutName} {
		out = append(out, "-i "+name+" -j CT --notrack")
	}
	return out
}

// invalid accepts what this host sends to a service by the pair, or by lo and from there by the pair. The answers are not
// tracked, so conntrack calls all but the first segment INVALID. That what goes out is tracked at all is for connections
// that are older than the pair, and for those that another's rules serve: their translation is conntrack's.
func invalid() []string {
	var out []string
	for _, name := range []string{"lo", interfaces.NATInName} {
		out = append(out, "-o "+name+" -m conntrack --ctstate INVALID -j ACCEPT")
	}
	return out
}

// forward accepts what a program has let pass, and what the program of a workload's interface will judge. Nothing may go round
// through the pair: that a program should have translated it and has not is no reason to use up its TTL.
func (s Spec) forward(f model.Family) []string {
	var out []string
	if s.Pair {
		out = append(out, "-i "+interfaces.NATOutName+" -o "+interfaces.NATInName+" -j DROP")
	}
	// Segments of no known flow carry the bit of SEEN, too: those are the firewall's.
	out = append(out, s.mark(layout.MarkFallthrough, layout.MarkBits)+" -j RETURN", s.mark(layout.MarkSeen, layout.MarkSeen)+" -j ACCEPT")
	for _, match := range s.toWorkloads(f) {
		out = append(out, match+" -j ACCEPT")
	}
	return out
}

// input accepts the datapath's answers to this host's own sockets. Nobody else sends into the pair.
func (s Spec) input() []string {
	return []string{
		"-i " + interfaces.NATInName + " -j ACCEPT",
		"-i " + interfaces.NATOutName + " " + s.mark(layout.MarkSeen, layout.MarkSeen) + " -j ACCEPT",
		// Answers of the host to itself, translated on lo: connection tracking knows them by other names.
		"-i lo " + s.mark(layout.MarkSeen, layout.MarkSeen) + " -j ACCEPT",
	}
}

// postrouting masquerades what carries the mark and really leaves: not by an interface of ours. What goes out by the pair
// is nobody's to masquerade.
func (s Spec) postrouting(f model.Family, randomFully bool) []string {
	var out []string
	if s.Pair {
		out = append(out, "-o "+interfaces.NATInName+" -j ACCEPT")
	}
	if !s.Masquerade {
		return out
	}
	out = append(out, s.unmarked()+" -j RETURN", "-o "+interfaces.TunnelName+" -j RETURN")
	for _, match := range s.toWorkloads(f) {
		out = append(out, match+" -j RETURN")
	}
	masquerade := "-j MASQUERADE"
	if randomFully {
		masquerade += " --random-fully" // two CPUs that choose the same port lose one of the two packets
	}
	return append(out, masquerade)
}

// toWorkloads matches what goes out to a workload of this node.
func (s Spec) toWorkloads(f model.Family) []string {
	var out []string
	for _, prefix := range s.Workloads {
		out = append(out, "-o "+prefix+"+")
	}
	if len(out) > 0 {
		return out
	}
	for _, p := range s.PodCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			out = append(out, "-d "+p.String())
		}
	}
	return out
}

// mark matches packets whose mark has, under the mask, the value.
func (s Spec) mark(value, mask layout.Mark) string {
	return fmt.Sprintf("-m mark --mark %#x/%#x", uint32(value)<<s.MarkShift, uint32(mask)<<s.MarkShift)
}

// unmarked matches what does not leave the cluster.
func (s Spec) unmarked() string {
	return strings.Replace(s.mark(layout.MarkNATOut, layout.MarkBits), "-m mark --mark", "-m mark ! --mark", 1)
}
