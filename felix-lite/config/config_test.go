// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// given is what a test configures with.
type given struct {
	file string
	env  []string
	args []string
}

func (g given) load(t *testing.T) (*Effective, error) {
	t.Helper()
	in := Inputs{Environ: g.env, Hostname: func() (string, error) { return "Host-1", nil }}
	if g.file != "" {
		in.File = filepath.Join(t.TempDir(), "felix-lite.yaml")
		if err := os.WriteFile(in.File, []byte(g.file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in.Flags = pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(in.Flags)
	if err := in.Flags.Parse(g.args); err != nil {
		t.Fatal(err)
	}
	return Load(in)
}

func (g given) mustLoad(t *testing.T) *Effective {
	t.Helper()
	e, err := g.load(t)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNothingSetGivesTheDefaults(t *testing.T) {
	e := given{}.mustLoad(t)
	if e.NodeName != "host-1" {
		t.Errorf("node name %q, want the host's name in lower case", e.NodeName)
	}
	if e.ConntrackTimeouts.TCPEstablished != time.Hour || e.MapSizes.Conntrack != 262144 || e.MarkMask != 0x1ff00000 ||
		e.Overlay != OverlayVXLAN || e.Source != SourceFiles || !e.IPv4Enabled || !e.IPv6Enabled ||
		e.HealthAddress != "127.0.0.1:9990" || e.SourceNATPorts != (PortRange{20000, 29999}) {
		t.Errorf("defaults are %+v", e.Config)
	}
	if e.MarkShift() != 20 {
		t.Errorf("mark shift %d, want 20", e.MarkShift())
	}
	for _, s := range Settings() {
		if o := e.Origin(s.Name); o.Kind != FromDefault {
			t.Errorf("%s comes from %s, want default", s.Name, o)
		}
	}
}

func TestEveryDefaultPassesItsOwnValidator(t *testing.T) {
	for _, s := range Settings() {
		var c Config
		if err := s.set(&c, s.Default, exact); err != nil {
			t.Errorf("%s: default %q: %v", s.Name, s.Default, err)
		}
		if got := s.text(&c); got != s.Default {
			t.Errorf("%s: default %q is printed as %q", s.Name, s.Default, got)
		}
	}
}

func TestEveryFieldOfTheStructHasARow(t *testing.T) {
	leaves := 0
	var count func(reflect.Type)
	count = func(typ reflect.Type) {
		for i := range typ.NumField() {
			switch f := typ.Field(i); f.Type {
			case reflect.TypeFor[Timeouts](), reflect.TypeFor[MapSizes]():
				count(f.Type)
			default:
				leaves++
			}
		}
	}
	count(reflect.TypeFor[Config]())
	if leaves != len(table) {
		t.Errorf("the struct has %d fields, the table %d rows", leaves, len(table))
	}
}

func TestNamesInTheThreeSpellingsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, s := range Settings() {
		for _, name := range []string{s.Name, s.Env(), s.Flag()} {
			if other, dup := seen[name]; dup && other != s.Name {
				t.Errorf("%s: %q is %s's, too", s.Name, name, other)
			}
			seen[name] = s.Name
		}
	}
}

func TestNamesAreSplitAtTheirHumps(t *testing.T) {
	for name, want := range map[string]string{
		"podMTU":                       "FELIX_LITE_POD_MTU",
		"mapSizeNATFrontend":           "FELIX_LITE_MAP_SIZE_NAT_FRONTEND",
		"mapSizeConntrackHalfOpen":     "FELIX_LITE_MAP_SIZE_CONNTRACK_HALF_OPEN",
		"l3InterfacePattern":           "FELIX_LITE_L3_INTERFACE_PATTERN",
		"ipv4Enabled":                  "FELIX_LITE_IPV4_ENABLED",
		"vxlanVNI":                     "FELIX_LITE_VXLAN_VNI",
		"sourceNATPorts":               "FELIX_LITE_SOURCE_NAT_PORTS",
		"allowedSourceCIDRs":           "FELIX_LITE_ALLOWED_SOURCE_CIDRS",
		"conntrackTimeouts.tcpSynSent": "FELIX_LITE_CONNTRACK_TIMEOUTS_TCP_SYN_SENT",
		"connectTimeLoadBalancing":     "FELIX_LITE_CONNECT_TIME_LOAD_BALANCING",
	} {
		if got := (&Setting{Name: name}).Env(); got != want {
			t.Errorf("%s: variable %s, want %s", name, got, want)
		}
	}
}

func TestPrecedenceIsFlagThenEnvironmentThenFile(t *testing.T) {
	e := given{
		file: "podMTU: 1300\nvxlanPort: 4790\noverlay: Direct\nconntrackTimeouts:\n  udp: 2m\n",
		env:  []string{"FELIX_LITE_POD_MTU=1400", "FELIX_LITE_VXLAN_PORT=4791", "HOME=/root"},
		args: []string{"--pod-mtu=1500"},
	}.mustLoad(t)
	if e.PodMTU != 1500 || e.VXLANPort != 4791 || e.Overlay != OverlayDirect || e.ConntrackTimeouts.UDP != 2*time.Minute {
		t.Errorf("got %+v", e.Config)
	}
	for name, want := range map[string]string{
		"podMTU":                 "flag --pod-mtu",
		"vxlanPort":              "env FELIX_LITE_VXLAN_PORT",
		"overlay":                "felix-lite.yaml:3",
		"conntrackTimeouts.udp":  "felix-lite.yaml:5",
		"conntrackTimeouts.icmp": "default",
	} {
		if got := e.Origin(name).String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s comes from %q, want %q", name, got, want)
		}
	}
}

func TestEveryTypeIsReadFromEverySource(t *testing.T) {
	want := given{file: `
nodeName: node-7
source: Kubernetes
ipv6Enabled: false
workloadInterfacePattern: ^(cali|veth)
disabledFeatures: [tcx, fib-mark]
markMask: 0xff80
sourceNATPorts: 40000-40999
adoptionWindow: 0s
mapSizeRoutes: 1024
`}.mustLoad(t)
	fromEnv := given{env: []string{
		"FELIX_LITE_NODE_NAME=node-7", "FELIX_LITE_SOURCE=kubernetes", "FELIX_LITE_IPV6_ENABLED=False",
		"FELIX_LITE_WORKLOAD_INTERFACE_PATTERN=^(cali|veth)", "FELIX_LITE_DISABLED_FEATURES=tcx, fib-mark",
		"FELIX_LITE_MARK_MASK=0xFF80", "FELIX_LITE_SOURCE_NAT_PORTS=40000-40999", "FELIX_LITE_ADOPTION_WINDOW=0",
		"FELIX_LITE_MAP_SIZE_ROUTES=1024",
	}}.mustLoad(t)
	fromFlags := given{args: []string{
		"--node-name=node-7", "--source=KUBERNETES", "--ipv6-enabled=false", "--workload-interface-pattern=^(cali|veth)",
		"--disabled-features=tcx", "--disabled-features=fib-mark", "--mark-mask=65408", "--source-nat-ports=40000-40999",
		"--adoption-window=0", "--map-size-routes=1024",
	}}.mustLoad(t)
	for from, got := range map[string]*Effective{"environment": fromEnv, "flags": fromFlags} {
		if changes := Changes(&want.Config, &got.Config); len(changes) > 0 {
			t.Errorf("from %s: %+v", from, changes)
		}
	}
	if !want.WorkloadInterfacePattern.MatchString("veth3") || want.MarkShift() != 7 {
		t.Errorf("got %+v", want.Config)
	}
}

func TestAFlagWithoutValueSwitchesOn(t *testing.T) {
	e := given{file: "ipv6Enabled: false\n", args: []string{"--ipv6-enabled"}}.mustLoad(t)
	if !e.IPv6Enabled {
		t.Error("--ipv6-enabled does not enable IPv6")
	}
}

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

func TestAnUnknownVariableIsAWarningAndAServicesVariablesAreNone(t *testing.T) {
	e := given{env: []string{
		"FELIX_LITE_POD_MUT=1400", "FELIX_LITE_CONFIG=/etc/felix-lite.yaml",
		"FELIX_LITE_OPERATOR_SERVICE_HOST=10.0.0.1", "FELIX_LITE_OPERATOR_SERVICE_PORT_METRICS=9992",
		"FELIX_LITE_OPERATOR_PORT=tcp://10.0.0.1:9992", "FELIX_LITE_OPERATOR_PORT_9992_TCP_ADDR=10.0.0.1",
	}}.mustLoad(t)
	want := []string{"environment variable FELIX_LITE_POD_MUT is no setting (did you mean FELIX_LITE_POD_MTU?)"}
	if diff := cmp.Diff(want, e.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestChangesNameWhatDiffersAndWhenItTakesEffect(t *testing.T) {
	a, b := Default(), Default()
	b.PodMTU, b.Overlay = 1400, OverlayDirect
	want := []Change{{"overlay", "VXLAN", "Direct", Restart}, {"podMTU", "0", "1400", Restart}}
	if diff := cmp.Diff(want, Changes(&a, &b)); diff != "" {
		t.Error(diff)
	}
}

func TestTheEffectiveConfigurationIsPrintedWithOrigins(t *testing.T) {
	e := given{file: "podMTU: 1400\ndisabledFeatures: [tcx]\n", env: []string{"FELIX_LITE_OVERLAY=direct"}}.mustLoad(t)
	var out bytes.Buffer
	if err := e.Render(&out, "table"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^SETTING +VALUE +ORIGIN$`,
		`(?m)^podMTU +1400 +file .*felix-lite.yaml:1$`,
		`(?m)^overlay +Direct +env FELIX_LITE_OVERLAY$`,
		`(?m)^kubeconfig +- +default$`,
		`(?m)^nodeName +host-1 +default host's name$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line %s in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != len(table)+1 {
		t.Errorf("%d lines, want %d", n, len(table)+1)
	}

	out.Reset()
	if err := e.Render(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	byName := map[string]Row{}
	for _, r := range rows {
		byName[r.Name] = r
	}
	if r := byName["podMTU"]; r.Value != 1400.0 || r.Origin != "file" || !strings.HasSuffix(r.Where, "felix-lite.yaml:1") {
		t.Errorf("podMTU is %+v", r)
	}
	if r := byName["disabledFeatures"]; !reflect.DeepEqual(r.Value, []any{"tcx"}) {
		t.Errorf("disabledFeatures is %+v", r)
	}
	if err := e.Render(&out, "xml"); err == nil {
		t.Error("format xml is accepted")
	}
}

func TestTheDocumentationIsFresh(t *testing.T) {
	const path = "../../docs/configuration.md"
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(have)); diff != "" {
		t.Errorf("%s is not what the table says; run go generate ./felix-lite/config:\n%s", path, diff)
	}
}

func TestDefaultSizesAreThoseOfTheDatapath(t *testing.T) {
	header, err := os.ReadFile("../../bpf-c/maps.h")
	if err != nil {
		t.Fatal(err)
	}
	e := Default()
	for name, got := range map[string]int{
		`FAM\(ct3\)`: e.MapSizes.Conntrack, `FAM\(ct_half\)`: e.MapSizes.ConntrackHalfOpen,
		`FAM\(nat_fe3\)`: e.MapSizes.NATFrontend, `FAM\(nat_be\)`: e.MapSizes.NATBackend,
		`FAM\(nat_aff\)`: e.MapSizes.NATAffinity, `FAM\(routes\)`: e.MapSizes.Routes, `cali_iface2`: e.MapSizes.Interfaces,
	} {
		m := regexp.MustCompile(`PINNED_MAP\(` + name + `,[^;]*?,\s*(\d+),\s*[A-Z_0]+\);`).FindSubmatch(header)
		if m == nil {
			t.Errorf("maps.h has no %s", name)
			continue
		}
		if want, _ := strconv.Atoi(string(m[1])); got != want {
			t.Errorf("%s: default size %d, maps.h says %d", name, got, want)
		}
	}
}

func TestUsageOfFlagsIsReadable(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, "bpffsRoot", "overlay")
	usage := fs.FlagUsages()
	for _, want := range []string{"--bpffs-root path", "--overlay VXLAN|Direct"} {
		if !strings.Contains(usage, want) {
			t.Errorf("usage lacks %q:\n%s", want, usage)
		}
	}
	if strings.Contains(usage, "--node-name") {
		t.Errorf("usage has flags that were not asked for:\n%s", usage)
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
