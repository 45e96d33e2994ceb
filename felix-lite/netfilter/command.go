// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-iptables/iptables"
)

const (
	// lockSeconds is how long a command waits for another one that holds the xtables lock.
	lockSeconds = 10
	// commandTimeout bounds a command altogether: one that waits for ever would keep everything after it.
	commandTimeout = 30 * time.Second
	// pipeDelay is how long a killed command's children may keep its output open.
	pipeDelay = time.Second
)

// run runs a command that only reads, and returns what it printed. It ends with the context.
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

// noBackend is what the commands of a back-end say where the kernel does not have it.
var noBackend = []string{"Could not fetch rule set generation id: Invalid argument", "Failed to initialize nft", "missing kernel module", "insmod"}

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

// commands are the iptables commands of one back-end and family. Each waits up to lockSeconds for the xtables lock, and writes all
// or nothing; none is begun when the context has ended.
type commands struct{ tool *iptables.IPTables }

// List prints a chain as iptables -S does.
func (c commands) List(ctx context.Context, table, chain string) (lines []string, err error) {
	err = begun(ctx, func() error { lines, err = c.tool.List(table, chain); return err })
	return lines, err
}

// NewChain makes a chain; it is an error where there is one.
func (c commands) NewChain(ctx context.Context, table, chain string) error {
	return begun(ctx, func() error { return c.tool.NewChain(table, chain) })
}

// Append adds a rule at a chain's end.
func (c commands) Append(ctx context.Context, table, chain string, rule ...string) error {
	return begun(ctx, func() error { return c.tool.Append(table, chain, rule...) })
}

// Insert makes a rule the one at a position, from 1.
func (c commands) Insert(ctx context.Context, table, chain string, pos int, rule ...string) error {
	return begun(ctx, func() error { return c.tool.Insert(table, chain, pos, rule...) })
}

// DeleteAt deletes the rule at a position, from 1.
func (c commands) DeleteAt(ctx context.Context, table, chain string, pos int) error {
	return begun(ctx, func() error { return c.tool.DeleteById(table, chain, pos) })
}

// DeleteChain empties a chain and deletes it.
func (c commands) DeleteChain(ctx context.Context, table, chain string) error {
	return begun(ctx, func() error { return c.tool.ClearAndDeleteChain(table, chain) })
}

func begun(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return do()
}
