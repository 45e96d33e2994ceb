// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"strings"
)

// Kernel is one kernel to be tested: a version and where Debian keeps it.
type Kernel struct {
	Version     string // as people say it: 5.10
	Suite       string // Debian release whose archive has it
	MetaPackage string // depends on the newest image of that version
}

// Supported is every kernel that felix-lite promises to run on and that is not the one of the
// machine that builds it. Oldest first: what fails, fails there.
var Supported = []Kernel{
	{Version: "5.10", Suite: "bullseye", MetaPackage: "linux-image-cloud-amd64"},
	{Version: "6.1", Suite: "bookworm", MetaPackage: "linux-image-cloud-amd64"},
	{Version: "6.12", Suite: "bookworm", MetaPackage: "linux-image-6.12-cloud-amd64"},
}

// Select returns the kernels named in a comma-separated list of versions, in the order of
// Supported; an empty list names all.
func Select(versions string) ([]Kernel, error) {
	if versions == "" {
		return Supported, nil
	}
	wanted := map[string]bool{}
	for _, v := range strings.Split(versions, ",") {
		wanted[strings.TrimSpace(v)] = true
	}
	var selected []Kernel
	for _, k := range Supported {
		if wanted[k.Version] {
			selected = append(selected, k)
			delete(wanted, k.Version)
		}
	}
	for v := range wanted {
		return nil, fmt.Errorf("select kernels: no kernel %q, have %s", v, names(Supported))
	}
	return selected, nil
}

func names(list []Kernel) string {
	var versions []string
	for _, k := range list {
		versions = append(versions, k.Version)
	}
	return strings.Join(versions, ", ")
}

// Modules are what the guest needs of a kernel that does not have it built in; what a module
// depends on is loaded before it. The names are those of the files, without suffix.
var Modules = []string{"veth", "vxlan", "sch_ingress", "cls_bpf", "bridge"}
