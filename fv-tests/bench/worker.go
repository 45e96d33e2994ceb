// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A worker is this binary again: client and server of one mode, two groups of threads in one process,
// each group in its pod's network namespace. One process, so that changing places costs no switch of
// address spaces, which is no dataplane's business. It is told what to do by lines of JSON on its
// standard input, answers each by one line, and ends when the input does. The measuring threads stand
// on the measuring CPU; the Go runtime's own stay where the parent put the process, on the others.

const workerVerb = "worker"

// workerConfig is the worker's argument.
type workerConfig struct {
	Client   string   `json:"client"` // network namespace of the client, a path
	Server   string   `json:"server"` // and of the server
	Listen   []string `json:"listen"` // the server's addresses
	CPU      int      `json:"cpu"`
	Realtime bool     `json:"realtime"`
}

// request is one order to a worker.
type request struct {
	Verb     string        `json:"verb"` // prepare, run
	Workload workload      `json:"workload"`
	Target   string        `json:"target"`
	Sources  []string      `json:"sources"`
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
}

// reply answers a request; the first one says that the worker is ready.
type reply struct {
	Error  string        `json:"error,omitempty"`
	Ops    uint64        `json:"ops"`
	Failed uint64        `json:"failed"`
	Took   time.Duration `json:"took"`
}

func workerMain(arg string) {
	if err := worker(arg, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench worker: %v\n", err)
		os.Exit(1)
	}
}

func worker(arg string, in io.Reader, out io.Writer) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		return fmt.Errorf("parse configuration: %w", err)
	}
	if err := serve(cfg); err != nil {
		return err
	}
	if err := cfg.pin(cfg.Client); err != nil {
		return err
	}
	return obey(in, out)
}

// pin locks the goroutine to its thread, moves the thread into a network namespace and onto the
// measuring CPU, above all other work there: with equal real-time priority client and server only
// change places when one waits.
func (cfg workerConfig) pin(namespace string) error {
	runtime.LockOSThread()
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", namespace, err)
	}
	defer ns.Close()
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", namespace, err)
	}
	var set unix.CPUSet
	set.Set(cfg.CPU)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to cpu %d: %w", cfg.CPU, err)
	}
	if !cfg.Realtime {
		return nil
	}
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("set real-time priority: %w", err)
	}
	return nil
}

// obey is the client's life.
func obey(in io.Reader, out io.Writer) error {
	var c *client
	var stop chan struct{}
	end := func() {
		if c != nil {
			close(stop)
			c.close()
		}
	}
	defer func() { end() }()
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out)
	if err := answers.Encode(reply{}); err != nil {
		return err
	}
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("parse request: %w", err)
		}
		var a reply
		switch r.Verb {
		case "prepare":
			end()
			c = nil
			fresh, err := prepare(r)
			if err != nil {
				a.Error = err.Error()
				break
			}
			c, stop = fresh, make(chan struct{})
			go c.watch(250*time.Millisecond, stop)
			if err := c.open(); err != nil {
				a.Error = err.Error()
				break
			}
			a.Ops, a.Failed, a.Took = c.run(r.Duration)
		case "run":
			if c == nil {
				a.Error = "not prepared"
				break
			}
			if r.Warmup > 0 {
				c.run(r.Warmup)
			}
			a.Ops, a.Failed, a.Took = c.run(r.Duration)
		default:
			a.Error = "unknown verb " + r.Verb
		}
		c.idle()
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func prepare(r request) (*client, error) {
	target, err := netip.ParseAddrPort(r.Target)
	if err != nil {
		return nil, err
	}
	var sources []netip.Addr
	for _, s := range r.Sources {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		sources = append(sources, a)
	}
	if len(sources) == 0 {
		return nil, errors.New("no source address")
	}
	return newClient(r.Workload, target, sources), nil
}
