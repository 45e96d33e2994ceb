// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// root holds one directory for each lab.
const root = "/run/felix-lite-lab"

// Options says what a lab is made of. The zero value is two dual-stack pods on each of two nodes, two
// outside clients, the VXLAN overlay, connect-time balancing, and an agent on each node.
type Options struct {
	Name            string         `json:"name,omitempty"`       // default: random
	Nodes           []NodeSpec     `json:"nodes,omitempty"`      // default: two with two pods each
	Outside         int            `json:"outside,omitempty"`    // outside clients, default 2
	Overlay         string         `json:"overlay,omitempty"`    // VXLAN or Direct
	Underlay        string         `json:"underlay,omitempty"`   // Auto, IPv4 or IPv6
	CTLB            string         `json:"ctlb,omitempty"`       // Enabled, TCPOnly, HostOnly or Disabled
	MTU             int            `json:"mtu,omitempty"`        // of the fabric, default 1500
	OutsideMTU      int            `json:"outsideMTU,omitempty"` // of the outside links, default MTU
	SecondUplink    bool           `json:"secondUplink,omitempty"`
	SecondaryIP     bool           `json:"secondaryIP,omitempty"` // a second address on each node's uplink
	VLAN            int            `json:"vlan,omitempty"`        // VLAN id on the nodes' uplinks, 0: none
	NoAgent         bool           `json:"noAgent,omitempty"`     // the kernel forwards alone: fabric self-test
	LateAgents      bool           `json:"lateAgents,omitempty"`  // as NoAgent until StartAgents
	AgentBinary     string         `json:"agentBinary,omitempty"` // default: bin/felix-lite of this tree
	AgentConfig     map[string]any `json:"agentConfig,omitempty"` // laid over the lab's settings
	Persistent      bool           `json:"persistent,omitempty"`  // outlives the process that made it
	ProbeExecutable string         `json:"-"`                     // default: this executable
}

// CTLBModes are the values of Options.CTLB: for whom services are balanced at connect time.
var CTLBModes = []string{"Enabled", "TCPOnly", "HostOnly", "Disabled"}

// ParseCTLB reads a mode in any case.
func ParseCTLB(s string) (string, error) {
	for _, mode := range CTLBModes {
		if strings.EqualFold(s, mode) {
			return mode, nil
		}
	}
	return "", fmt.Errorf("connect-time balancing %q: want one of %s", s, strings.Join(CTLBModes, ", "))
}

// NodeSpec is one node.
type NodeSpec struct {
	Zone string    `json:"zone,omitempty"`
	Pods []PodSpec `json:"pods,omitempty"`
}

// PodSpec is one pod. With neither family set it has both.
type PodSpec struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace,omitempty"` // default "default"
	IPv4      bool              `json:"ipv4,omitempty"`
	IPv6      bool              `json:"ipv6,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Annotations of the pod's object.
	Annotations map[string]string `json:"annotations,omitempty"`
	// HostNetwork makes a pod that is only an object: its address is its node's, and the node's prober
	// answers for it.
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// Lab is a running lab. All of it is in the state file; there are no other handles.
type Lab struct {
	Name    string    `json:"name"`
	Owner   ProcessID `json:"owner"` // zero: belongs to no process
	Guard   ProcessID `json:"guard"`
	Created time.Time `json:"created"`
	Options Options   `json:"options"`
	Nodes   []*Node   `json:"nodes"`
	Clients []*Client `json:"clients"`
	Pods    []*Pod    `json:"pods"`
	// HostPods are the pods that use their node's network: they have no namespace and no prober.
	HostPods []*Pod `json:"hostPods,omitempty"`
}

// Place is where traffic starts or ends: a pod, an outside client, or a node itself. Each has a
// namespace and a resident prober.
type Place struct {
	Name      string     `json:"name"`
	Namespace Namespace  `json:"netns"`
	IPv4      netip.Addr `json:"ipv4,omitzero"`
	IPv6      netip.Addr `json:"ipv6,omitzero"`
	Prober    ProcessID  `json:"prober"`
	Dir       string     `json:"dir"` // prober socket and log
}

// Address returns the place's address of a family; it is invalid where there is none.
func (p Place) Address(ipv6 bool) netip.Addr {
	if ipv6 {
		return p.IPv6
	}
	return p.IPv4
}

// Client is a host in an outside subnet behind the router.
type Client struct {
	Place
	Gateway4 netip.Addr `json:"gateway4"`
	Gateway6 netip.Addr `json:"gateway6"`
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,15}$`)

// Up builds a lab and waits until it can carry traffic: agents ready, every pod's status file says
// ready. On error everything made so far is removed, and the error carries the agents' last lines.
func Up(ctx context.Context, opts Options) (*Lab, error) {
	if err := Janitor(); err != nil {
		return nil, err
	}
	l, err := create(opts)
	if err != nil {
		return nil, err
	}
	if err := l.build(ctx); err != nil {
		err = fmt.Errorf("lab %s: %w%s", l.Name, err, l.agentTails())
		if down := l.Down(); down != nil {
			err = errors.Join(err, down)
		}
		return nil, err
	}
	return l, nil
}

