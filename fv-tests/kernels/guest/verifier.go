// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The verifier's limits, and the share of each that a program may use: the rest is kept for
// compilers that emit something else and for features to come.
const (
	maxVerified     = 1_000_000 // BPF_COMPLEXITY_LIMIT_INSNS
	maxJumpDistance = 32_767    // a jump's offset is an int16
	allowedPercent  = 70
)

// verifierStats is what the verifier says of a program that it took.
type verifierStats struct {
	instructions  int // of the program, 8 bytes each
	verified      int // instructions walked, over all paths
	statesPerInsn int
	totalStates   int
	peakStates    int
	stack         string // bytes, of each function of the program: 32+0
}

var (
	processedLine = regexp.MustCompile(`processed (\d+) insns \(limit \d+\) max_states_per_insn (\d+) total_states (\d+) peak_states (\d+)`)
	stackLine     = regexp.MustCompile(`(?m)^stack depth (\S+)`)
)

// parseStats reads the end of a verifier log of level "stats"; every kernel from 5.2 on writes it,
// where the count in the program's info needs 5.16.
func parseStats(log string) (verifierStats, error) {
	m := processedLine.FindStringSubmatch(log)
	if m == nil {
		return verifierStats{}, fmt.Errorf("verifier log has no count of instructions: %q", log)
	}
	var s verifierStats
	for i, field := range []*int{&s.verified, &s.statesPerInsn, &s.totalStates, &s.peakStates} {
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return verifierStats{}, fmt.Errorf("verifier log: %w", err)
		}
		*field = n
	}
	if m := stackLine.FindStringSubmatch(log); m != nil {
		s.stack = strings.TrimSpace(m[1])
	}
	return s, nil
}

// raise keeps the larger of the two figures that judge looks at.
func (s *verifierStats) raise(other verifierStats) {
	s.verified = max(s.verified, other.verified)
	s.instructions = max(s.instructions, other.instructions)
}

// judge tells whether a program keeps its reserve.
func (s verifierStats) judge() error {
	if limit := maxVerified * allowedPercent / 100; s.verified > limit {
		return fmt.Errorf("verifier walked %d instructions, more than %d %% of %d", s.verified, allowedPercent, maxVerified)
	}
	if limit := maxJumpDistance * allowedPercent / 100; s.instructions > limit {
		return fmt.Errorf("%d instructions, more than %d %% of the longest jump, %d", s.instructions, allowedPercent, maxJumpDistance)
	}
	return nil
}
