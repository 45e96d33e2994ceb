// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Image is an unpacked kernel package.
type Image struct {
	Kernel  Kernel
	Release string // as uname -r says it
	Linux   string // path of the bzImage
	Modules string // directory of the release's modules
}

// toolPackages are the programs that the runner starts, and the packages they come from.
var toolPackages = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86",
	"xz":                 "xz-utils", // 6.12's modules are compressed
}

// InstallTools installs by apt what is not on the machine yet.
func InstallTools(ctx context.Context) error {
	var missing []string
	for tool, pkg := range toolPackages {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	install := append([]string{"-q", "-y", "--no-install-recommends", "install"}, missing...)
	if _, err := output(ctx, "", "apt-get", install...); err == nil {
		return nil
	}
	// The lists may be old, or never have been fetched.
	if _, err := output(ctx, "", "apt-get", "-q", "update"); err != nil {
		return fmt.Errorf("install %v: %w", missing, err)
	}
	if _, err := output(ctx, "", "apt-get", install...); err != nil {
		return fmt.Errorf("install %v: %w", missing, err)
	}
	return nil
}

// Fetch returns a kernel's image, from dir if an earlier run left it there, else from the archive.
// With refresh it asks the archive for a newer one in any case.
func Fetch(ctx context.Context, dir string, k Kernel, refresh bool) (Image, error) {
	target := filepath.Join(dir, "images", k.Version)
	if !refresh {
		if image, err := findImage(target, k); err == nil {
			return image, nil
		}
	}
	if err := fetchInto(ctx, dir, target, k); err != nil {
		return Image{}, fmt.Errorf("fetch kernel %s: %w", k.Version, err)
	}
	image, err := findImage(target, k)
	if err != nil {
		return Image{}, fmt.Errorf("fetch kernel %s: %w", k.Version, err)
	}
	return image, nil
}

// fetchInto downloads and unpacks a kernel beside target, and moves it there only when it is whole.
func fetchInto(ctx context.Context, dir, target string, k Kernel) error {
	a, err := newApt(ctx, dir, k.Suite)
	if err != nil {
		return err
	}
	if err := a.update(ctx); err != nil {
		return err
	}
	pkg, err := a.image(ctx, k.MetaPackage)
	if err != nil {
		return err
	}
	work := target + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	root := filepath.Join(work, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := a.download(ctx, work, pkg); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("download %s: %d packages arrived", pkg, len(debs))
	}
	if _, err := output(ctx, "", "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	return os.Rename(root, target)
}

// findImage looks an unpacked package over.
func findImage(root string, k Kernel) (Image, error) {
	found, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(found) != 1 {
		return Image{}, fmt.Errorf("%s: %d kernels, want one", root, len(found))
	}
	release := filepath.Base(found[0])[len("vmlinuz-"):]
	for _, lib := range []string{"lib", "usr/lib"} {
		modules := filepath.Join(root, lib, "modules", release)
		if info, err := os.Stat(modules); err == nil && info.IsDir() {
			return Image{Kernel: k, Release: release, Linux: found[0], Modules: modules}, nil
		}
	}
	return Image{}, fmt.Errorf("%s: no modules of %s", root, release)
}
