// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestTheVerifiersCountsAreReadFromTheEndOfItsLog(t *testing.T) {
	const log = "verification time 812 usec\nstack depth 96+0\nprocessed 5213 insns (limit 1000000) max_states_per_insn 4 total_states 301 peak_states 211 mark_read 57\n"
	got, err := parseStats(log)
	want := verifierStats{verified: 5213, statesPerInsn: 4, totalStates: 301, peakStates: 211, stack: "96+0"}
	if err != nil || got != want {
		t.Errorf("parseStats = %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseStats("func#0 @0\n"); err == nil {
		t.Error("a log without counts was read")
	}
}

func TestAProgramKeepsThirtyPercentOfTheVerifiersLimits(t *testing.T) {
	for name, c := range map[string]struct {
		stats verifierStats
		ok    bool
	}{
		"a small program":                    {verifierStats{instructions: 900, verified: 5000}, true},
		"exactly at the reserve":             {verifierStats{instructions: 900, verified: 700_000}, true},
		"one instruction into the reserve":   {verifierStats{instructions: 900, verified: 700_001}, false},
		"longer than a jump safely reaches":  {verifierStats{instructions: 23_000, verified: 30_000}, false},
		"just as long as a jump may need it": {verifierStats{instructions: 22_900, verified: 30_000}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.stats.judge(); (err == nil) != c.ok {
				t.Errorf("judge() = %v, want ok = %v", err, c.ok)
			}
		})
	}
}
