// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/coreos/go-iptables/iptables"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Backend is one of the kernel's two implementations of iptables.
type Backend string

// The back-ends.
const (
	Auto   Backend = "Auto"   // where more rules are already; NFT on a tie
	NFT    Backend = "NFT"    // nf_tables
	Legacy Backend = "Legacy" // xtables
)

// ErrMissing is wrapped by the error that says that there are no iptables commands.
var ErrMissing = errors.New("iptables is not installed")

// ours is how the names of our chains begin.
const ours = "FELIX-LITE-"

// suffixes are those of the commands' names, and the word in their versions.
var suffixes = map[Backend]struct{ name, version string }{NFT: {"-nft", "nf_tables"}, Legacy: {"-legacy", "legacy"}}

func base(f model.Family) string {
	if f == model.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// command finds the iptables command of a back-end: by its own name or, if it is what "iptables" stands for, by that.
func command(ctx context.Context, b Backend, f model.Family) (string, error) {
	name := base(f) + suffixes[b].name
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(base(f)); err == nil {
		mode, err := run(ctx, path, "--version")
		if err != nil {
			return "", fmt.Errorf("which back-end %s is of: %w", path, err)
		}
		if strings.Contains(mode, suffixes[b].version) || b == Legacy && !strings.Contains(mode, "(") {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w: install the package iptables", name, ErrMissing)
}

// open finds the commands of one back-end and family, and tells whether they can choose source ports at random.
func open(ctx context.Context, b Backend, f model.Family) (c commands, random bool, err error) {
	path, err := command(ctx, b, f)
	if err != nil {
		return commands{}, false, err
	}
	family := iptables.ProtocolIPv4
	if f == model.IPv6 {
		family = iptables.ProtocolIPv6
	}
	t, err := iptables.New(iptables.Path(path), iptables.IPFamily(family), iptables.Timeout(lockSeconds))
	if err != nil {
		return commands{}, false, fmt.Errorf("use %s: %w", path, err)
	}
	return commands{tool: t}, t.HasRandomFully(), nil
}

// holding is what a back-end holds.
type holding struct {
	there  bool // its commands are installed, and the kernel has it
	others int  // rules that are not ours; a policy that drops is one
	ours   bool // a chain of ours
}

// look reads a back-end's rules of both families. Listing by -save makes no tables where there were none.
func look(ctx context.Context, b Backend) (holding, error) {
	var h holding
	var errs []error
	for _, f := range model.Families {
		saved, err := save(ctx, b, f)
		if errors.Is(err, ErrMissing) || notInKernel(err) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("back-end %s, %s: what rules there are: %w", b, f, err))
			continue
		}
		others, mine := countRules(saved)
		h.there = true
		h.others += others
		h.ours = h.ours || mine
	}
	return h, errors.Join(errs...)
}

// save prints all rules of one back-end and family.
func save(ctx context.Context, b Backend, f model.Family) (string, error) {
	path, err := command(ctx, b, f)
	if err != nil {
		return "", err
	}
	if path, err = exec.LookPath(path + "-save"); err != nil {
		return "", fmt.Errorf("%w: %w: install the package iptables", err, ErrMissing)
	}
	return run(ctx, path)
}

// countRules counts, in what iptables-save prints, the rules of others, and tells whether there are chains of ours. A chain's
// policy is a rule, unless it accepts: that of every chain which nobody has touched.
func countRules(saved string) (others int, mine bool) {
	for line := range strings.Lines(saved) {
		switch {
		case strings.HasPrefix(line, ":"+ours):
			mine = true
		case strings.HasPrefix(line, "-A ") && !strings.Contains(line, ours), restrictive(line):
			others++
		}
	}
	return others, mine
}

// restrictive tells whether a line of iptables-save is a built-in chain whose policy is not to accept; that of other chains
// is printed as "-".
func restrictive(line string) bool {
	fields := strings.Fields(line)
	return strings.HasPrefix(line, ":") && len(fields) > 1 && fields[1] != "ACCEPT" && fields[1] != "-"
}

// choose settles Auto.
func choose(nft, legacy holding) (Backend, error) {
	switch {
	case !nft.there && !legacy.there:
		return "", fmt.Errorf("%w: install the package iptables", ErrMissing)
	case !nft.there, legacy.there && legacy.others > nft.others:
		return Legacy, nil
	}
	return NFT, nil
}
