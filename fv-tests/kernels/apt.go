// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// archiveKeyring signs every suite that is used here; it comes with the debian-archive-keyring
// package, which apt itself depends on in Debian.
const archiveKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt is apt-get with a configuration of its own: one Debian suite, and state and cache below one
// directory. Proxies, credentials and other settings of the machine stay in force; its sources,
// lists and installed packages are neither read nor written.
type apt struct {
	dir   string
	suite string
}

// newApt prepares the private configuration for a suite below dir. The mirrors are those that the
// machine's own sources name.
func newApt(ctx context.Context, dir, suite string) (*apt, error) {
	a := &apt{dir: filepath.Join(dir, "apt", suite), suite: suite}
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("private apt for %s: %w", suite, err)
		}
	}
	out, err := output(ctx, "", "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
	if err != nil {
		return nil, fmt.Errorf("private apt for %s: read this machine's sources: %w", suite, err)
	}
	lines := sources(out, suite)
	if len(lines) == 0 {
		return nil, fmt.Errorf("private apt for %s: this machine's apt sources name no Debian archive", suite)
	}
	path := filepath.Join(a.dir, "sources.list")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("private apt for %s: %w", suite, err)
	}
	return a, nil
}

var (
	mainSuite     = regexp.MustCompile(`^[a-z]+$`)
	securitySuite = regexp.MustCompile(`^[a-z]+-security$`)
)

// sources turns "URI release" lines of the machine's own index targets into source lines of the
// wanted suite: the archive that has the machine's release also has the others.
func sources(targets, suite string) []string {
	set := map[string]bool{}
	for _, line := range strings.Split(targets, "\n") {
		uri, release, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok:
		case mainSuite.MatchString(release):
			set[fmt.Sprintf("deb [signed-by=%s] %s %s main", archiveKeyring, uri, suite)] = true
		case securitySuite.MatchString(release):
			set[fmt.Sprintf("deb [signed-by=%s] %s %s-security main", archiveKeyring, uri, suite)] = true
		}
	}
	var lines []string
	for line := range set {
		lines = append(lines, line)
	}
	sort.Strings(lines)
	return lines
}

// args puts the private configuration before an apt command's own arguments.
func (a *apt) args(rest ...string) []string {
	options := map[string]string{
		"Dir::Etc::sourcelist":  filepath.Join(a.dir, "sources.list"),
		"Dir::Etc::sourceparts": "/dev/null",
		"Dir::State":            filepath.Join(a.dir, "state"),
		"Dir::State::status":    "/dev/null",
		"Dir::Cache":            filepath.Join(a.dir, "cache"),
		"APT::Architecture":     "amd64",
		"APT::Sandbox::User":    "root", // the cache directory need not be readable for anybody else
		"Acquire::Languages":    "none",
		"Acquire::Retries":      "3",
	}
	var args []string
	for key, value := range options {
		args = append(args, "-o", key+"="+value)
	}
	return append(args, rest...)
}

// update fetches the suite's package lists.
func (a *apt) update(ctx context.Context) error {
	_, err := output(ctx, "", "apt-get", a.args("-q", "update")...)
	return err
}

var imageDependency = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-[0-9]\S*-cloud-amd64)$`)

// image names the package that a meta package stands for.
func (a *apt) image(ctx context.Context, metaPackage string) (string, error) {
	out, err := output(ctx, "", "apt-cache", a.args("depends", metaPackage)...)
	if err != nil {
		return "", err
	}
	match := imageDependency.FindStringSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%s in %s depends on no kernel image", metaPackage, a.suite)
	}
	return match[1], nil
}

// download puts a package's newest version into dir.
func (a *apt) download(ctx context.Context, dir, pkg string) error {
	_, err := output(ctx, dir, "apt-get", a.args("-q", "download", pkg)...)
	return err
}

// output runs a command and returns what it printed; an error carries its last words.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, lastLines(stderr.String()+string(out), 3))
	}
	return string(out), nil
}

// lastLines is the end of a text, on one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
