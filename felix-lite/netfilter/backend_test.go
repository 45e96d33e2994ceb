// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commandsIn makes a directory with the iptables commands of the machine the only one in which commands are found, and
// returns it. What is in scripts, by name, stands in a command's place: it is handed the real command in $REAL.
func commandsIn(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, b := range suffixes {
			for _, kind := range []string{"", "-save"} {
				name := family + b.name + kind
				path, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				if script := scripts[name]; script != "" {
					text := fmt.Sprintf("#!/bin/sh\nREAL=%s DIR=%s PATH=%s\n%s\n", path, dir, os.Getenv("PATH"), script)
					err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700)
				} else {
					err = os.Symlink(path, filepath.Join(dir, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

func TestAChainsPolicyCountsAsARule(t *testing.T) {
	bothBackends(t, func(t *testing.T, n *node, b Backend, iptables string) {
		n.run(iptables + " -P FORWARD DROP")
		n.start(time.Hour)
		n.good(wanted, b)
	})
}

func TestABackendThatCanNotBeReadIsAnErrorAndTriedAgain(t *testing.T) {
	for _, f := range []struct{ command, backend string }{{"iptables-nft-save", "NFT"}, {"ip6tables-legacy-save", "Legacy"}} {
		t.Run(f.command, func(t *testing.T) {
			n := newNode(t)
			n.run("iptables-legacy -P FORWARD DROP")
			dir := commandsIn(t, map[string]string{f.command: `[ -e "$DIR/well" ] && exec "$REAL"; echo "the table is on fire" >&2; exit 4`})
			n.start(time.Hour)
			r := n.look(wanted)
			if r.Err == nil || r.Backend != "" {
				t.Fatalf("got %+v, want an error and no back-end", r)
			}
			for _, part := range []string{f.command, "the table is on fire", f.backend} {
				if !strings.Contains(r.Err.Error(), part) {
					t.Errorf("%q says nothing of %q", r.Err, part)
				}
			}
			// Who asks for a back-end does not wait for the other.
			s := wanted
			s.Backend = map[string]Backend{"NFT": Legacy, "Legacy": NFT}[f.backend]
			if r := n.look(s); r.Backend != s.Backend || r.Changes == 0 || r.Err == nil || !strings.Contains(r.Err.Error(), f.command) {
				t.Errorf("%s was asked for: got %+v", s.Backend, r)
			}
			if err := os.WriteFile(filepath.Join(dir, "well"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.good(s, s.Backend)
			n.good(wanted, Legacy)
		})
	}
}

func TestABackendThatTheKernelDoesNotHaveIsNotThere(t *testing.T) {
	n := newNode(t)
	no := `echo "$0 v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument" >&2; exit 4`
	scripts := map[string]string{}
	for _, name := range []string{"iptables-nft", "iptables-nft-save", "ip6tables-nft", "ip6tables-nft-save"} {
		scripts[name] = no
	}
	commandsIn(t, scripts)
	n.start(time.Hour)
	n.good(wanted, Legacy)
}

func TestTheStopWaitsForNoCommandThatReads(t *testing.T) {
	n := newNode(t)
	dir := commandsIn(t, map[string]string{"iptables-nft-save": `
[ -e "$DIR/over" ] && exec "$REAL" "$@"
: > "$DIR/waiting"
until [ -e "$DIR/over" ]; do sleep 0.1; done`})
	n.start(time.Hour)
	n.k.Want(wanted)
	until(t, "the command waits", func() bool {
		_, err := os.Stat(filepath.Join(dir, "waiting"))
		return err == nil
	})
	stopped := make(chan struct{})
	go func() { defer close(stopped); n.stop() }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the stop waits for a command that waits")
		os.WriteFile(filepath.Join(dir, "over"), nil, 0o600)
		<-stopped
	}
}

// until waits for a condition.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not reached: %s", what)
		}
	}
}
