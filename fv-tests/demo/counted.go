// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

// served says who found the service behind the address that was asked.
type served string

const (
	byNobody served = "-"             // the address is the backend's own
	byHook   served = "connect time"  // a cgroup hook, before there was a packet
	byTC     served = "packet, TC"    // the program of the pod's interface or of the uplink
	byPair   served = "packet, bpfin" // the program of bpfout.cali, where the host's packets come in again
)

// servedBy reads it from the counters: a program that looks a service up counts it, or its refusal. Where
// no program has, and the address was a service's, it was the hook.
func servedBy(service bool, c lab.Counters) served {
	by := byNobody
	if service {
		by = byHook
	}
	for v, row := range c {
		if row.Count[layout.CountServiceNew] == 0 && row.Count[layout.DropNoBackend] == 0 {
			continue
		}
		if v.Class == layout.ClassNAT {
			return byPair
		}
		by = byTC
	}
	return by
}

// mechanism names the counters that say how packets travelled.
func mechanism(c lab.Counters) string {
	var parts []string
	for _, counter := range []layout.Counter{
		layout.CountServiceNew, layout.CountHairpin, layout.CountDNAT, layout.CountFastPath, layout.CountRedirectPeer,
		layout.CountRedirectTunnel, layout.CountTunnelKey, layout.CountRedirectNeigh, layout.CountRedirectNatout,
		layout.CountToStack, layout.CountRSTSent, layout.CountICMPSent,
	} {
		if n := c.Sum(counter); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", counter, n))
		}
	}
	return strings.Join(parts, ", ")
}

// counters are those of both nodes together.
func counters(l *lab.Lab) (lab.Counters, error) {
	sum := lab.Counters{}
	for _, n := range l.Nodes {
		c, err := n.Counters()
		if err != nil {
			return nil, err
		}
		sum = sum.Plus(c)
	}
	return sum, nil
}
