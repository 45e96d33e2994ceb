// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

func TestAKernelIsComparedByItsFirstTwoNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		release, version string
		want             bool
	}{
		"the same version":                 {"5.10.0-46-cloud-amd64", "5.10", true},
		"numbers are not compared as text": {"5.10.0", "5.9", true},
		"an older minor":                   {"6.1.0-57-cloud-amd64", "6.12", false},
		"a newer major":                    {"6.1.0", "5.10", true},
		"an older major":                   {"5.10.0", "6.1", false},
		"two numbers are enough":           {"6.12", "6.12", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := atLeast(c.release, c.version)
			if err != nil || got != c.want {
				t.Errorf("atLeast(%q, %q) = %v, %v", c.release, c.version, got, err)
			}
		})
	}
	if _, err := atLeast("unknown", "5.10"); err == nil {
		t.Error("a release without numbers was compared")
	}
}

func TestTheTableIsHeldAgainstTheProbe(t *testing.T) {
	missing := fmt.Errorf("x: %w", ebpf.ErrNotSupported)
	for name, c := range map[string]struct {
		expected bool
		probed   error
		ok       bool
	}{
		"both say yes":                     {true, nil, true},
		"both say no":                      {false, missing, true},
		"the table promises too much":      {true, missing, false},
		"the table promises too little":    {false, nil, false},
		"a broken probe is no answer":      {false, errors.New("out of memory"), false},
		"a broken probe is no answer here": {true, errors.New("out of memory"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := agree(c.expected, c.probed); (err == nil) != c.ok {
				t.Errorf("agree(%v, %v) = %v", c.expected, c.probed, err)
			}
		})
	}
}
