// SPDX-License-Identifier: Apache-2.0

package hostnat

import (
	"errors"
	"io/fs"

	"github.com/felix-lite/felix-lite/internal/sysctl"
)

// Advice is a setting of the node that has to be another one. It belongs to somebody else: the agent says so, and leaves it.
type Advice struct {
	Path, Value, Need string // below /proc/sys; as it is; as it must be
	Why               string
}

// Check looks at the settings that host traffic, and pods' traffic out of the cluster, need beyond those that are ours, in the
// network namespace of the calling thread. Reverse-path filtering is not among them: 0, 1 and 2 work on every interface of the
// node, because what it would drop enters by bpfout.cali alone.
func Check(uplinks []string, ipv4, ipv6 bool) ([]Advice, error) {
	var out []Advice
	if ipv4 {
		for _, name := range uplinks {
			path := "net/ipv4/conf/" + name + "/forwarding"
			value, err := read(path)
			if err != nil {
				return out, err
			}
			if value == "0" {
				out = append(out, Advice{path, value, "1", "the kernel drops the answers to pods' connections out of the cluster"})
			}
		}
	}
	if ipv6 {
		const path = "net/ipv6/conf/all/forwarding"
		value, err := read(path)
		if err != nil {
			return out, err
		}
		if value == "0" {
			out = append(out, Advice{path, value, "1", "the kernel forwards no IPv6 packet, whatever the interface's own setting is"})
		}
	}
	return out, nil
}

// read reads a setting; empty where the kernel or the interface does not have it.
func read(path string) (string, error) {
	value, err := sysctl.Get(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return value, err
}
