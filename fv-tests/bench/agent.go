// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// agent is one run of the real agent in a node's namespace, with directories and a bpffs of its own.
type agent struct {
	dir     string
	cmd     *exec.Cmd
	done    chan error
	started time.Time
}

const nodeName = "bench"

// agentDirs makes the directories of an agent and mounts its bpffs.
func agentDirs(purpose string) (*agent, error) {
	dir, err := makeDir(purpose)
	if err != nil {
		return nil, err
	}
	a := &agent{dir: dir}
	for _, sub := range []string{"manifests", "run/endpoints", "bpf"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return a, err
		}
	}
	if err := unix.Mount("bpf", a.bpffs(), "bpf", 0, ""); err != nil {
		return a, fmt.Errorf("mount bpffs: %w", err)
	}
	return a, nil
}

func (a *agent) bpffs() string { return filepath.Join(a.dir, "bpf") }

// config writes the agent's configuration: where it is, and what extra says; all else is the default. It
// takes the cgroup for the host's root: it must never attach anything above.
func (a *agent) config(cg cgroup, extra map[string]any) error {
	cfg := map[string]any{
		"cgroupRoot": string(cg),
		"nodeName":   nodeName, "source": "Files", "filesDirectory": filepath.Join(a.dir, "manifests"),
		"runDirectory": filepath.Join(a.dir, "run"), "bpffsRoot": a.bpffs(),
		"uplinkInterfacePattern": "^" + uplink + "$", "overlay": "VXLAN",
		"healthAddress": "", "metricsAddress": "",
	}
	for k, v := range extra {
		cfg[k] = v
	}
	return a.write("config.yaml", cfg)
}

// conntrackSize holds two entries for each new flow of a minute, at the rate of one mode's share.
const conntrackSize = 1 << 20

// write stores a value as JSON below the agent's directory, by rename.
func (a *agent) write(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// start runs the agent's binary in the node's namespace and cgroup, off the measuring CPU.
func (a *agent) start(binary string, node *namespace, cg cgroup, cpu int) error {
	log, err := os.Create(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(binary, "agent", "--config", filepath.Join(a.dir, "config.yaml"))
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.started = time.Now()
	err = inNamespace(node.handle, func() error {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 0); err != nil { // of this thread: the agent gets no favours
			return err
		}
		return cg.startIn("agent", a.cmd, func(cmd *exec.Cmd) error { return startOff(cpu, cmd) })
	})
	if err != nil {
		a.cmd = nil
		return fmt.Errorf("start agent: %w", err)
	}
	a.done = make(chan error, 1)
	go func() { a.done <- a.cmd.Wait() }()
	return nil
}

// until polls a condition of the running agent. The error names what was last seen.
func (a *agent) until(ctx context.Context, timeout time.Duration, what string, cond func() (bool, string)) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := cond()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-a.done:
			a.done <- err
			return fmt.Errorf("agent ended (%v) before %s: %s", err, what, a.lastLog())
		case <-deadline.C:
			return fmt.Errorf("no %s within %s: %s: %s", what, timeout, seen, a.lastLog())
		case <-tick.C:
		}
	}
}

// lastLog is the end of the agent's log.
func (a *agent) lastLog() string {
	data, err := os.ReadFile(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return err.Error()
	}
	const most = 1500
	return string(data[max(0, len(data)-most):])
}

// close ends the agent and removes its files and pins.
func (a *agent) close() error {
	if a == nil {
		return nil
	}
	if a.cmd != nil {
		_ = a.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-a.done:
		case <-time.After(5 * time.Second):
			_ = a.cmd.Process.Kill()
			<-a.done
		}
	}
	if err := unmount(a.bpffs()); err != nil {
		return err
	}
	return os.RemoveAll(a.dir)
}

// endpoint writes an endpoint file.
func (a *agent) endpoint(id, netnsPath, host, pod, mac string, addrs []netip.Addr) error {
	return a.write(filepath.Join("run/endpoints", id+".json"), map[string]any{
		"version": 1, "containerID": id, "pod": map[string]string{"namespace": "bench", "name": id, "uid": id},
		"netns": netnsPath, "hostInterface": host, "podInterface": pod, "hostMAC": hostMAC.String(), "podMAC": mac,
		"addresses": addrs, "sourcePrefixes": []string{},
	})
}

// ready says whether an endpoint's status file reports it programmed, and when it was written.
func (a *agent) ready(id string) (bool, string) {
	data, err := os.ReadFile(filepath.Join(a.dir, "run/endpoint-status", id+".json"))
	if err != nil {
		return false, "no status of " + id
	}
	var s struct {
		Ready bool   `json:"ready"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return false, "status of " + id + ": " + err.Error()
	}
	return s.Ready, "status of " + id + ": " + string(data)
}

// manifests writes the Node and some of n services: the measured one and its neighbours.
func (a *agent) manifests(n, some int) error {
	items := []any{nodeObject()}
	first := max(0, n/2-some/2)
	for i := first; i < min(n, first+some); i++ {
		items = append(items, serviceObjects(n, i)...)
	}
	return a.write("manifests/cluster.json", map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
