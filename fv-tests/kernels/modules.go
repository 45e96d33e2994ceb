// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Module is a kernel module, ready for finit_module.
type Module struct {
	Name string
	Data []byte
}

// LoadOrder reads the named modules of an image and all that they depend on, each after those it
// needs. A name without a file is taken to be built into the kernel: the package has no list of
// dependencies (depmod makes it at installation), so they come from the modules' own .modinfo.
func LoadOrder(ctx context.Context, image Image, wanted []string) ([]Module, error) {
	files, err := moduleFiles(image.Modules)
	if err != nil {
		return nil, fmt.Errorf("modules of %s: %w", image.Release, err)
	}
	var order []Module
	done := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		name = moduleName(name)
		if done[name] {
			return nil
		}
		done[name] = true
		path, ok := files[name]
		if !ok {
			return nil
		}
		data, err := readModule(ctx, path)
		if err != nil {
			return err
		}
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, need := range needs {
			if err := visit(need); err != nil {
				return err
			}
		}
		order = append(order, Module{Name: name, Data: data})
		return nil
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return nil, fmt.Errorf("modules of %s: %w", image.Release, err)
		}
	}
	return order, nil
}

// moduleFiles finds every module's file by its name.
func moduleFiles(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base, suffix, found := strings.Cut(entry.Name(), ".ko")
		if found && entry.Type().IsRegular() && (suffix == "" || suffix == ".xz") {
			files[moduleName(base)] = path
		}
		return nil
	})
	return files, err
}

// moduleName is a module's name as the kernel writes it: files may have dashes.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

func readModule(ctx context.Context, path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	out, err := output(ctx, "", "xz", "-dc", path)
	return []byte(out), err
}

// dependencies reads the "depends=a,b" entry of a module's .modinfo section.
func dependencies(module []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	data, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range bytes.Split(data, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
