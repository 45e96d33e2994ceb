// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// endpoint is version 1 of the endpoint file: what a CNI plugin tells the agent.
type endpoint struct {
	Version        int          `json:"version"`
	ContainerID    string       `json:"containerID"`
	Pod            endpointPod  `json:"pod"`
	Netns          string       `json:"netns"`
	HostInterface  string       `json:"hostInterface"`
	PodInterface   string       `json:"podInterface"`
	HostMAC        string       `json:"hostMAC"`
	PodMAC         string       `json:"podMAC"`
	Addresses      []netip.Addr `json:"addresses"`
	SourcePrefixes []string     `json:"sourcePrefixes"`
}

type endpointPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

func (p *Pod) endpointFile() string {
	return filepath.Join(p.node.RunDirectory(), "endpoints", p.ContainerID+".json")
}

func (p *Pod) writeEndpoint() error {
	e := endpoint{
		Version: 1, ContainerID: p.ContainerID,
		Pod:   endpointPod{Namespace: p.K8sNamespace, Name: p.Name, UID: p.UID},
		Netns: p.Namespace.Path(), HostInterface: p.HostInterface, PodInterface: podInterface,
		HostMAC: hostVethMAC, PodMAC: p.MAC, Addresses: p.addresses(), SourcePrefixes: []string{},
	}
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("pod %s: endpoint file: %w", p.Name, err)
	}
	return writeAtomically(p.endpointFile(), data)
}

func (p *Pod) addresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// EndpointStatus is version 1 of the status file the agent answers with.
type EndpointStatus struct {
	Version       int       `json:"version"`
	ContainerID   string    `json:"containerID"`
	HostInterface string    `json:"hostInterface"`
	Ifindex       int       `json:"ifindex"`
	Ready         bool      `json:"ready"`
	Error         string    `json:"error"`
	Addresses     []string  `json:"addresses"`
	Updated       time.Time `json:"updated"`
}

// Status reads the agent's answer.
func (p *Pod) Status() (EndpointStatus, error) {
	var s EndpointStatus
	data, err := os.ReadFile(filepath.Join(p.node.RunDirectory(), "endpoint-status", p.ContainerID+".json"))
	if err != nil {
		return s, fmt.Errorf("status of pod %s: %w", p.Name, err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("status of pod %s: %w", p.Name, err)
	}
	return s, nil
}

// WaitReady returns when the agent has said that the pod is programmed.
func (p *Pod) WaitReady(ctx context.Context) error {
	return WaitFor(ctx, "pod "+p.Name+" to be ready", func() (bool, string) {
		s, err := p.Status()
		if err != nil {
			return false, err.Error()
		}
		return s.Ready && s.ContainerID == p.ContainerID, fmt.Sprintf("%+v", s)
	})
}
