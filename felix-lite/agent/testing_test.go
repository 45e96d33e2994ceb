// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/socketlb"
)

// TestMain lets this test's binary be the process of the agent's self-test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == socketlb.ProbeVerb {
		if err := socketlb.Probe(os.Stdout, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testConfig is the configuration that the given lines of a file make.
func testConfig(t *testing.T, lines ...string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	effective, err := config.Load(config.Inputs{File: file, Hostname: func() (string, error) { return "test", nil }})
	if err != nil {
		t.Fatal(err)
	}
	return &effective.Config
}
