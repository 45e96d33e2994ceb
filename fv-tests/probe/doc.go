// SPDX-License-Identifier: Apache-2.0

// Package probe is the resident prober of a place in the lab (pod, outside client, node): one process
// for its whole life, so that a probe costs no fork and its sockets are in the place's namespace.
//
// What comes in: requests, one JSON line over a unix socket each (Client sends them). What goes out:
// a result that tells latency, errors by kind, which backends answered, which client address they
// saw, and where replies came from.
//
// Every prober also serves TCP and UDP on Port: a server that says who it is and whom it sees, and
// echoes what it is sent under a checksum that is judged at the receiving socket.
//
// A prober never retries on its own: what fails is counted, and the caller decides what it means.
package probe

import (
	"time"
)

// Port is where every prober's echo server listens, TCP and UDP, both families. On MeshPort, TCP only,
// the same server stands in for a mesh's sidecar: it is where netfilter's REDIRECT sends a pod's own
// connections, and it says where they were bound for.
const (
	Port     = 8080
	MeshPort = 15001
)

// TCPArgs asks for short TCP connections: connect, read the hello line, send Bytes and get them back,
// close. Count connections are made, at most Concurrency at a time.
type TCPArgs struct {
	Address     string        `json:"address"`
	Bytes       int           `json:"bytes,omitempty"`
	Count       int           `json:"count,omitempty"`       // default 1
	Concurrency int           `json:"concurrency,omitempty"` // default 1
	SourcePort  int           `json:"sourcePort,omitempty"`
	Mapped      bool          `json:"mapped,omitempty"`  // an IPv6 socket to the v4-mapped address
	Timeout     time.Duration `json:"timeout,omitempty"` // of each connection, default 5 s
}

// UDPArgs asks for UDP exchanges: a new socket, one datagram that asks for the server's identity, then
// one echo of each size of payload.
type UDPArgs struct {
	Address     string        `json:"address"`
	Sizes       []int         `json:"sizes,omitempty"`
	Connected   bool          `json:"connected,omitempty"`
	Count       int           `json:"count,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	SourcePort  int           `json:"sourcePort,omitempty"`
	Mapped      bool          `json:"mapped,omitempty"`  // an IPv6 socket to the v4-mapped address
	Timeout     time.Duration `json:"timeout,omitempty"` // of each datagram's answer, default 2 s
}

// Result is what happened to the attempts of a request or a load.
type Result struct {
	Attempts     int            `json:"attempts"`
	OK           int            `json:"ok"`
	Errors       map[string]int `json:"errors,omitempty"`       // by kind: see Kind
	Examples     []string       `json:"examples,omitempty"`     // the first few errors in full
	Backends     map[string]int `json:"backends,omitempty"`     // answers by server name
	Clients      map[string]int `json:"clients,omitempty"`      // client addresses as the servers saw them, without port
	ReplySources map[string]int `json:"replySources,omitempty"` // where answers came from: recvfrom's source
	Peers        map[string]int `json:"peers,omitempty"`        // getpeername of connected sockets
	Originals    map[string]int `json:"originals,omitempty"`    // SO_ORIGINAL_DST at the server
	Slow         int            `json:"slow"`                   // attempts that took more than a second
	Latency      Latency        `json:"latency"`
	Bytes        int64          `json:"bytes"` // payload that came back right
}

// Latency is over the attempts that succeeded.
type Latency struct {
	Min time.Duration `json:"min"`
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// LoadKind is what a load does over and over.
type LoadKind string

// Loads: new TCP connections, new UDP sockets, connections that stay open and exchange a frame now
// and then, and UDP sockets that do the same.
const (
	LoadTCPConnect LoadKind = "tcp-connect"
	LoadUDPNew     LoadKind = "udp-new"
	LoadTCPOpen    LoadKind = "tcp-open"
	LoadUDPOpen    LoadKind = "udp-open"
)

// LoadArgs describes a load that runs until it is stopped. For the open kinds Workers is the number of
// connections.
type LoadArgs struct {
	ID       string        `json:"id"`
	Kind     LoadKind      `json:"kind"`
	Address  string        `json:"address"`
	Workers  int           `json:"workers"`
	Interval time.Duration `json:"interval"` // between two attempts of a worker
	Timeout  time.Duration `json:"timeout"`  // of an attempt, default 5 s
	// Unconnected makes UDP sockets that are not connected: each datagram names its destination.
	Unconnected bool `json:"unconnected,omitempty"`
}

// FloodArgs asks for raw TCP SYNs with random sources.
type FloodArgs struct {
	Interface  string `json:"interface"`
	GatewayMAC string `json:"gatewayMAC"`
	Sources    string `json:"sources"` // prefix they are taken from
	Target     string `json:"target"`  // address and port
	Count      int    `json:"count"`
}

// FloodResult is what a flood has sent.
type FloodResult struct {
	Sent     int           `json:"sent"`
	Duration time.Duration `json:"duration"`
}

// identity is what a server says about an exchange.
type identity struct {
	Server string `json:"server"`
	Client string `json:"client"` // address and port it sees
	Local  string `json:"local"`
	// Original is where the connection was bound for, if netfilter redirected it here.
	Original string `json:"original,omitempty"`
}
