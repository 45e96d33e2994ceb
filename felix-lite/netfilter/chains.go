// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tool is the iptables of one back-end and family. What ends with its context has done all or nothing.
type tool interface {
	List(ctx context.Context, table, chain string) ([]string, error)
	NewChain(ctx context.Context, table, chain string) error
	Append(ctx context.Context, table, chain string, rule ...string) error
	Insert(ctx context.Context, table, chain string, pos int, rule ...string) error
	DeleteAt(ctx context.Context, table, chain string, pos int) error
	DeleteChain(ctx context.Context, table, chain string) error
}

// chains keeps the chains of one family.
type chains struct {
	tool tool
	// printed is how iptables prints rules of ours, where it is not as we write them.
	printed map[string]string
	// refused are the rules of chains that this kernel does not take; they are not tried again.
	refused map[string]string
}

func newChains(t tool) *chains {
	return &chains{tool: t, printed: map[string]string{}, refused: map[string]string{}}
}

// ensure brings all chains to what they should be, removes those of ours that are not wanted, and returns how many changes
// it made and what does not work on this kernel. It ends with the context; what is half done then, the next call does.
func (c *chains) ensure(ctx context.Context, want []Chain) (changes int, limits []string, err error) {
	var errs []error
	for _, place := range places {
		if ctx.Err() != nil {
			break
		}
		i := slices.IndexFunc(want, func(w Chain) bool { return w.id() == place.id() })
		var n int
		var err error
		if i < 0 {
			n, err = c.remove(ctx, place)
		} else {
			var limit string
			if n, limit, err = c.ensureChain(ctx, want[i]); limit != "" {
				limits = append(limits, limit)
			}
		}
		changes += n
		if err != nil {
			errs = append(errs, fmt.Errorf("table %s, chain %s: %w", place.Table, place.Name, err))
		}
	}
	return changes, limits, errors.Join(errs...)
}

func (c *chains) ensureChain(ctx context.Context, want Chain) (changes int, limit string, err error) {
	text := strings.Join(want.Rules, "\n")
	if why := c.refused[want.id()]; why != "" && strings.HasPrefix(why, text+"\n\n") {
		return 0, strings.TrimPrefix(why, text+"\n\n"), nil
	}
	changes, err = c.ensureRules(ctx, want, text)
	if err == nil {
		var n int
		n, err = c.ensureJump(ctx, want)
		changes += n
	}
	if err != nil && want.Without != "" && unknownToKernel(err) {
		limit = fmt.Sprintf("%s: table %s: %v", want.Without, want.Table, err)
		c.refused[want.id()] = text + "\n\n" + limit
		n, rerr := c.remove(ctx, want)
		if rerr != nil && !unknownToKernel(rerr) {
			return changes + n, limit, rerr
		}
		return changes + n, limit, nil
	}
	return changes, "", err
}

// ensureRules writes the rules of a chain where they are others. The new ones stand behind the old before those go, so that
// there is no moment without rules.
func (c *chains) ensureRules(ctx context.Context, want Chain, text string) (int, error) {
	have, err := c.rules(ctx, want.Table, want.Name)
	changes := 0
	if isNotExist(err) {
		if err := c.tool.NewChain(ctx, want.Table, want.Name); err != nil {
			return 0, err
		}
		have, changes = nil, 1
	} else if err != nil {
		return 0, err
	}
	if c.as(want, have, text) {
		return changes, nil
	}
	for _, rule := range want.Rules {
		if err := c.tool.Append(ctx, want.Table, want.Name, strings.Fields(rule)...); err != nil {
			return changes, fmt.Errorf("append %q: %w", rule, err)
		}
		changes++
	}
	for range have {
		if err := c.tool.DeleteAt(ctx, want.Table, want.Name, 1); err != nil {
			return changes, fmt.Errorf("delete an old rule: %w", err)
		}
		changes++
	}
	if have, err = c.rules(ctx, want.Table, want.Name); err != nil {
		return changes, err
	}
	if printed := strings.Join(have, "\n"); printed != text && len(have) == len(want.Rules) {
		c.printed[want.id()] = text + "\n\n" + printed
	}
	return changes, nil
}

// as reports whether a chain has the rules that it should.
func (c *chains) as(want Chain, have []string, text string) bool {
	printed := strings.Join(have, "\n")
	return printed == text || c.printed[want.id()] == text+"\n\n"+printed
}

// rules lists a chain's rules, without "-A chain".
func (c *chains) rules(ctx context.Context, table, chain string) ([]string, error) {
	lines, err := c.tool.List(ctx, table, chain)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range lines {
		if rule, ok := strings.CutPrefix(l, "-A "+chain+" "); ok {
			out = append(out, strings.TrimSpace(rule))
		}
	}
	return out, nil
}

// ensureJump makes the jump to a chain the first rule of its parent, and the only one.
func (c *chains) ensureJump(ctx context.Context, want Chain) (int, error) {
	rules, err := c.rules(ctx, want.Table, want.Parent)
	if err != nil && !isNotExist(err) {
		return 0, err
	}
	jump := "-j " + want.Name
	changes := 0
	if len(rules) == 0 || rules[0] != jump {
		if err := c.tool.Insert(ctx, want.Table, want.Parent, 1, strings.Fields(jump)...); err != nil {
			return 0, fmt.Errorf("jump from %s: %w", want.Parent, err)
		}
		rules = append([]string{jump}, rules...)
		changes++
	}
	n, err := c.deleteRules(ctx, want.Table, want.Parent, rules, jump, 1)
	return changes + n, err
}

// deleteRules deletes from a chain all rules from a place on that are like one, the last first.
func (c *chains) deleteRules(ctx context.Context, table, chain string, rules []string, like string, from int) (int, error) {
	changes := 0
	for i := len(rules) - 1; i >= from; i-- {
		if rules[i] != like {
			continue
		}
		if err := c.tool.DeleteAt(ctx, table, chain, i+1); err != nil {
			return changes, fmt.Errorf("delete the jump from %s: %w", chain, err)
		}
		changes++
	}
	return changes, nil
}

// remove takes a chain and the jumps to it away; one that is not there is fine.
func (c *chains) remove(ctx context.Context, place Chain) (int, error) {
	if _, err := c.rules(ctx, place.Table, place.Name); isNotExist(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	rules, err := c.rules(ctx, place.Table, place.Parent)
	if err != nil && !isNotExist(err) {
		return 0, err
	}
	changes, err := c.deleteRules(ctx, place.Table, place.Parent, rules, "-j "+place.Name, 0)
	if err != nil {
		return changes, err
	}
	if err := c.tool.DeleteChain(ctx, place.Table, place.Name); err != nil {
		return changes, fmt.Errorf("delete: %w", err)
	}
	return changes + 1, nil
}

// isNotExist recognises a chain that is not there. iptables-nft calls it incompatible where its table is not there either;
// one that really is refuses to be made.
func isNotExist(err error) bool {
	var e interface{ IsNotExist() bool }
	return err != nil && (errors.As(err, &e) && e.IsNotExist() || strings.Contains(err.Error(), "is incompatible, use 'nft' tool"))
}

// unknownToKernel recognises a target or table that the kernel does not have; everything else may be better the next time.
func unknownToKernel(err error) bool {
	if isNotExist(err) {
		return true
	}
	return containsAny(err.Error(), []string{"does it exist", "insmod", "missing kernel module", "Operation not supported"})
}
