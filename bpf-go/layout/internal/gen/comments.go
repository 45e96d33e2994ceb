// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// comments of the C headers, by what they stand at.
type comments struct {
	types  map[string]string // "cali_ct_key": the block above the definition
	fields map[string]string // "cali_ct_key.zone": the comment behind the member
	values map[string]string // "CALI_DROP_TTL": the comment behind the enum's value
}

var (
	definition = regexp.MustCompile(`(?ms)^(?:struct|enum) (cali_\w+) \{\n(.*?)^\};`)
	blockAbove = regexp.MustCompile(`(?s)/\*((?:[^*]|\*[^/])*)\*/\n$`)
	valueLine  = regexp.MustCompile(`(?s)(CALI_\w+)\s*=[^,]*,[ \t]*/\*(.*?)\*/`)
	fieldLine  = regexp.MustCompile(`(?m)^\s+[\w ]+?\b(\w+)(?:\[[^\]]*\])*;[ \t]*/\*(.*?)\*/`)
	spaces     = regexp.MustCompile(`[\s*]*\n[\s*]*|\s+`)
)

// readComments reads the headers of a directory. The headers are formatted by clang-format, so a
// few patterns see all of them.
func readComments(dir string) (*comments, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.h"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no C headers", dir)
	}
	c := &comments{types: map[string]string{}, fields: map[string]string{}, values: map[string]string{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.read(string(text))
	}
	return c, nil
}

func (c *comments) read(text string) {
	for _, m := range definition.FindAllStringSubmatchIndex(text, -1) {
		name, body := text[m[2]:m[3]], text[m[4]:m[5]]
		if block := blockAbove.FindStringSubmatch(text[:m[0]]); block != nil {
			c.types[name] = tidy(block[1])
		}
		for _, v := range valueLine.FindAllStringSubmatch(body, -1) {
			c.values[v[1]] = tidy(v[2])
		}
		for _, f := range fieldLine.FindAllStringSubmatch(body, -1) {
			c.fields[name+"."+f[1]] = tidy(f[2])
		}
	}
}

// tidy makes one line of a comment's text.
func tidy(s string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(s, " "))
}
