// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// spelling says how strictly the name of an enum's value is matched: a file is to be written as
// the API is, while the environment and the command line are typed by people.
type spelling int

const (
	exact spelling = iota
	anyCase
)

// shape is the form a value has in the file.
type shape int

const (
	shapeString shape = iota
	shapeBool
	shapeInteger
	shapeStringOrInteger
	shapeList
)

// value is how one setting is read from text, written as text and as JSON: the part of a row that
// depends on its type. All kinds below make one.
type value struct {
	typeName string
	shape    shape
	values   []string // of an enum
	set      func(c *Config, text string, s spelling) error
	text     func(c *Config) string
	json     func(c *Config) any
}

// makeValue ties a field of Config to its parser, its printer and its rules.
func makeValue[T any](typeName string, sh shape, at func(*Config) *T,
	parse func(string, spelling) (T, error), text func(T) string, rules ...func(T) error) value {
	return value{
		typeName: typeName,
		shape:    sh,
		set: func(c *Config, s string, sp spelling) error {
			v, err := parse(s, sp)
			if err != nil {
				return err
			}
			for _, rule := range rules {
				if err := rule(v); err != nil {
					return err
				}
			}
			*at(c) = v
			return nil
		},
		text: func(c *Config) string { return text(*at(c)) },
		json: func(c *Config) any { return text(*at(c)) },
	}
}

func str(at func(*Config) *string, rules ...func(string) error) value {
	return makeValue("string", shapeString, at,
		func(s string, _ spelling) (string, error) { return s, nil },
		func(s string) string { return s }, rules...)
}

func path(at func(*Config) *string, rules ...func(string) error) value {
	v := str(at, rules...)
	v.typeName = "path"
	return v
}

func boolean(at func(*Config) *bool) value {
	v := makeValue("bool", shapeBool, at,
		func(s string, _ spelling) (bool, error) {
			switch strings.ToLower(s) {
			case "true", "1":
				return true, nil
			case "false", "0":
				return false, nil
			}
			return false, fmt.Errorf("%q is neither true nor false", s)
		}, strconv.FormatBool)
	v.json = func(c *Config) any { return *at(c) }
	return v
}

func integer[T int | uint16 | uint32](at func(*Config) *T, least, most int64) value {
	v := makeValue("integer", shapeInteger, at,
		func(s string, _ spelling) (T, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%q is not a whole number", s)
			}
			if n < least || n > most {
				return 0, fmt.Errorf("%d is not between %d and %d", n, least, most)
			}
			return T(n), nil
		},
		func(n T) string { return strconv.FormatInt(int64(n), 10) })
	v.typeName = fmt.Sprintf("integer, %d to %d", least, most)
	v.json = func(c *Config) any { return *at(c) }
	return v
}

func enum[T ~string](at func(*Config) *T, values ...T) value {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	v := makeValue("enum", shapeString, at,
		func(s string, sp spelling) (T, error) {
			for _, v := range values {
				if s == string(v) || sp == anyCase && strings.EqualFold(s, string(v)) {
					return v, nil
				}
			}
			err := fmt.Errorf("%q is not one of %s", s, strings.Join(names, ", "))
			if near := nearest(s, names); near != "" {
				err = fmt.Errorf("%w (did you mean %q?)", err, near)
			}
			return "", err
		},
		func(v T) string { return string(v) })
	v.typeName = strings.Join(names, " | ")
	v.values = names
	return v
}

func duration(at func(*Config) *time.Duration, least, most time.Duration) value {
	v := makeValue("duration", shapeString, at,
		func(s string, _ spelling) (time.Duration, error) {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, fmt.Errorf("%q is not a duration such as 30s, 5m or 1h30m", s)
			}
			if d < least || d > most {
				return 0, fmt.Errorf("%s is not between %s and %s", short(d), short(least), short(most))
			}
			return d, nil
		}, short)
	v.typeName = fmt.Sprintf("duration, %s to %s", short(least), short(most))
	return v
}

// short writes a duration without the zero units that Duration.String leaves at its end.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func pattern(at func(*Config) **regexp.Regexp, rules ...func(*regexp.Regexp) error) value {
	return makeValue("regular expression", shapeString, at,
		func(s string, _ spelling) (*regexp.Regexp, error) {
			if s == "" {
				return nil, nil
			}
			re, err := regexp.Compile(s)
			if err != nil {
				return nil, fmt.Errorf("%q does not compile: %w", s, err)
			}
			return re, nil
		},
		func(re *regexp.Regexp) string {
			if re == nil {
				return ""
			}
			return re.String()
		}, rules...)
}