// create claims the name and writes the first state file, so that the lab can be found and removed
// whatever happens next.
func create(opts Options) (*Lab, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: opts.Name, Created: time.Now(), Options: opts}
	if !opts.Persistent {
		if l.Owner, err = identify(os.Getpid()); err != nil {
			return nil, err
		}
	}
	// Filled aside and renamed: the janitor never sees a directory without its owner.
	tmp, err := makeAside()
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	defer os.RemoveAll(tmp)
	if err := l.saveTo(tmp); err != nil {
		return nil, err
	}
	if _, err := os.Stat(l.dir()); err == nil {
		return nil, fmt.Errorf("lab %s: exists already", l.Name)
	}
	if err := os.Rename(tmp, l.dir()); err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	return l, os.Chmod(l.dir(), 0o755)
}

// makeAside makes a directory below root, which whoever removes the last lab removes, too: perhaps between the
// two calls here. Once there is something in it, it stays.
func makeAside() (string, error) {
	for {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return "", err
		}
		tmp, err := os.MkdirTemp(root, ".new-")
		if !errors.Is(err, fs.ErrNotExist) {
			return tmp, err
		}
	}
}

func (o Options) withDefaults() (Options, error) {
	if o.Name == "" {
		var b [3]byte
		_, _ = rand.Read(b[:])
		o.Name = hex.EncodeToString(b[:])
	}
	if !validName.MatchString(o.Name) {
		return o, fmt.Errorf("lab name %q: want up to 16 of a-z, 0-9 and -", o.Name)
	}
	if o.Nodes == nil {
		for i := 1; i <= 2; i++ {
			o.Nodes = append(o.Nodes, NodeSpec{Zone: fmt.Sprintf("zone%d", i), Pods: []PodSpec{
				{Name: fmt.Sprintf("pod%d1", i)}, {Name: fmt.Sprintf("pod%d2", i)},
			}})
		}
	}
	if len(o.Nodes) > 50 {
		return o, fmt.Errorf("lab %s: at most 50 nodes", o.Name)
	}
	if o.Outside == 0 {
		o.Outside = 2
	}
	if o.Overlay == "" {
		o.Overlay = "VXLAN"
	}
	if o.LateAgents {
		o.NoAgent = true
	}
	if o.Underlay == "" {
		o.Underlay = "Auto"
	}
	if o.CTLB == "" {
		o.CTLB = "Enabled"
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.OutsideMTU == 0 {
		o.OutsideMTU = o.MTU
	}
	var err error
	if o.AgentBinary == "" && (!o.NoAgent || o.LateAgents) {
		if o.AgentBinary, err = findAgent(); err != nil {
			return o, err
		}
	}
	if o.ProbeExecutable == "" {
		if o.ProbeExecutable, err = os.Executable(); err != nil {
			return o, fmt.Errorf("lab %s: own executable: %w", o.Name, err)
		}
	}
	return o, nil
}

// build makes the lab: fabric first, then nodes and pods side by side, then their agents.
func (l *Lab) build(ctx context.Context) error {
	if err := l.startGuard(); err != nil {
		return err
	}
	if err := l.buildFabric(); err != nil {
		return err
	}
	for i, spec := range l.Options.Nodes {
		n := l.newNode(i+1, spec)
		l.Nodes = append(l.Nodes, n)
		for _, ps := range spec.Pods {
			p, err := n.newPod(ps)
			if err != nil {
				return err
			}
			if ps.HostNetwork {
				l.HostPods = append(l.HostPods, p)
				continue
			}
			l.Pods = append(l.Pods, p)
		}
	}
	var g errgroup.Group
	for _, n := range l.Nodes {
		g.Go(func() error { return n.build() })
	}
	for _, p := range l.Pods {
		g.Go(p.Namespace.create)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := l.Publish(); err != nil {
		return err
	}
	g = errgroup.Group{}
	for _, n := range l.Nodes {
		g.Go(func() error { return n.StartAgent(ctx) })
	}
	for _, p := range l.Pods {
		g.Go(p.build)
	}
	for _, place := range l.places() {
		g.Go(func() error { return l.startProber(place) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := l.save(); err != nil {
		return err
	}
	return l.WaitReady(ctx)
}

// WaitReady returns when every prober answers, every agent is ready and every pod's status file says
// so too.
func (l *Lab) WaitReady(ctx context.Context) error {
	for _, place := range l.places() {
		if err := place.waitProber(ctx); err != nil {
			return err
		}
	}
	if l.Options.NoAgent {
		return nil
	}
	for _, n := range l.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	for _, p := range l.Pods {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// places lists all pods, clients and nodes.
func (l *Lab) places() []*Place {
	var all []*Place
	for _, n := range l.Nodes {
		all = append(all, &n.Place)
	}
	for _, p := range l.Pods {
		all = append(all, &p.Place)
	}
	for _, c := range l.Clients {
		all = append(all, &c.Place)
	}
	return all
}

// Place finds a pod, client or node by its name.
func (l *Lab) Place(name string) (*Place, error) {
	for _, p := range l.places() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("lab %s: no place %q", l.Name, name)
}

// Pod finds a pod by its name; nil if there is none.
func (l *Lab) Pod(name string) *Pod {
	for _, p := range l.Pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Client finds an outside client by its name; nil if there is none.
func (l *Lab) Client(name string) *Client {
	for _, c := range l.Clients {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Node finds a node by its name; nil if there is none.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}
