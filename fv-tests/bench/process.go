// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// process is a running worker, seen from the parent.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan []byte
}

// answerTimeout is how long a worker may take beyond the time it was told to run.
const answerTimeout = 20 * time.Second

// startWorker starts the worker of a site, in a cgroup below the site's, and waits until it is ready.
func startWorker(ctx context.Context, cg cgroup, cfg workerConfig) (*process, error) {
	arg, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, workerVerb, string(arg))
	// No collector and no preemption: neither may ever wait for a thread in a blocking raw call.
	cmd.Env = append(os.Environ(), "GOGC=off", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=16")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	err = onThread(func() error {
		return cg.startIn("pods", cmd, func(cmd *exec.Cmd) error { return startOff(cfg.CPU, cmd) })
	})
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	p := &process{cmd: cmd, in: in, answers: make(chan []byte, 1)}
	go func() {
		defer close(p.answers)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			p.answers <- line
		}
	}()
	if _, err := p.answer(ctx, answerTimeout); err != nil {
		p.stop()
		return nil, fmt.Errorf("worker: %w", err)
	}
	return p, nil
}

// startOff starts a command on every CPU but one (or on that, when there is no other; -1: on all). The caller's
// thread is thrown away afterwards.
func startOff(cpu int, cmd *exec.Cmd) error {
	var set unix.CPUSet
	for i := range runtime.NumCPU() {
		if i != cpu || runtime.NumCPU() == 1 {
			set.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return cmd.Start()
}

// inNamespace runs f on a thread in the namespace.
func inNamespace(ns netns.NsHandle, f func() error) error {
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread that ends with it, so that f may change the thread and nothing has to
// be restored.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- f()
	}()
	return <-done
}

// ask sends a request and waits for the answer.
func (p *process) ask(ctx context.Context, r request) (reply, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return reply{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return reply{}, fmt.Errorf("write to worker: %w", err)
	}
	return p.answer(ctx, r.Warmup+r.Duration+answerTimeout)
}

func (p *process) answer(ctx context.Context, timeout time.Duration) (reply, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return reply{}, ctx.Err()
	case <-timer.C:
		return reply{}, fmt.Errorf("worker did not answer within %s", timeout)
	case line, ok := <-p.answers:
		if !ok {
			return reply{}, errors.New("worker ended")
		}
		var a reply
		if err := json.Unmarshal(line, &a); err != nil {
			return reply{}, fmt.Errorf("parse worker's answer: %w", err)
		}
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	}
}

// stop ends the worker.
func (p *process) stop() {
	p.in.Close()
	// A measuring thread may be in a blocking call: do not wait for it to notice.
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