func ports(at func(*Config) *PortRange) value {
	return makeValue("port range", shapeString, at,
		func(s string, _ spelling) (PortRange, error) {
			first, last, ok := strings.Cut(s, "-")
			a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
			b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
			if !ok || errA != nil || errB != nil {
				return PortRange{}, fmt.Errorf("%q is not a port range such as 20000-29999", s)
			}
			if a > b {
				return PortRange{}, fmt.Errorf("%q ends before it begins", s)
			}
			return PortRange{First: uint16(a), Last: uint16(b)}, nil
		}, PortRange.String,
		func(r PortRange) error {
			if r.First < 1024 {
				return fmt.Errorf("%s begins below 1024, among the ports of servers", r)
			}
			if r.Count() < 64 {
				return fmt.Errorf("%s has %d ports, at least 64 are needed", r, r.Count())
			}
			return nil
		})
}

func mask(at func(*Config) *uint32, rules ...func(uint32) error) value {
	v := makeValue("32-bit mask", shapeStringOrInteger, at,
		func(s string, _ spelling) (uint32, error) {
			n, err := strconv.ParseUint(s, 0, 32)
			if err != nil {
				return 0, fmt.Errorf("%q is not a 32-bit number such as 0x1ff00000", s)
			}
			return uint32(n), nil
		},
		func(n uint32) string { return fmt.Sprintf("0x%08x", n) }, rules...)
	return v
}

func list(at func(*Config) *[]string, rules ...func(string) error) value {
	v := makeValue("list of strings", shapeList, at,
		func(s string, _ spelling) ([]string, error) {
			var out []string
			for item := range strings.SplitSeq(s, ",") {
				item = strings.TrimSpace(item)
				if item == "" || slices.Contains(out, item) {
					continue
				}
				for _, rule := range rules {
					if err := rule(item); err != nil {
						return nil, err
					}
				}
				out = append(out, item)
			}
			return out, nil
		},
		func(items []string) string { return strings.Join(items, ",") })
	v.json = func(c *Config) any {
		if items := *at(c); items != nil {
			return items
		}
		return []string{}
	}
	return v
}

func cidrs(at func(*Config) *[]netip.Prefix) value {
	v := makeValue("list of CIDRs", shapeList, at,
		func(s string, _ spelling) ([]netip.Prefix, error) {
			var out []netip.Prefix
			for item := range strings.SplitSeq(s, ",") {
				if item = strings.TrimSpace(item); item == "" {
					continue
				}
				p, err := netip.ParsePrefix(item)
				if err != nil || p.Addr().Is4In6() {
					return nil, fmt.Errorf("%q is not an address range such as 192.0.2.0/24 or 2001:db8::/32", item)
				}
				if p != p.Masked() {
					return nil, fmt.Errorf("%s has bits set beyond its length (did you mean %s?)", p, p.Masked())
				}
				if !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
			return out, nil
		},
		func(items []netip.Prefix) string { return strings.Join(prefixTexts(items), ",") })
	v.json = func(c *Config) any { return prefixTexts(*at(c)) }
	return v
}

func prefixTexts(items []netip.Prefix) []string {
	out := make([]string, len(items))
	for i, p := range items {
		out[i] = p.String()
	}
	return out
}

func endpoint(at func(*Config) *string) value {
	return makeValue("address:port", shapeString, at,
		func(s string, _ spelling) (string, error) {
			if s == "" {
				return "", nil
			}
			host, port, err := net.SplitHostPort(s)
			if err != nil {
				return "", fmt.Errorf("%q is not an address and port such as 127.0.0.1:9990 or [::1]:9990", s)
			}
			if host != "" && host != "localhost" && net.ParseIP(host) == nil {
				return "", fmt.Errorf("%q is not an IP address: a listening address needs one", host)
			}
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return "", fmt.Errorf("%q is not a port between 1 and 65535", port)
			}
			return s, nil
		},
		func(s string) string { return s })
}

// ---- rules ----

func notEmpty(s string) error {
	if s == "" {
		return errors.New("it must not be empty")
	}
	return nil
}

func absolute(s string) error {
	if s != "" && !filepath.IsAbs(s) {
		return fmt.Errorf("%q is not an absolute path", s)
	}
	return nil
}

func patternGiven(re *regexp.Regexp) error {
	if re == nil {
		return errors.New("it must not be empty: no interface would be a workload's")
	}
	return nil
}
