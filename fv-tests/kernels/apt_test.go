// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSourcesOfAnotherSuiteComeFromTheMachinesOwnMirrors(t *testing.T) {
	const signed = "deb [signed-by=" + archiveKeyring + "] "
	for name, c := range map[string]struct {
		targets string
		want    []string
	}{
		"the archive and the security archive each have the wanted suite": {
			targets: "http://mirror.example/debian-security/ bookworm-security\nhttp://mirror.example/debian/ bookworm\nhttp://mirror.example/debian/ bookworm-updates\n",
			want: []string{
				signed + "http://mirror.example/debian-security/ bullseye-security main",
				signed + "http://mirror.example/debian/ bullseye main",
			},
		},
		"an archive named for several components is named once": {
			targets: "http://mirror.example/debian/ trixie\nhttp://mirror.example/debian/ trixie\n",
			want:    []string{signed + "http://mirror.example/debian/ bullseye main"},
		},
		"backports and updates alone are no archive of another suite": {
			targets: "http://mirror.example/debian/ bookworm-updates\nhttp://mirror.example/debian/ bookworm-backports\n",
		},
		"a machine without sources has none": {targets: "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, sources(c.targets, "bullseye")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKernelsAreSelectedByVersionAndOldestFirst(t *testing.T) {
	for name, c := range map[string]struct {
		versions string
		want     string
		wantErr  bool
	}{
		"an empty list has all":          {"", "5.10, 6.1, 6.12", false},
		"a list keeps the table's order": {"6.12, 5.10", "5.10, 6.12", false},
		"an unknown version is an error": {"5.10,4.19", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Select(c.versions)
			if (err != nil) != c.wantErr || names(got) != c.want {
				t.Errorf("Select(%q) = %s, %v", c.versions, names(got), err)
			}
		})
	}
}
