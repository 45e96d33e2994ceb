// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	Setting string // "": the file as a whole
	Origin  Origin
	Err     error
}

// Error says where, which setting, and what is wrong with it.
func (e *Error) Error() string {
	if e.Setting == "" {
		return fmt.Sprintf("%s: %s", e.Origin, e.Err)
	}
	return fmt.Sprintf("%s: %s: %s", e.Origin, e.Setting, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong with a configuration, in the order of its reading.
type Errors []*Error

// Error lists all errors, one on each line where there are several.
func (e Errors) Error() string {
	if len(e) == 1 {
		return "invalid configuration: " + e[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "invalid configuration, %d errors:", len(e))
	for _, err := range e {
		b.WriteString("\n  ")
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap returns the errors, for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// OriginKind is where a value came from; of two, the greater takes precedence.
type OriginKind int

// The origins, in ascending precedence.
const (
	FromDefault OriginKind = iota
	FromFile
	FromEnv
	FromFlag
)

// String is the origin's word.
func (k OriginKind) String() string {
	return [...]string{"default", "file", "env", "flag"}[k]
}

// Origin is where a value came from.
type Origin struct {
	Kind OriginKind
	Name string // the file's path, the variable's or flag's name, or what a default was taken from
	Line int    // in the file; 0: not known
}

// String names the origin so that a person finds it.
func (o Origin) String() string {
	switch {
	case o.Kind == FromFile && o.Line > 0:
		return fmt.Sprintf("file %s:%d", o.Name, o.Line)
	case o.Name != "":
		return fmt.Sprintf("%s %s", o.Kind, o.Name)
	}
	return o.Kind.String()
}
