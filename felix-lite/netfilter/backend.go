// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
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
func command(b Backend, f model.Family) (string, error) {
	name := base(f) + suffixes[b].name
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(base(f))
	if err == nil {
		version, verr := exec.Command(path, "--version").Output()
		mode := string(version)
		if verr == nil && (strings.Contains(mode, suffixes[b].version) || b == Legacy && !strings.Contains(mode, "(")) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w: install the package iptables", name, ErrMissing)
}

// lockSeconds is how long a command waits for another one that holds the xtables lock.
const lockSeconds = 10

// open makes the tool of one back-end and family.
func open(b Backend, f model.Family) (*iptables.IPTables, error) {
	path, err := command(b, f)
	if err != nil {
		return nil, err
	}
	family := iptables.ProtocolIPv4
	if f == model.IPv6 {
		family = iptables.ProtocolIPv6
	}
	t, err := iptables.New(iptables.Path(path), iptables.IPFamily(family), iptables.Timeout(lockSeconds))
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", path, err)
	}
	return t, nil
}

// holding is what a back-end holds.
type holding struct {
	there  bool // its commands are installed
	others int  // rules that are not ours
	ours   bool // a chain of ours
}

// look reads a back-end's rules of both families. Listing by -save makes no tables where there were none.
func look(b Backend) holding {
	var h holding
	for _, f := range model.Families {
		path, err := command(b, f)
		if err != nil {
			continue
		}
		h.there = true
		save := path + "-save"
		if _, err := exec.LookPath(save); err != nil {
			continue
		}
		out, _ := exec.Command(save).Output() // what it can not read it says on stderr
		others, mine := countRules(string(out))
		h.others += others
		h.ours = h.ours || mine
	}
	return h
}

// countRules counts, in what iptables-save prints, the rules of others, and tells whether there are chains of ours.
func countRules(saved string) (others int, mine bool) {
	for line := range strings.Lines(saved) {
		switch {
		case strings.HasPrefix(line, ":"+ours):
			mine = true
		case strings.HasPrefix(line, "-A ") && !strings.Contains(line, ours):
			others++
		}
	}
	return others, mine
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
