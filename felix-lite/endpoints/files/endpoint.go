// SPDX-License-Identifier: Apache-2.0

// Package files is the contract between the agent and whoever plugs pods into the node (the CNI
// plugin, the lab): endpoint files say which workloads there are, status files answer when a
// workload is programmed.
//
// What comes in: a directory of endpoint files, each a strict versioned JSON document that a writer
// puts there by rename. What goes out: batches of parsed endpoints or errors on a channel, and
// status files written atomically. The agent's loop is the only reader of the channel and the only
// writer of status files. This package never touches the network, a map or a program, and a broken
// file never stops the others.
package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Version is the version of endpoint and status files that is written and understood.
const Version = 1

// maxFileSize bounds an endpoint file: real ones are below 1 KiB.
const maxFileSize = 64 << 10

// Pod names the pod that an endpoint belongs to.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Endpoint is one endpoint file: one interface of one pod.
type Endpoint struct {
	Version        int            `json:"version"`
	ContainerID    string         `json:"containerID"`
	Pod            Pod            `json:"pod"`
	Netns          string         `json:"netns,omitempty"`
	HostInterface  string         `json:"hostInterface"`
	PodInterface   string         `json:"podInterface,omitempty"`
	HostMAC        string         `json:"hostMAC,omitempty"`
	PodMAC         string         `json:"podMAC"`
	Addresses      []netip.Addr   `json:"addresses"`
	SourcePrefixes []netip.Prefix `json:"sourcePrefixes"`
}

// MAC returns the pod's hardware address, the target of the permanent neighbour entries.
func (e *Endpoint) MAC() net.HardwareAddr {
	mac, _ := net.ParseMAC(e.PodMAC) // Validate has parsed it before
	return mac
}

// ParseEndpoint decodes and validates an endpoint file. Unknown fields are errors: a writer that
// means something this version does not know must not be half understood.
func ParseEndpoint(data []byte) (*Endpoint, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	ep := &Endpoint{}
	if err := dec.Decode(ep); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("file is empty")
		}
		return nil, fmt.Errorf("decode json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode json: more than one document")
	}
	if err := ep.Validate(); err != nil {
		return nil, err
	}
	return ep, nil
}

// Validate reports the first field of the endpoint that can not be used.
func (e *Endpoint) Validate() error {
	if e.Version != Version {
		return fmt.Errorf("version %d is not supported (want %d)", e.Version, Version)
	}
	if e.ContainerID == "" {
		return errors.New("containerID is empty")
	}
	if e.Pod.Namespace == "" || e.Pod.Name == "" {
		return errors.New("pod.namespace and pod.name must be set")
	}
	if err := validInterfaceName(e.HostInterface); err != nil {
		return fmt.Errorf("hostInterface %q: %w", e.HostInterface, err)
	}
	if err := validMAC(e.PodMAC); err != nil {
		return fmt.Errorf("podMAC %q: %w", e.PodMAC, err)
	}
	if e.HostMAC != "" {
		if err := validMAC(e.HostMAC); err != nil {
			return fmt.Errorf("hostMAC %q: %w", e.HostMAC, err)
		}
	}
	if len(e.Addresses) == 0 {
		return errors.New("addresses is empty")
	}
	seen := make(map[netip.Addr]bool, len(e.Addresses))
	for i, a := range e.Addresses {
		if err := validAddress(a); err != nil {
			return fmt.Errorf("addresses[%d] %q: %w", i, a, err)
		}
		if seen[a] {
			return fmt.Errorf("addresses[%d] %q: given twice", i, a)
		}
		seen[a] = true
	}
	for i, p := range e.SourcePrefixes {
		if !p.IsValid() {
			return fmt.Errorf("sourcePrefixes[%d]: not a prefix", i)
		}
	}
	return nil
}

// validInterfaceName applies the kernel's own rule for interface names (dev_valid_name).
func validInterfaceName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > 15:
		return errors.New("is longer than 15 bytes")
	case name == "." || name == "..":
		return errors.New("is not an interface name")
	case strings.ContainsAny(name, "/: \t\n\v\f\r"):
		return errors.New("contains a slash, a colon or white space")
	}
	return nil
}

func validMAC(s string) error {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return errors.New("is not a 6-byte hardware address")
	}
	if mac[0]&1 != 0 {
		return errors.New("is a multicast address")
	}
	if bytes.Equal(mac, make([]byte, 6)) {
		return errors.New("is zero")
	}
	return nil
}

func validAddress(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("is not an address")
	case a.Zone() != "":
		return errors.New("has a zone")
	case a.Is4In6():
		return errors.New("is a v4-mapped address")
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return errors.New("is not a global unicast address")
	}
	return nil
}
