// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds a flag for each of the named settings, or for all if none is named. A flag only
// keeps its text: what is wrong with it is said by [Load], together with all else that is wrong.
func AddFlags(flags *pflag.FlagSet, settings ...string) {
	for i := range table {
		s := &table[i]
		if len(settings) > 0 && !slices.Contains(settings, s.Name) {
			continue
		}
		f := flags.VarPF(&flagValue{setting: s, text: s.Default}, s.Flag(), "", strings.ReplaceAll(s.Doc, "`", ""))
		if s.shape == shapeBool {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue implements [pflag.Value] for any setting.
type flagValue struct {
	setting *Setting
	text    string
	given   bool
}

// Set keeps the text; a list given several times grows.
func (v *flagValue) Set(text string) error {
	if v.setting.shape == shapeList && v.given {
		text = v.text + "," + text
	}
	v.text, v.given = text, true
	return nil
}

// String is the text given, or the default's.
func (v *flagValue) String() string { return v.text }

// Type is the word that stands for the value in the usage text.
func (v *flagValue) Type() string {
	if v.setting == nil {
		return "string"
	}
	switch v.setting.shape {
	case shapeBool:
		return "bool"
	case shapeInteger:
		return "int"
	case shapeList:
		return "strings"
	}
	if len(v.setting.values) > 0 {
		return strings.Join(v.setting.values, "|")
	}
	word, _, _ := strings.Cut(v.setting.typeName, ",")
	return strings.ReplaceAll(word, " ", "-")
}

func (e *Effective) readFlags(flags *pflag.FlagSet) Errors {
	if flags == nil {
		return nil
	}
	var errs Errors
	for i := range table {
		s := &table[i]
		if f := flags.Lookup(s.Flag()); f != nil && f.Changed {
			errs = append(errs, e.set(s, f.Value.String(), anyCase, Origin{Kind: FromFlag, Name: "--" + f.Name})...)
		}
	}
	return errs
}
