// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestAConfigurationThatIsWrongIsRefusedWithAReason(t *testing.T) {
	for _, tc := range []struct {
		name string
		given
		want []string // parts of the error
	}{
		{"an unknown field is named with file, line and the nearest name", given{file: "nodeName: a\noverlaay: VXLAN\n"},
			[]string{"felix-lite.yaml:2: overlaay: no such setting", `did you mean "overlay"`}},
		{"a field that resembles none has no suggestion", given{file: "frobnicationOfTheWidget: 1\n"},
			[]string{"frobnicationOfTheWidget: no such setting"}},
		{"an unknown field one level down is named with its level", given{file: "conntrackTimeouts: {tcpSynSend: 3s}\n"},
			[]string{`conntrackTimeouts.tcpSynSend: no such setting (did you mean "conntrackTimeouts.tcpSynSent"`}},
		{"a level that is no mapping is refused", given{file: "conntrackTimeouts: 3s\n"}, []string{"conntrackTimeouts: want a mapping"}},
		{"a field given twice is refused", given{file: "podMTU: 1300\npodMTU: 1400\n"}, []string{"podMTU: given twice, first in line 1"}},
		{"broken YAML is refused with its line", given{file: "podMTU: 1300\n  nodeName: [\n"}, []string{"felix-lite.yaml: parse YAML", "line 2"}},
		{"a second document is refused", given{file: "podMTU: 1300\n---\npodMTU: 1400\n"}, []string{"second YAML document"}},
		{"a list as the whole file is refused", given{file: "- a\n"}, []string{"must be a mapping"}},
		{"a field without value is refused", given{file: "nodeName:\n"}, []string{"nodeName: has no value"}},
		{"a string where a number belongs is refused", given{file: "podMTU: large\n"}, []string{`want a whole number, found "large"`}},
		{"a word where true or false belongs is refused", given{file: "ipv4Enabled: yes\n"}, []string{`want true or false, found "yes"`}},
		{"a number where a string belongs is refused", given{file: "nodeName: 17\n"}, []string{`want a string, found "17": put it in quotes`}},
		{"a string where a list belongs is refused", given{file: "disabledFeatures: tcx\n"}, []string{`want a list, found "tcx"`}},
		{"a list of numbers where strings belong is refused", given{file: "disabledFeatures: [1]\n"}, []string{`want a list of strings, found "1"`}},
		{"an enum in the wrong case is refused in the file", given{file: "overlay: vxlan\n"},
			[]string{`overlay: "vxlan" is not one of VXLAN, Direct (did you mean "VXLAN"?)`}},
		{"an unknown word for an enum lists the words", given{env: []string{"FELIX_LITE_OVERLAY=geneve"}},
			[]string{`env FELIX_LITE_OVERLAY: overlay: "geneve" is not one of VXLAN, Direct`}},
		{"a number out of range is refused with the range", given{args: []string{"--vxlan-port=0"}},
			[]string{"flag --vxlan-port: vxlanPort: 0 is not between 1 and 65535"}},
		{"a VNI of more than 24 bits is refused", given{file: "vxlanVNI: 16777216\n"}, []string{"not between 1 and 16777215"}},
		{"a pattern that does not compile is refused", given{file: "l3InterfacePattern: '(tun'\n"}, []string{"l3InterfacePattern", "does not compile"}},
		{"an empty workload pattern is refused", given{file: "workloadInterfacePattern: ''\n"}, []string{"no interface would be a workload's"}},
		{"a workload pattern that takes the overlay's device is refused", given{file: "workloadInterfacePattern: cali\n"},
			[]string{"matches vxlan.calico"}},
		{"an uplink pattern that takes loopback is refused", given{env: []string{"FELIX_LITE_UPLINK_INTERFACE_PATTERN=.*"}}, []string{"matches lo"}},
		{"a duration without unit is refused", given{file: "resyncInterval: '30'\n"}, []string{"not a duration such as 30s"}},
		{"a negative duration is refused", given{file: "conntrackTimeouts: {udp: -5s}\n"}, []string{"conntrackTimeouts.udp: -5s is not between 100ms"}},
		{"a mask of eight bits is refused", given{file: "markMask: 0xff00\n"}, []string{"has 8 bits, 9 are needed"}},
		{"a mask with a gap is refused", given{file: "markMask: 0x1ff00800\n"}, []string{"has a gap"}},
		{"an MTU that IPv6 can not use is refused", given{file: "podMTU: 1279\n"}, []string{"1279 is less than 1280"}},
		{"an MTU that IPv4 can not use is refused", given{file: "podMTU: 500\nipv6Enabled: false\n"}, []string{"500 is less than 576"}},
		{"a map of no entries is refused", given{file: "mapSizeConntrack: 0\n"}, []string{"0 is not between 16 and 16777216"}},
		{"a relative directory is refused", given{file: "runDirectory: run\n"}, []string{`"run" is not an absolute path`}},
		{"a node name that no Node has is refused", given{file: "nodeName: Node_1\n"}, []string{"is not the name of a Node"}},
		{"a listening address without port is refused", given{file: "healthAddress: 127.0.0.1\n"}, []string{"healthAddress", "not an address and port"}},
		{"a listening address by name is refused", given{file: "healthAddress: node:9990\n"}, []string{"not an IP address"}},
		{"two listeners on one address are refused", given{file: "metricsAddress: ':9990'\n"}, []string{"metricsAddress: :9990 cannot be listened on beside healthAddress"}},
		{"a port range that ends before it begins is refused", given{file: "sourceNATPorts: 3000-2000\n"}, []string{"ends before it begins"}},
		{"a port range among the servers' ports is refused", given{file: "sourceNATPorts: 80-2000\n"}, []string{"begins below 1024"}},
		{"a port range of few ports is refused", given{file: "sourceNATPorts: 2000-2010\n"}, []string{"has 11 ports"}},
		{"a port range with the overlay's port in it is refused", given{file: "vxlanPort: 20001\n"}, []string{"20000-29999 contains vxlanPort 20001", "felix-lite.yaml:1"}},
		{"no family at all is refused", given{file: "ipv4Enabled: false\nipv6Enabled: false\n"}, []string{"neither IPv4 nor IPv6"}},
		{"a sweep that never pauses is refused", given{file: "conntrackSweepBudget: 20s\n"}, []string{"the sweep would never pause"}},
		{"source Files without directory is refused", given{file: "filesDirectory: ''\n"}, []string{"source Files needs a directory"}},
		{"an API server without port is refused", given{file: "kubernetesServiceEndpoint: 10.0.0.1\n"}, []string{"not host:port"}},
		{"a feature with odd letters is refused", given{file: "disabledFeatures: ['a b']\n"}, []string{"not the name of a feature"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.load(t)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestAllErrorsAreListedAndTheRestOfTheFileIsRead(t *testing.T) {
	e, err := given{
		file: "overlaay: VXLAN\npodMTU: 1400\nvxlanPort: 70000\n",
		env:  []string{"FELIX_LITE_LOG_LEVEL=loud"},
	}.load(t)
	errs, ok := err.(Errors)
	if !ok || len(errs) != 3 {
		t.Fatalf("got %v, want three errors", err)
	}
	if !strings.HasPrefix(err.Error(), "invalid configuration, 3 errors:\n  file ") {
		t.Errorf("error is %q", err)
	}
	if e.PodMTU != 1400 || e.VXLANPort != 4789 || e.LogLevel != LevelInfo {
		t.Errorf("what is right is not used, or what is wrong is: %+v", e.Config)
	}
}

func TestAMissingFileIsAnErrorWithItsPath(t *testing.T) {
	_, err := Load(Inputs{File: "/nonexistent/felix-lite.yaml"})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/felix-lite.yaml") {
		t.Errorf("error is %v", err)
	}
}

func TestAnEmptyFileIsAllDefaults(t *testing.T) {
	for _, content := range []string{"", "# nothing\n", "---\n", "null\n", "{}\n"} {
		e := &Effective{Config: Default(), origins: map[string]Origin{}}
		if errs := e.parseFile("f", []byte(content)); len(errs) > 0 {
			t.Errorf("%q: %v", content, errs)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "podMTU: 1400", "conntrackTimeouts: {udp: 5s}", "a: &a [*a]", "podMTU: &x 1\nvxlanPort: *x", "<<: {podMTU: 1}",
		"disabledFeatures: [a, b]", "---\n---", "? [a]\n: b", "markMask: 0x1ff00000", "nodeName: !!binary aGk=", "conntrackTimeouts: &c {udp: *c}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		e := &Effective{Config: Default(), origins: map[string]Origin{}}
		errs := e.parseFile("fuzz.yaml", content)
		for _, err := range errs {
			if err.Error() == "" {
				t.Error("an error without text")
			}
		}
		// Whatever was taken from the file is a value that can be written down and read back.
		for i := range table {
			s := &table[i]
			var again Config
			if err := s.set(&again, s.text(&e.Config), exact); err != nil {
				t.Errorf("%s: %q can not be read back: %v", s.Name, s.text(&e.Config), err)
			}
		}
	})
}
