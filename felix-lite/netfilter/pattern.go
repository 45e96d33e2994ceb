// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	// maxPrefixes bounds the rules that a pattern may become; maxClass how many characters at one place are told apart.
	maxPrefixes = 8
	maxClass    = 4
	// maxName is the longest name of an interface; iptables needs one more character for its "+".
	maxName = 15
)

// Prefixes returns beginnings of names, one of which every name that a pattern matches has. It returns nil where the
// pattern does not say how a name begins, or where one of the names in others, which are no workloads', begins like that
// too: rules by such a beginning would let pass too much.
func Prefixes(pattern *regexp.Regexp, others []string) []string {
	if pattern == nil {
		return nil
	}
	re, err := syntax.Parse(pattern.String(), syntax.Perl)
	if err != nil {
		return nil
	}
	found := beginnings(re.Simplify())
	if !found.anchored || len(found.texts) == 0 || len(found.texts) > maxPrefixes {
		return nil
	}
	var out []string
	for _, p := range found.texts {
		if p == "" || len(p) >= maxName || strings.ContainsAny(p, " \t\"'!/+") {
			return nil
		}
		for _, name := range others {
			if strings.HasPrefix(name, p) {
				return nil
			}
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return shortest(out)
}

// shortest drops, from sorted texts, those that another one is the beginning of.
func shortest(sorted []string) []string {
	var out []string
	for _, p := range sorted {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// begin is how what a part of a pattern matches begins.
type begin struct {
	anchored bool     // it begins where the name does
	texts    []string // one of these; none: nothing is known, and nothing that follows matters
	whole    bool     // it is exactly one of the texts: what follows goes on from there
}

var unknown = begin{texts: []string{""}}

// beginnings walks a pattern from its left as long as it is literal.
func beginnings(re *syntax.Regexp) begin {
	switch re.Op {
	case syntax.OpBeginText:
		return begin{anchored: true, texts: []string{""}, whole: true}
	case syntax.OpEmptyMatch:
		return begin{texts: []string{""}, whole: true}
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return unknown
		}
		return begin{texts: []string{string(re.Rune)}, whole: true}
	case syntax.OpCharClass:
		return class(re)
	case syntax.OpCapture:
		return beginnings(re.Sub[0])
	case syntax.OpPlus:
		b := beginnings(re.Sub[0])
		b.whole = false
		return b
	case syntax.OpConcat:
		return concat(re.Sub)
	case syntax.OpAlternate:
		return alternate(re.Sub)
	}
	return unknown
}

// class is a set of characters, if it is a small one.
func class(re *syntax.Regexp) begin {
	b := begin{whole: true}
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if len(b.texts) == maxClass {
				return unknown
			}
			b.texts = append(b.texts, string(r))
		}
	}
	if len(b.texts) == 0 {
		return unknown
	}
	return b
}

func concat(parts []*syntax.Regexp) begin {
	out := begin{texts: []string{""}, whole: true}
	for i, part := range parts {
		next := beginnings(part)
		out.anchored = out.anchored || i == 0 && next.anchored
		if len(out.texts)*len(next.texts) > maxPrefixes {
			out.whole = false
			return out // what is known is enough
		}
		var joined []string
		for _, a := range out.texts {
			for _, b := range next.texts {
				joined = append(joined, a+b)
			}
		}
		out.texts, out.whole = joined, next.whole
		if !next.whole {
			break
		}
	}
	return out
}

func alternate(parts []*syntax.Regexp) begin {
	out := begin{anchored: true, whole: true}
	for _, part := range parts {
		b := beginnings(part)
		out.anchored = out.anchored && b.anchored
		out.whole = out.whole && b.whole
		out.texts = append(out.texts, b.texts...)
	}
	if len(out.texts) > maxPrefixes {
		return unknown
	}
	return out
}
