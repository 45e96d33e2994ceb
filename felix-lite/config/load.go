// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// Inputs are what a configuration is made of. The zero value of each part means: not there.
type Inputs struct {
	File     string         // path of the YAML file
	Environ  []string       // "NAME=value", as os.Environ gives it
	Flags    *pflag.FlagSet // parsed; see AddFlags
	Hostname func() (string, error)
}

// Effective is a configuration together with the origin of each value.
type Effective struct {
	Config
	Warnings []string // what is odd but does no harm, for the log
	origins  map[string]Origin
}

// Origin says where the value of a setting came from.
func (e *Effective) Origin(setting string) Origin { return e.origins[setting] }

// Load reads file, environment and flags, later ones taking precedence, and checks the whole.
//
// If anything is wrong it returns [Errors] that name all of it, and beside them the configuration
// without the faulty values: who starts an agent stops here, who reads the file again while an
// agent runs may use what is right or, better, go on with what was there.
func Load(in Inputs) (*Effective, error) {
	e := &Effective{Config: Default(), origins: make(map[string]Origin, len(table))}
	var errs Errors
	if in.File != "" {
		errs = append(errs, e.readFile(in.File)...)
	}
	errs = append(errs, e.readEnviron(in.Environ)...)
	errs = append(errs, e.readFlags(in.Flags)...)
	errs = append(errs, e.nameNode(in.Hostname)...)
	errs = append(errs, e.crossCheck()...)
	if len(errs) > 0 {
		return e, errs
	}
	return e, nil
}

// set gives one setting a value, or says what is wrong with it.
func (e *Effective) set(s *Setting, text string, sp spelling, from Origin) Errors {
	if err := s.set(&e.Config, text, sp); err != nil {
		return Errors{{Setting: s.Name, Origin: from, Err: err}}
	}
	e.origins[s.Name] = from
	return nil
}

func (e *Effective) readFile(path string) Errors {
	content, err := os.ReadFile(path)
	if err != nil {
		// The error of os names the path already.
		return Errors{{Origin: Origin{Kind: FromFile, Name: path}, Err: fmt.Errorf("read configuration: %w", err)}}
	}
	return e.parseFile(path, content)
}

// serviceLink matches the variables that a cluster puts into every container for a Service that
// happens to be called felix-lite-something: they only look like ours.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_.*)?)$`)

// readEnviron takes the variables with our prefix. An unknown one is no error, only a warning:
// the environment belongs to others, too.
func (e *Effective) readEnviron(environ []string) Errors {
	byEnv := make(map[string]*Setting, len(table))
	known := make([]string, 0, len(table))
	for i := range table {
		byEnv[table[i].Env()] = &table[i]
		known = append(known, table[i].Env())
	}
	var errs Errors
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		if s, ok := byEnv[name]; ok {
			errs = append(errs, e.set(s, text, anyCase, Origin{Kind: FromEnv, Name: name})...)
			continue
		}
		if name == EnvFile || serviceLink.MatchString(name) {
			continue
		}
		warning := fmt.Sprintf("environment variable %s is no setting", name)
		if near := nearest(name, known); near != "" {
			warning += fmt.Sprintf(" (did you mean %s?)", near)
		}
		e.Warnings = append(e.Warnings, warning)
	}
	return errs
}

// nameNode takes the host's name where no name is given.
func (e *Effective) nameNode(hostname func() (string, error)) Errors {
	if e.NodeName != "" {
		return nil
	}
	if hostname == nil {
		hostname = os.Hostname
	}
	from := Origin{Kind: FromDefault, Name: "host's name"}
	name, err := hostname()
	if err != nil {
		return Errors{{Setting: "nodeName", Origin: from, Err: fmt.Errorf("ask for the host's name: %w", err)}}
	}
	for i := range table {
		if table[i].Name == "nodeName" {
			return e.set(&table[i], strings.ToLower(name), exact, from)
		}
	}
	return nil
}

// Change is a setting whose value differs between two configurations.
type Change struct {
	Name     string
	Old, New string
	Apply    Apply
}

// Changes lists what differs between two configurations, in the order of the table.
func Changes(from, to *Config) []Change {
	var out []Change
	for i := range table {
		s := &table[i]
		if a, b := s.text(from), s.text(to); a != b {
			out = append(out, Change{Name: s.Name, Old: a, New: b, Apply: s.Apply})
		}
	}
	return out
}
