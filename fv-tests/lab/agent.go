// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// The agents' health and metrics listeners, each in its node's namespace.
const (
	healthAddress  = "127.0.0.1:9990"
	metricsAddress = "127.0.0.1:9991"
)

// agentConfig is what a node's agent is told. Tables are small: a lab runs many nodes in one memory.
func (n *Node) agentConfig() (map[string]any, error) {
	cg, err := n.cgroup()
	if err != nil {
		return nil, err
	}
	config := map[string]any{
		"nodeName":                 n.Name,
		"source":                   "Files",
		"filesDirectory":           n.ManifestDirectory(),
		"runDirectory":             n.RunDirectory(),
		"bpffsRoot":                n.BPFRoot(),
		"overlay":                  n.lab.Options.Overlay,
		"underlayFamily":           n.lab.Options.Underlay,
		"connectTimeLoadBalancing": n.lab.Options.CTLB,
		"cgroupRoot":               string(cg),
		"healthAddress":            healthAddress,
		"metricsAddress":           metricsAddress,
		"logLevel":                 "Info",
		"mapSizeConntrack":         65536,
		"mapSizeConntrackHalfOpen": 16384,
		"mapSizeNATFrontend":       8192,
		"mapSizeNATBackend":        32768,
		"mapSizeNATAffinity":       4096,
		"mapSizeRoutes":            8192,
		"mapSizeInterfaces":        1024,
	}
	maps.Copy(config, n.lab.Options.AgentConfig)
	return config, nil
}

// StartAgent writes the node's configuration and starts its agent in the node's namespace and cgroup.
// It does not wait: see WaitReady. With NoAgent it does nothing.
func (n *Node) StartAgent(context.Context) error {
	if n.lab.Options.NoAgent {
		return nil
	}
	config, err := n.agentConfig()
	if err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	if err := writeAtomically(n.configFile(), data); err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	cg, err := n.cgroup()
	if err != nil {
		return err
	}
	n.Agent, err = command{
		argv:      []string{n.lab.Options.AgentBinary, "agent", "--config", n.configFile()},
		namespace: n.Namespace,
		cgroup:    cg.child("agent"),
		logFile:   n.LogFile(),
	}.start()
	if err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	return nil
}

// StartAgents brings agents to a lab whose pods and connections the kernel has carried alone until now
// (LateAgents): pods get their endpoint files. It returns when all is ready.
func (l *Lab) StartAgents(ctx context.Context) error {
	l.Options.NoAgent = false
	for _, p := range l.Pods {
		if err := p.writeEndpoint(); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		if err := n.StartAgent(ctx); err != nil {
			return err
		}
	}
	return errors.Join(l.save(), l.WaitReady(ctx))
}

// AgentRuns reports whether the node's agent process is there.
func (n *Node) AgentRuns() bool { return n.Agent.alive() }

// KillAgent ends the agent with SIGKILL and waits until it is gone.
func (n *Node) KillAgent(ctx context.Context) error { return n.endAgent(ctx, unix.SIGKILL) }

// StopAgent asks the agent to stop and waits until it has.
func (n *Node) StopAgent(ctx context.Context) error { return n.endAgent(ctx, unix.SIGTERM) }

func (n *Node) endAgent(ctx context.Context, sig unix.Signal) error {
	if err := n.Agent.signal(sig); err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	if err := n.Agent.wait(ctx); err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	return nil
}

// WaitReady returns when the agent says on its health address that it can program. An agent that has
// ended meanwhile is an error at once.
func (n *Node) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return WaitFor(ctx, "agent of "+n.Name+" to be ready", func() (bool, string) {
		if !n.Agent.alive() {
			cancel(fmt.Errorf("the process has ended: see %s", n.LogFile()))
			return false, "process gone"
		}
		status, body, err := n.HTTPGet(ctx, "http://"+healthAddress+"/readyz")
		if err != nil {
			return false, err.Error()
		}
		return status == http.StatusOK, fmt.Sprintf("%d %s", status, body)
	})
}

// HTTPGet asks a listener in the node's namespace.
func (n *Node) HTTPGet(ctx context.Context, url string) (status int, body string, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = n.Namespace.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, strings.TrimSpace(string(data)), err
}

// agentTails returns the last log lines of all agents, for an error message.
func (l *Lab) agentTails() string {
	var b strings.Builder
	for _, n := range l.Nodes {
		if tail := n.LogTail(20); tail != "" {
			fmt.Fprintf(&b, "\n--- last lines of %s ---\n%s", n.LogFile(), tail)
		}
	}
	return b.String()
}

// LogTail returns the last lines of the node's agent log.
func (n *Node) LogTail(lines int) string {
	data, err := os.ReadFile(n.LogFile())
	if err != nil {
		return ""
	}
	all := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// CLI is the command line of the agent's binary looking at this node's live maps.
func (n *Node) CLI(args ...string) []string {
	return append([]string{n.lab.Options.AgentBinary, "--bpffs-root", n.BPFRoot(), "--run-directory", n.RunDirectory()}, args...)
}
