// SPDX-License-Identifier: Apache-2.0

// Gen writes the Go side of the datapath's layouts: bpf-go/layout's types, enums and texts.
//
// In: the two layout objects (their BTF has every map key, value, and enum, compiled once for each
// family) and the C headers (for the comments, which become doc comments and the texts of the drop
// reasons). Out: generated Go files and docs/maps.md, or with -check an error that names the stale
// one. `make generate` and `make lint` call it; nothing else does.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	v4 := flag.String("v4", "", "layout object of IPv4")
	v6 := flag.String("v6", "", "layout object of IPv6")
	headers := flag.String("headers", "", "directory of the C headers")
	out := flag.String("out", "", "directory of the generated files")
	doc := flag.String("doc", "", "the document of all shapes")
	check := flag.Bool("check", false, "write nothing; fail if a file is not what would be written")
	flag.Parse()
	if err := run(*v4, *v6, *headers, *out, *doc, *check); err != nil {
		fmt.Fprintln(os.Stderr, "layout generator:", err)
		os.Exit(1)
	}
}

func run(v4, v6, headers, out, doc string, check bool) error {
	comments, err := readComments(headers)
	if err != nil {
		return err
	}
	model, err := readModel(v4, v6)
	if err != nil {
		return err
	}
	code, err := emit(model, comments)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for name, text := range code {
		files[filepath.Join(out, name)] = text
	}
	if files[doc], err = renderMaps(v4, v6, model, comments); err != nil {
		return err
	}
	for path, text := range files {
		old, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if bytes.Equal(old, text) {
			continue
		}
		if check {
			return fmt.Errorf("%s is stale: run `make generate` and commit the result", path)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
