// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"testing"
)

// A node's own firewall that forwards nothing and drops what netfilter's conntrack does not know is
// common (Docker sets the policy). Pods' traffic must not depend on it: the kernel's conntrack sees
// only parts of our flows, and would call them invalid.
func TestServicesWorkOnNodesThatForwardNothing(t *testing.T) {
	t.Parallel()
	l := up(t, Options(usual, "Auto"))
	for _, n := range l.Nodes {
		for _, tool := range []string{"iptables", "ip6tables"} {
			for _, rule := range [][]string{
				{"-P", "FORWARD", "DROP"},
				{"-I", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"},
				{"-I", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"},
			} {
				if out, err := n.Run(t.Context(), append([]string{tool, "-w"}, rule...)...); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
	}
	for _, c := range Sample(usual) {
		if o := c.Deliver(t.Context(), l); len(o.Problems) > 0 {
			t.Errorf("%s: %v", c, o.Problems)
		}
	}
}
