// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
)

// All are the cells of all sites.
func All() []Cell {
	var all []Cell
	for _, overlay := range []string{"VXLAN", "Direct"} {
		for _, mode := range Modes {
			for _, firewall := range []bool{false, true} {
				all = append(all, Cells(Site{overlay, mode, firewall})...)
			}
		}
	}
	return all
}

// Choose picks the cells to run: a set that covers every pair of dimensions' values for "", all of them
// for "all", else those whose name matches a regular expression.
func Choose(which string) ([]Cell, error) {
	switch which {
	case "":
		return cover(All(), dimensions), nil
	case "all":
		return All(), nil
	}
	pattern, err := regexp.Compile(which)
	if err != nil {
		return nil, fmt.Errorf("choice of cells: %w", err)
	}
	return slices.DeleteFunc(All(), func(c Cell) bool { return !pattern.MatchString(c.String()) }), nil
}

// Sample are some cells of one site: each path in both families, by sockets in turn.
func Sample(site Site) []Cell {
	return cover(Cells(site), func(c Cell) []string { return []string{c.row(), c.family()} })
}

// row names the path.
func (c Cell) row() string { return fmt.Sprintf("%s to %s, %s", c.From, c.To, c.Backend) }

// dimensions are the values of which every pair is to be met. The mechanism is one, so that no way that a
// path can take is left out.
func dimensions(c Cell) []string {
	name, _, _ := c.mechanism()
	return []string{
		c.row(), c.family(), string(c.Socket), c.Site.Overlay, string(c.Site.Mode), fmt.Sprint("firewall ", c.Site.Firewall), name,
	}
}

// cover chooses cells until every pair of values that occurs in any cell occurs in a chosen one. It is
// greedy, and the same at every run: ties go to the smaller hash, so that they are spread.
func cover(cells []Cell, values func(Cell) []string) []Cell {
	pairs := make([][]string, len(cells))
	open := map[string]bool{}
	for i, c := range cells {
		v := values(c)
		for a := range v {
			for b := range a {
				pair := v[b] + "|" + v[a]
				pairs[i] = append(pairs[i], pair)
				open[pair] = true
			}
		}
	}
	order := make([]int, len(cells))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(hash(cells[a])) - int(hash(cells[b])) })
	var chosen []int
	// Most new pairs first: a cell that could bring all of its pairs is taken before one that brings fewer.
	for want := len(values(cells[0])) * (len(values(cells[0])) - 1) / 2; want > 0; want-- {
		for _, i := range order {
			fresh := 0
			for _, pair := range pairs[i] {
				if open[pair] {
					fresh++
				}
			}
			if fresh < want {
				continue
			}
			for _, pair := range pairs[i] {
				delete(open, pair)
			}
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	var set []Cell
	for _, i := range chosen {
		set = append(set, cells[i])
	}
	return set
}

func hash(c Cell) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, c)
	return h.Sum32()
}
