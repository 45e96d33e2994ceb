// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestAPatternsBeginningsAreThoseOfEveryNameItMatches(t *testing.T) {
	names := []string{"cali0123", "cali", "veth1a2b", "lxc_health", "lxc9", "eni7", "enj7", "ens5", "eth0", "xcali1", "califx", "Cali1"}
	for pattern, want := range map[string]string{
		"^cali":                      "cali",
		"^cali[0-9a-f]{11}$":         "cali",
		"^(cali|veth)":               "cali,veth",
		"^cali|^lxc":                 "cali,lxc",
		"^(?:lxc|eni)[0-9]+$":        "eni,lxc",
		"^eni[78]$":                  "eni7,eni8",
		"^(cali|cali0)":              "cali",
		"^ca(li)?":                   "ca",
		"^c+ali":                     "c",
		"^(a|b)(c|d)(e|f)(g|h)(i|j)": "ace,acf,ade,adf,bce,bcf,bde,bdf",
		"cali":                       "", // anywhere
		"^cali|veth":                 "",
		"^[a-z]+[0-9]":               "",
		"^.*cali":                    "",
		"(?i)^cali":                  "",
		"^$":                         "",
		"^en":                        "", // an uplink begins like that
		"^waytoolongforaname":        "",
		"^a b":                       "",
	} {
		re := regexp.MustCompile(pattern)
		got := Prefixes(re, []string{"ens5", "eth0", "vxlan.calico"})
		if strings.Join(got, ",") != want {
			t.Errorf("%s: got %v, want %q", pattern, got, want)
		}
		for _, name := range names {
			if len(got) > 0 && re.MatchString(name) && !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(name, p) }) {
				t.Errorf("%s matches %s, which begins with none of %v", pattern, name, got)
			}
		}
	}
	if got := Prefixes(nil, nil); got != nil {
		t.Errorf("no pattern: %v", got)
	}
}
