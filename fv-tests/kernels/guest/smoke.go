// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
)

// echoPort is where every echo server listens; services have ports of their own.
const echoPort = 7777

// runSmoke sends real packets through the real programs.
func runSmoke(r *reporter) {
	w, err := buildWorld()
	r.verdict("network", err)
	if err != nil {
		return
	}
	defer w.close()
	if !r.check("echo servers", w.startServers) {
		return
	}
	// Without programs the kernel routes between the pods of a node: what fails here is no fault of
	// the datapath.
	for _, family := range []int{4, 6} {
		for _, proto := range []string{"tcp", "udp"} {
			r.check(fmt.Sprintf("%s%d pod to pod on the same node, by the kernel alone", proto, family), func() error {
				return w.expect("a1", proto, netip.AddrPortFrom(w.pod("a2").addrs.of(family), echoPort), "a2", w.pod("a1").addrs.of(family))
			})
		}
	}
}

// pod finds a pod of the topology.
func (w *world) pod(name string) *pod {
	for _, n := range w.nodes {
		for _, p := range n.pods {
			if p.name == name {
				return p
			}
		}
	}
	return nil
}

// startServers starts an echo server in every pod.
func (w *world) startServers() error {
	for _, n := range w.nodes {
		for _, p := range n.pods {
			server, err := startEcho(p.ns, p.name, echoPort)
			if err != nil {
				return err
			}
			w.servers = append(w.servers, server)
		}
	}
	return nil
}

// expect connects from a pod and checks who answers, and whom it takes the client for.
func (w *world) expect(from, proto string, target netip.AddrPort, server string, client netip.Addr) error {
	hello, err := echo(w.pod(from).ns, proto, target)
	if err != nil {
		return err
	}
	if want := greeting(server, client); hello != want {
		return fmt.Errorf("answer %q, want %q", hello, want)
	}
	return nil
}
