// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/felix-lite/config"
)

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
