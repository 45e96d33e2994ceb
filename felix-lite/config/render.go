// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Row is one setting of an effective configuration, as it is printed.
type Row struct {
	Name    string `json:"name"`
	Value   any    `json:"value"`
	Origin  string `json:"origin"`          // default, file, env or flag
	Where   string `json:"where,omitempty"` // file and line, variable or flag
	Default string `json:"default"`
	Apply   Apply  `json:"apply"`
	text    string
}

// Rows lists the effective configuration in the order of the table.
func (e *Effective) Rows() []Row {
	rows := make([]Row, len(table))
	for i := range table {
		s := &table[i]
		o := e.origins[s.Name]
		where := o.Name
		if o.Line > 0 {
			where = fmt.Sprintf("%s:%d", o.Name, o.Line)
		}
		rows[i] = Row{
			Name: s.Name, Value: s.json(&e.Config), Origin: o.Kind.String(), Where: where,
			Default: s.Default, Apply: s.Apply, text: s.text(&e.Config),
		}
	}
	return rows
}

// Render writes the effective configuration, each value with its origin, as "table" or "json".
func (e *Effective) Render(w io.Writer, format string) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(e.Rows())
	case "table":
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "SETTING\tVALUE\tORIGIN")
		for _, r := range e.Rows() {
			value, origin := r.text, r.Origin
			if value == "" {
				value = "-"
			}
			if r.Where != "" {
				origin += " " + r.Where
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Name, value, origin)
		}
		return tw.Flush()
	}
	return fmt.Errorf("unknown output format %q: want table or json", format)
}
