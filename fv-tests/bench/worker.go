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

// A worker is this binary again: clients and servers of one mode, two groups of threads in one process,
// the servers in their pod's network namespace, the clients in theirs or in the node's. One process, so that changing places costs no switch of
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
	Verb     string        `json:"verb"`   // prepare, run
	Client   int           `json:"client"` // which one: a worker may have several
	Where    string        `json:"where"`  // the client's network namespace, a path
	Workload workload      `json:"workload"`
	Targets  []string      `json:"targets"`
	Sources  []string      `json:"sources"`
	Width    int           `json:"width"` // connections at a time; 0: one after the other
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
}

// reply answers a request; the first one says that the worker is ready.
type reply struct {
	Error string `json:"error,omitempty"`
	sample
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
	if err := enter(namespace); err != nil {
		return err
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

// enter moves the thread into a network namespace.
func enter(path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// runner is a client of any kind.
type runner interface {
	open() error
	run(warmup, d time.Duration) sample
	close()
}

// placed is a client and where it makes its sockets.
type placed struct {
	runner
	where string
}

// team is the clients of a worker. They share the thread, which goes to where each of them is.
type team struct {
	clients map[int]placed
	walks   map[string]*walk // by place and first source address
	here    string
}

// obey is the clients' life.
func obey(in io.Reader, out io.Writer) error {
	t := team{clients: map[int]placed{}, walks: map[string]*walk{}}
	defer func() {
		for _, c := range t.clients {
			c.close()
		}
	}()
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
		if err := t.serve(r, &a.sample); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// serve does what was asked for.
func (t *team) serve(r request, s *sample) error {
	if r.Verb == "prepare" {
		if old, ok := t.clients[r.Client]; ok {
			old.close()
			delete(t.clients, r.Client)
		}
	}
	c, ok := t.clients[r.Client]
	where := c.where
	if r.Verb == "prepare" {
		where = r.Where
	} else if !ok {
		return errors.New("not prepared")
	}
	if where != t.here {
		if err := enter(where); err != nil {
			return err
		}
		t.here = where
	}
	switch r.Verb {
	case "prepare":
		fresh, err := t.newRunner(r)
		if err != nil {
			return err
		}
		t.clients[r.Client] = placed{fresh, where}
		if err := fresh.open(); err != nil {
			return err
		}
		*s = fresh.run(0, r.Duration)
	case "run":
		*s = c.run(r.Warmup, r.Duration)
	default:
		return fmt.Errorf("unknown verb %s", r.Verb)
	}
	return nil
}

func (t *team) newRunner(r request) (runner, error) {
	var targets []netip.AddrPort
	for _, text := range r.Targets {
		target, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	var sources []netip.Addr
	for _, s := range r.Sources {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		sources = append(sources, a)
	}
	if len(sources) == 0 || len(targets) == 0 {
		return nil, errors.New("no source or no target address")
	}
	if r.Width > 0 {
		return newCrowd(r.Workload, targets, sources, r.Width)
	}
	place := r.Where + " " + r.Sources[0]
	if t.walks[place] == nil {
		t.walks[place] = &walk{port: firstPort}
	}
	return newClient(r.Workload, targets[0], sources, t.walks[place]), nil
}
