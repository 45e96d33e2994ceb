// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// lockSeconds is how long a command waits for another one that holds the xtables lock.
	lockSeconds = 10
	// commandTimeout bounds a command altogether: one that waits for ever would keep everything after it.
	commandTimeout = 30 * time.Second
	// pipeDelay is how long a killed command's children may keep its output open.
	pipeDelay = time.Second
)

// run runs a command and returns what it printed. It ends with the context: each command of iptables writes all or nothing,
// so it may be killed at any moment.
func run(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, pipeDelay
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.String(), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no end within %s: %w", commandTimeout, ctx.Err())
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	line := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
	return "", &commandError{line: line, printed: strings.TrimSpace(stderr.String()), err: err}
}

// commandError is a command that failed, with what it printed.
type commandError struct {
	line, printed string
	err           error
}

// Error names the command and repeats what it said.
func (e *commandError) Error() string {
	if e.printed == "" {
		return fmt.Sprintf("%s: %v", e.line, e.err)
	}
	return fmt.Sprintf("%s: %v: %s", e.line, e.err, e.printed)
}

// Unwrap returns how it ended.
func (e *commandError) Unwrap() error { return e.err }

// IsNotExist reports whether the command did not find the chain, target or table.
func (e *commandError) IsNotExist() bool { return containsAny(e.printed, notExist) }

var (
	notExist = []string{"No chain/target/match by that name", "No such file or directory", "does not exist",
		"Bad rule (does a matching rule exist in that chain?)"}
	// noBackend is what the commands of a back-end say where the kernel does not have it.
	noBackend = []string{"Could not fetch rule set generation id: Invalid argument", "Failed to initialize nft", "missing kernel module", "insmod"}
)

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// notInKernel recognises that the kernel does not have a back-end at all.
func notInKernel(err error) bool {
	var e *commandError
	return errors.As(err, &e) && containsAny(e.printed, noBackend)
}

// commands are the iptables commands of one back-end and family.
type commands struct{ path string }

func (c commands) do(ctx context.Context, args ...string) (string, error) {
	return run(ctx, c.path, append(args, "--wait", strconv.Itoa(lockSeconds))...)
}

// List prints a chain as iptables -S does.
func (c commands) List(ctx context.Context, table, chain string) ([]string, error) {
	out, err := c.do(ctx, "-t", table, "-S", chain)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n"), nil
}

// NewChain makes a chain; it is an error where there is one.
func (c commands) NewChain(ctx context.Context, table, chain string) error {
	_, err := c.do(ctx, "-t", table, "-N", chain)
	return err
}

// Append adds a rule at a chain's end.
func (c commands) Append(ctx context.Context, table, chain string, rule ...string) error {
	_, err := c.do(ctx, append([]string{"-t", table, "-A", chain}, rule...)...)
	return err
}

// Insert makes a rule the one at a position, from 1.
func (c commands) Insert(ctx context.Context, table, chain string, pos int, rule ...string) error {
	_, err := c.do(ctx, append([]string{"-t", table, "-I", chain, strconv.Itoa(pos)}, rule...)...)
	return err
}

// DeleteAt deletes the rule at a position, from 1.
func (c commands) DeleteAt(ctx context.Context, table, chain string, pos int) error {
	_, err := c.do(ctx, "-t", table, "-D", chain, strconv.Itoa(pos))
	return err
}

// DeleteChain empties a chain and deletes it.
func (c commands) DeleteChain(ctx context.Context, table, chain string) error {
	if _, err := c.do(ctx, "-t", table, "-F", chain); err != nil {
		return err
	}
	_, err := c.do(ctx, "-t", table, "-X", chain)
	return err
}

var versionPattern = regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)`)

// randomFully reports whether a version, as iptables --version prints it, knows MASQUERADE --random-fully: from 1.6.2 on.
func randomFully(version string) bool {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return false
	}
	have := 0
	for _, part := range m[1:] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		have = have*1000 + min(n, 999)
	}
	return have >= 1_006_002
}
