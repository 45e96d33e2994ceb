// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseFile reads the file's settings. One bad field does not hide the others.
func (e *Effective) parseFile(path string, content []byte) Errors {
	at := func(line int) Origin { return Origin{Kind: FromFile, Name: path, Line: line} }
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // empty: all defaults
		return nil
	case err != nil:
		return Errors{{Origin: at(0), Err: fmt.Errorf("parse YAML: %w", err)}}
	}
	var rest yaml.Node
	if err := dec.Decode(&rest); !errors.Is(err, io.EOF) {
		return Errors{{Origin: at(rest.Line), Err: errors.New("a second YAML document: only one is allowed")}}
	}
	if len(doc.Content) != 1 || doc.Content[0].ShortTag() == "!!null" {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return Errors{{Origin: at(root.Line), Err: errors.New("the file must be a mapping of settings to values")}}
	}
	return e.parseMapping(path, "", root)
}

// parseMapping reads the fields of one level; prefix is "" or the level's name with a dot.
func (e *Effective) parseMapping(path, prefix string, node *yaml.Node) Errors {
	var errs Errors
	seen := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, val := node.Content[i], resolve(node.Content[i+1])
		name := prefix + key.Value
		from := Origin{Kind: FromFile, Name: path, Line: key.Line}
		fail := func(err error) { errs = append(errs, &Error{Setting: name, Origin: from, Err: err}) }

		if line, twice := seen[name]; twice {
			fail(fmt.Errorf("given twice, first in line %d", line))
			continue
		}
		seen[name] = key.Line

		s, level := lookup(name)
		switch {
		case s != nil:
			text, err := fileText(s.shape, val)
			if err != nil {
				fail(err)
				continue
			}
			errs = append(errs, e.set(s, text, exact, from)...)
		case level && val.Kind == yaml.MappingNode:
			errs = append(errs, e.parseMapping(path, name+".", val)...)
		case level:
			fail(errors.New("want a mapping of settings to values"))
		default:
			err := errors.New("no such setting")
			if near := nearest(name, siblings(prefix)); near != "" {
				err = fmt.Errorf("%w (did you mean %q?)", err, near)
			}
			fail(err)
		}
	}
	return errs
}

// resolve follows a YAML alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// lookup finds the setting of that name, or says whether the name is a level that holds settings.
func lookup(name string) (s *Setting, level bool) {
	for i := range table {
		if table[i].Name == name {
			return &table[i], false
		}
		level = level || strings.HasPrefix(table[i].Name, name+".")
	}
	return nil, level
}

// siblings lists the names that may stand directly below prefix, with the prefix.
func siblings(prefix string) []string {
	var out []string
	for i := range table {
		if rest, ok := strings.CutPrefix(table[i].Name, prefix); ok {
			head, _, _ := strings.Cut(rest, ".")
			out = append(out, prefix+head)
		}
	}
	return out
}

// fileText checks that a value has the form its setting wants in the file, and returns it as the
// text that environment and flags would give.
func fileText(want shape, n *yaml.Node) (string, error) {
	tag := n.ShortTag()
	if tag == "!!null" {
		return "", errors.New("has no value: give one, or leave the line out for the default")
	}
	switch want {
	case shapeList:
		return listText(n)
	case shapeBool:
		var b bool
		if tag != "!!bool" || n.Decode(&b) != nil {
			return "", fmt.Errorf("want true or false, found %s", found(n))
		}
		return strconv.FormatBool(b), nil
	case shapeInteger, shapeStringOrInteger:
		var i int64
		if tag == "!!int" && n.Decode(&i) == nil {
			return strconv.FormatInt(i, 10), nil
		}
		if want == shapeInteger {
			return "", fmt.Errorf("want a whole number, found %s", found(n))
		}
	}
	if n.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("want a single value, found %s", found(n))
	}
	if tag != "!!str" {
		return "", fmt.Errorf("want a string, found %s: put it in quotes", found(n))
	}
	return n.Value, nil
}

func listText(n *yaml.Node) (string, error) {
	if n.Kind != yaml.SequenceNode {
		return "", fmt.Errorf("want a list, found %s", found(n))
	}
	items := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" {
			return "", fmt.Errorf("want a list of strings, found %s in it", found(item))
		}
		if strings.Contains(item.Value, ",") {
			return "", fmt.Errorf("%q has a comma: write one item on each line", item.Value)
		}
		items = append(items, item.Value)
	}
	return strings.Join(items, ","), nil
}

// found describes a YAML value for an error.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return strconv.Quote(n.Value)
	}
	return "something else"
}
