// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
)

// request and response are one line of JSON each.
type request struct {
	Verb string          `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Client talks to a prober. It holds no connection: each call makes its own.
type Client struct{ socket string }

// NewClient returns a client of the prober that listens on a unix socket.
func NewClient(socket string) *Client { return &Client{socket: socket} }

// Ping returns nil when the prober answers.
func (c *Client) Ping(ctx context.Context) error { return c.call(ctx, "ping", nil, nil) }

// TCP makes short TCP connections.
func (c *Client) TCP(ctx context.Context, args TCPArgs) (Result, error) {
	var r Result
	return r, c.call(ctx, "tcp", args, &r)
}

// UDP makes UDP exchanges.
func (c *Client) UDP(ctx context.Context, args UDPArgs) (Result, error) {
	var r Result
	return r, c.call(ctx, "udp", args, &r)
}

// StartLoad starts a load; it runs until StopLoad is called with the same id. For the open kinds it
// returns when all connections are open.
func (c *Client) StartLoad(ctx context.Context, args LoadArgs) error {
	return c.call(ctx, "load-start", args, nil)
}

// LoadStats returns the figures of a running load.
func (c *Client) LoadStats(ctx context.Context, id string) (Result, error) {
	var r Result
	return r, c.call(ctx, "load-stats", id, &r)
}

// StopLoad ends a load and returns its figures. Attempts under way are finished and counted.
func (c *Client) StopLoad(ctx context.Context, id string) (Result, error) {
	var r Result
	return r, c.call(ctx, "load-stop", id, &r)
}

// Flood sends raw SYNs.
func (c *Client) Flood(ctx context.Context, args FloodArgs) (FloodResult, error) {
	var r FloodResult
	return r, c.call(ctx, "flood", args, &r)
}

func (c *Client) call(ctx context.Context, verb string, args, result any) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("prober: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	req := request{Verb: verb}
	if args != nil {
		if req.Args, err = json.Marshal(args); err != nil {
			return fmt.Errorf("prober: %s: %w", verb, err)
		}
	}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return fmt.Errorf("prober: %s: %w", verb, err)
	}
	var resp response
	if err := json.NewDecoder(conn).Decode(&resp); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("prober: %s: %w", verb, err)
	}
	if resp.Error != "" {
		return fmt.Errorf("prober: %s: %s", verb, resp.Error)
	}
	if result != nil {
		if err := json.Unmarshal(resp.Result, result); err != nil {
			return fmt.Errorf("prober: %s: %w", verb, err)
		}
	}
	return nil
}

// Run is the prober process: it serves the echo port and the control socket until it is killed.
func Run(name, socket string) error {
	s := &server{name: name, loads: map[string]*load{}}
	if err := s.serveEcho(Port); err != nil {
		return fmt.Errorf("prober %s: %w", name, err)
	}
	if err := s.serveMesh(MeshPort); err != nil {
		return fmt.Errorf("prober %s: %w", name, err)
	}
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("prober %s: %w", name, err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("prober %s: %w", name, err)
		}
		go s.control(conn)
	}
}

func (s *server) control(conn net.Conn) {
	defer conn.Close()
	var req request
	in := bufio.NewReader(conn)
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return
	}
	// The caller hangs up to give up: the work in progress ends with the connection.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for {
			if _, err := in.ReadByte(); err != nil {
				cancel()
				return
			}
		}
	}()
	result, err := s.do(ctx, req)
	resp := response{}
	if err == nil && result != nil {
		resp.Result, err = json.Marshal(result)
	}
	if err != nil {
		resp.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(resp)
}

func (s *server) do(ctx context.Context, req request) (any, error) {
	switch req.Verb {
	case "ping":
		return nil, nil
	case "tcp":
		return withArgs(req, func(a TCPArgs) (any, error) { return runTCP(ctx, a), nil })
	case "udp":
		return withArgs(req, func(a UDPArgs) (any, error) { return runUDP(ctx, a), nil })
	case "load-start":
		return withArgs(req, func(a LoadArgs) (any, error) { return nil, s.startLoad(ctx, a) })
	case "load-stats":
		return withArgs(req, func(id string) (any, error) { return s.loadStats(id) })
	case "load-stop":
		return withArgs(req, func(id string) (any, error) { return s.stopLoad(id) })
	case "flood":
		return withArgs(req, func(a FloodArgs) (any, error) { return flood(ctx, a) })
	}
	return nil, errors.New("unknown verb")
}

func withArgs[A any](req request, fn func(A) (any, error)) (any, error) {
	var args A
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	return fn(args)
}
