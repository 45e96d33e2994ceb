// SPDX-License-Identifier: Apache-2.0

package progtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// allFixtures are those of every test in the package.
var allFixtures = slices.Concat(
	serviceFixtures, zeroSum, viaNAT, viaLo, hostCollisions, leaving, externalFixtures, affinityFixtures, collisionFixtures,
	closingFixtures, resetFixtures, timeoutFixtures, expiryFixtures, midFlowFixtures, fullFixtures,
	forwardFixtures, tunnelFixtures, hopFixtures, mtuFixtures, relatedFixtures,
	foreignFixtures, fragmentFixtures, extFixtures, brokenFixtures,
	markFixtures, classFixtures, dryFixtures, missingFixtures,
)

// notProduced are the counters that no packet can produce today, and why.
var notProduced = map[layout.Counter]string{
	layout.CountStraight:      "read as the counters that it stands for",
	layout.CountStraightDNAT:  "read as the counters that it stands for",
	layout.CountStraightUnnat: "read as the counters that it stands for",
	layout.DropNoState:        "arrays always find their first two entries",
	layout.DropIfaceNotReady:  "no program looks at an interface's readiness yet",
	layout.DropSrcRange:       "no program looks at source ranges yet",
	layout.DropSpoofed:        "no program checks a workload's source address yet",
}

// oneFamily are the counters that belong to one family.
var oneFamily = map[layout.Counter]layout.Family{layout.DropExtHeaders: layout.FamilyV6}

func (f fixture) runsIn(family layout.Family) bool {
	return f.only == "" || string(f.only) == family.String()
}

func TestEveryCounterIsProducedByAFixtureOrSaysWhyNot(t *testing.T) {
	for _, family := range variants.Families {
		produced := map[layout.Counter]string{layout.CountTotal: "every packet"}
		for _, f := range allFixtures {
			for _, s := range f.steps {
				for _, c := range s.counted {
					if f.runsIn(family) {
						produced[c] = f.name
					}
				}
			}
		}
		for c := range layout.CounterMax {
			if strings.HasPrefix(c.String(), "unknown") {
				continue
			}
			if only, ok := oneFamily[c]; ok && only != family {
				continue
			}
			by, reason := produced[c], notProduced[c]
			switch {
			case by == "" && reason == "":
				t.Errorf("%v: no fixture produces %v (%s): write one, or say in notProduced why there can be none", family, c, c.Text())
			case by != "" && reason != "":
				t.Errorf("%v: %v is said to be impossible (%s), but %q produces it", family, c, reason, by)
			}
		}
	}
}

func TestEveryVariantIsRunByAFixtureThatIsNotPassedOnSight(t *testing.T) {
	run := map[string]int{}
	for _, f := range allFixtures {
		for _, s := range f.steps {
			for _, family := range variants.Families {
				if f.runsIn(family) && !slices.Contains(s.counted, layout.CountBypass) {
					variant, _, _ := hookOf(s.at, family)
					run[variant]++
				}
			}
		}
	}
	for _, v := range variants.All() {
		if run[v.Name()] == 0 {
			t.Errorf("no fixture runs %v", v)
		}
	}
}

func TestNamesOfFixturesAreTheirOwn(t *testing.T) {
	seen := map[string]int{}
	for _, f := range allFixtures {
		for _, family := range variants.Families {
			if f.runsIn(family) {
				seen[f.name+"/"+family.String()]++
			}
		}
	}
	for name, n := range seen {
		if n > 1 {
			t.Errorf("%d fixtures are called %q", n, name)
		}
	}
}
