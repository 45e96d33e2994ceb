// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// ---- rules of one setting ----

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

func nodeNameRule(s string) error {
	if s != "" && (len(s) > 253 || !nodeName.MatchString(s)) {
		return fmt.Errorf("%q is not the name of a Node: small letters, digits, '-' and '.' only", s)
	}
	return nil
}

func apiServerRule(s string) error {
	if s == "" {
		return nil
	}
	address := s
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return fmt.Errorf("%q is not an https:// URL", s)
		}
		address = u.Host
		if u.Port() == "" {
			return nil
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q is not host:port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port between 1 and 65535", port)
	}
	return nil
}

var featureName = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]*$`)

func featureRule(s string) error {
	if !featureName.MatchString(s) {
		return fmt.Errorf("%q is not the name of a feature", s)
	}
	return nil
}

func markRule(m uint32) error {
	n := bits.OnesCount32(m)
	if n < MarkBits {
		return fmt.Errorf("0x%08x has %d bits, %d are needed", m, n, MarkBits)
	}
	if run := m >> bits.TrailingZeros32(m); run&(run+1) != 0 {
		return fmt.Errorf("0x%08x has a gap: the bits must stand side by side", m)
	}
	return nil
}

// ---- rules between settings ----

// crossCheck names contradictions by the setting that was given explicitly, where one was: that
// is the line a person has to change.
func (e *Effective) crossCheck() Errors {
	var errs Errors
	fail := func(err error, settings ...string) {
		errs = append(errs, &Error{Setting: settings[0], Origin: e.culprit(settings...), Err: err})
	}

	if !e.IPv4Enabled && !e.IPv6Enabled {
		fail(errors.New("neither IPv4 nor IPv6 is enabled"), "ipv4Enabled", "ipv6Enabled")
	}
	if e.Source == SourceFiles && e.FilesDirectory == "" {
		fail(errors.New("source Files needs a directory"), "filesDirectory", "source")
	}
	least := 576
	if e.IPv6Enabled {
		least = 1280
	}
	if e.PodMTU != 0 && e.PodMTU < least {
		fail(fmt.Errorf("%d is less than %d, the least that the enabled address families work with", e.PodMTU, least),
			"podMTU", "ipv6Enabled")
	}
	if e.SourceNATPorts.Contains(e.VXLANPort) {
		fail(fmt.Errorf("%s contains vxlanPort %d", e.SourceNATPorts, e.VXLANPort), "sourceNATPorts", "vxlanPort")
	}
	if sameListener(e.HealthAddress, e.MetricsAddress) {
		fail(fmt.Errorf("%s cannot be listened on beside healthAddress %s", e.MetricsAddress, e.HealthAddress),
			"metricsAddress", "healthAddress")
	}
	if e.ConntrackSweepBudget >= e.ConntrackSweepInterval {
		fail(fmt.Errorf("%s is not less than conntrackSweepInterval %s: the sweep would never pause",
			short(e.ConntrackSweepBudget), short(e.ConntrackSweepInterval)), "conntrackSweepBudget", "conntrackSweepInterval")
	}
	for _, p := range []struct {
		name string
		re   *regexp.Regexp
	}{
		{"workloadInterfacePattern", e.WorkloadInterfacePattern},
		{"uplinkInterfacePattern", e.UplinkInterfacePattern},
		{"l3InterfacePattern", e.L3InterfacePattern},
	} {
		for _, own := range reservedInterfaces {
			if p.re != nil && p.re.MatchString(own) {
				fail(fmt.Errorf("%q matches %s, which has a role of its own: begin the pattern with ^", p.re, own), p.name)
				break
			}
		}
	}
	return errs
}

// reservedInterfaces have roles that no pattern can give away.
var reservedInterfaces = []string{"lo", "vxlan.calico", "bpfin.cali", "bpfout.cali"}

// culprit returns the origin of the first of the settings that is not a default.
func (e *Effective) culprit(settings ...string) Origin {
	for _, s := range settings {
		if o := e.origins[s]; o.Kind != FromDefault {
			return o
		}
	}
	return e.origins[settings[0]]
}

// sameListener says whether two addresses cannot both be listened on.
func sameListener(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	return hostA == hostB || wildcard(hostA) || wildcard(hostB)
}

func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}
