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
