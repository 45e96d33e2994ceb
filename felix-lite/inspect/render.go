// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// The output formats.
const (
	FormatTable = "table"
	FormatJSON  = "json"
)

// Table is what a listing looks like to people.
type Table struct {
	Columns []string
	Rows    [][]string
	// Empty is printed where there are no rows.
	Empty string
}

// Lister is a listing: JSON encodes it as it is, Table is its form for people.
type Lister interface {
	Table() Table
}

// Render writes a listing in a format.
func Render(w io.Writer, format string, l Lister) error {
	switch format {
	case FormatJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(l)
	case FormatTable, "":
		return l.Table().write(w)
	}
	return fmt.Errorf("output format %q is not known: table or json", format)
}

func (t Table) write(w io.Writer) error {
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w, t.Empty)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(t.Columns) > 0 {
		fmt.Fprintln(tw, strings.Join(t.Columns, "\t"))
	}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			if c == "" {
				c = "-"
			}
			cells[i] = c
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// some joins the first few of many.
func some(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(items[:most], ","), len(items)-most)
}
