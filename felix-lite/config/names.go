// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"unicode"
)

// EnvPrefix begins the name of every environment variable that is read.
const EnvPrefix = "FELIX_LITE_"

// EnvFile is the variable that names the configuration file where no flag does. It is read by the
// commands and is no setting.
const EnvFile = EnvPrefix + "CONFIG"

// Env is the name of the setting's environment variable: FELIX_LITE_POD_MTU for podMTU.
func (s *Setting) Env() string {
	return EnvPrefix + strings.ToUpper(strings.Join(words(s.Name), "_"))
}

// Flag is the name of the setting's flag without its dashes: pod-mtu for podMTU.
func (s *Setting) Flag() string {
	return strings.ToLower(strings.Join(words(s.Name), "-"))
}

// words splits a name at its humps and dots. Letters that stand together in capitals are one word
// (podMTU: pod, MTU), of which the last belongs to the next word if a small letter follows
// (mapSizeNATFrontend: map, Size, NAT, Frontend).
func words(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, string(word))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if r == '.' {
			end()
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			nextIsSmall := i+1 < len(runes) && unicode.IsLower(runes[i+1]) && !pluralEnd(runes, i+1)
			if !unicode.IsUpper(runes[i-1]) || nextIsSmall {
				end()
			}
		}
		word = append(word, r)
	}
	end()
	return out
}

// pluralEnd says whether the letter at i is the s that makes a plural of an abbreviation (CIDRs).
func pluralEnd(runes []rune, i int) bool {
	return runes[i] == 's' && (i+1 == len(runes) || unicode.IsUpper(runes[i+1]) || runes[i+1] == '.')
}

// nearest returns the candidate that is most likely meant by a misspelt name, or "".
func nearest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	const tooLong = 128 // no name is: the work on hostile input stays small
	if len(a) > tooLong || len(b) > tooLong {
		return tooLong
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
