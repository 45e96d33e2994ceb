// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// String is the entry in one line: who talks to whom, what becomes of it, how it stands.
func (e *Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s -> %s", e.Proto, endpoint(e.Source), endpoint(e.Destination))
	if e.Translated() {
		fmt.Fprintf(&b, " => %s -> %s", endpoint(e.NATSource), endpoint(e.NATDestination))
	}
	if e.Asked.IsValid() {
		fmt.Fprintf(&b, " for %s", endpoint(e.Asked))
	}
	fmt.Fprintf(&b, " %s %s", e.Type, e.State)
	if e.HalfOpen {
		b.WriteString(" half-open")
	}
	if e.Dead {
		b.WriteString(" DEAD")
	}
	if e.Zone != 0 {
		fmt.Fprintf(&b, " zone %d", e.Zone)
	}
	fmt.Fprintf(&b, " idle %s/%s age %s", span(e.Idle), span(e.Timeout), span(e.Age))
	for i, name := range [...]string{"out", "in"} {
		fmt.Fprintf(&b, " | %s %d pkt %d B", name, e.Packets[i], e.Bytes[i])
		if e.Approved[i] {
			b.WriteString(" approved")
		}
		fmt.Fprintf(&b, " %s", e.Forward[i])
		if e.Ifindex[i] != 0 {
			fmt.Fprintf(&b, " if %d", e.Ifindex[i])
		}
	}
	if e.ServiceID != 0 {
		fmt.Fprintf(&b, " | service %d backend %d", e.ServiceID, e.BackendID)
	}
	if e.TunnelPeer.IsValid() {
		fmt.Fprintf(&b, " | tunnel %s", e.TunnelPeer)
	}
	if len(e.Flags) > 0 {
		fmt.Fprintf(&b, " | %s", strings.Join(e.Flags, ","))
	}
	return b.String()
}

// endpoint leaves the port of protocols without ports away.
func endpoint(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// span is a number of seconds with a precision that fits it.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
