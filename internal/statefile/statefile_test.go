// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	want := State{Version: 1, Node: "n1", PID: 7, Started: time.Unix(5, 0).UTC(),
		Services: []Service{{Family: "v4", ID: 3, Service: "default/web", Port: "http", Type: "ClusterIP"}}}
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Fatalf("temporary files are left: %v", entries)
	}
}

func TestAFileThatIsNotUnderstoodIsAnError(t *testing.T) {
	for name, content := range map[string]string{"cut off": `{"version":1`, "another version": `{"version":9}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, Name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(dir); err == nil {
				t.Fatal("no error")
			}
		})
	}
}
