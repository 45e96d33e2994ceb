// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// publish writes what a run found into the documentation: the plots, and the tables between markers
//
//	<!-- bench: NAME -->
//	<!-- end -->
//
// of docs/performance.md. The prose around them is a person's.
func publish(results []result, docs string) error {
	if err := drawAll(results, filepath.Join(docs, "plots")); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(page)
	for name, t := range docTables(results) {
		if text, err = replaceTable(text, name, t); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// docTables are the tables of docs/performance.md by the names of their markers.
func docTables(results []result) map[string]table {
	return map[string]table{
		"run":    runTable(results),
		"goals":  goalTable(results),
		"pod":    ratioTable(results, "pod"),
		"host":   ratioTable(results, "host"),
		"crowd":  ratioTable(results, "crowd"),
		"rates":  latencyTable(results),
		"claims": claimTable(results),
		"hooks":  hookTable(results),
		"tc":     tcTable(results),
	}
}

// replaceTable puts a table between its markers. A table without figures leaves what is there.
func replaceTable(page, name string, t table) (string, error) {
	begin, end := "<!-- bench: "+name+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(page, begin)
	if !ok {
		return "", fmt.Errorf("no marker %s", strings.TrimSpace(begin))
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no %s after %s", end, strings.TrimSpace(begin))
	}
	if len(t) < 2 {
		return page, nil
	}
	var text strings.Builder
	t.markdown(&text)
	return before + begin + text.String() + end + after, nil
}

// readResults reads what an earlier run has written.
func readResults(path string) ([]result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var results []result
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, fmt.Errorf("read results: %s: %w", path, err)
	}
	return results, nil
}
