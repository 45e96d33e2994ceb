// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/config"
)

// run is the command line as a person types it.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestConfigPrintsEachValueWithItsOrigin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("nodeName: n7\nvxlanPort: 8472\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FELIX_LITE_POD_MTU", "1400")
	out, err := run(t, "config", "--config", file, "--overlay", "direct", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []config.Row
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"nodeName": "file", "vxlanPort": "file", "podMTU": "env", "overlay": "flag", "logLevel": "default"}
	for _, r := range rows {
		if origin, ok := want[r.Name]; ok {
			if r.Origin != origin {
				t.Errorf("%s comes from %s, want %s", r.Name, r.Origin, origin)
			}
			delete(want, r.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not printed: %v", want)
	}
}

func TestABadConfigurationIsPrintedWithWhatIsWrong(t *testing.T) {
	_, err := run(t, "config", "--vxlan-port", "x", "--overlay", "ether")
	if err == nil || !strings.Contains(err.Error(), "vxlanPort") || !strings.Contains(err.Error(), "overlay") {
		t.Fatalf("error: %v", err)
	}
}

func TestCommandsThatNeedMapsSayWhereTheyLooked(t *testing.T) {
	root := t.TempDir()
	for _, args := range [][]string{{"status"}, {"services"}, {"routes"}, {"interfaces"}, {"counters"}, {"conntrack", "list"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			_, err := run(t, append([]string{"--bpffs-root", root}, args...)...)
			if err == nil || !strings.Contains(err.Error(), root) {
				t.Fatalf("error: %v", err)
			}
		})
	}
}

func TestFlushWantsToBeToldWhat(t *testing.T) {
	_, err := run(t, "conntrack", "flush")
	if err == nil || !strings.Contains(err.Error(), "--all") {
		t.Fatalf("error: %v", err)
	}
}

func TestFlowFilters(t *testing.T) {
	tests := []struct {
		name   string
		filter flowFilter
		want   string // part of the error; empty: none
	}{
		{"an address is a prefix of its full length", flowFilter{address: "10.0.0.1"}, ""},
		{"a prefix is taken as it is", flowFilter{address: "10.0.0.0/8", proto: "tcp"}, ""},
		{"a name is refused", flowFilter{address: "web"}, "neither an address nor a prefix"},
		{"an unknown protocol is refused", flowFilter{proto: "quic"}, "quic"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.filter.parse()
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error: %v", err)
			}
		})
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "felix-lite "+version) {
		t.Fatalf("%q, %v", out, err)
	}
}
