// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/fv-tests/probe"
)

// upTimeout bounds the wait for agents and pods to be ready.
const upTimeout = time.Minute

func upCommand() *cobra.Command {
	var (
		opts         = lab.Options{Persistent: true}
		nodes, pods  int
		agentSetting []string
		ctlb         string
	)
	c := &cobra.Command{
		Use:   "up [NAME]",
		Short: "Build a lab that stays until \"lab down\"",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				opts.Name = args[0]
			}
			for i := 1; i <= nodes; i++ {
				node := lab.NodeSpec{Zone: fmt.Sprintf("zone%d", i)}
				for j := 1; j <= pods; j++ {
					node.Pods = append(node.Pods, lab.PodSpec{
						Name: fmt.Sprintf("pod%d%d", i, j), Labels: map[string]string{"app": "echo"},
					})
				}
				opts.Nodes = append(opts.Nodes, node)
			}
			var err error
			if opts.CTLB, err = lab.ParseCTLB(ctlb); err != nil {
				return err
			}
			opts.AgentConfig = map[string]any{}
			for _, s := range agentSetting {
				key, value, ok := strings.Cut(s, "=")
				var parsed any
				if !ok || yaml.Unmarshal([]byte(value), &parsed) != nil {
					return fmt.Errorf("agent setting %q: want key=value", s)
				}
				opts.AgentConfig[key] = parsed
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(c.Context(), upTimeout)
			defer cancel()
			l, err := lab.Up(ctx, opts)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "lab %s is up after %.1f s\n\n", l.Name, time.Since(start).Seconds())
			return printStatus(c.OutOrStdout(), l)
		},
	}
	f := c.Flags()
	f.IntVar(&nodes, "nodes", 2, "number of nodes")
	f.IntVar(&pods, "pods", 2, "pods on each node")
	f.IntVar(&opts.Outside, "outside", 2, "outside clients, each in its own subnet")
	f.StringVar(&opts.Overlay, "overlay", "VXLAN", "how nodes reach each other's pods: VXLAN or Direct")
	f.StringVar(&opts.Underlay, "underlay", "Auto", "the tunnel's family: Auto, IPv4 or IPv6")
	f.StringVar(&ctlb, "ctlb", "enabled", "balancing at connect time: enabled, tcponly, hostonly or disabled")
	f.IntVar(&opts.MTU, "mtu", 1500, "MTU of the fabric")
	f.IntVar(&opts.OutsideMTU, "outside-mtu", 0, "MTU of the outside links (default: the fabric's)")
	f.BoolVar(&opts.SecondUplink, "second-uplink", false, "give each node a second uplink")
	f.BoolVar(&opts.SecondaryIP, "secondary-ip", false, "give each node a second address on its uplink")
	f.IntVar(&opts.VLAN, "vlan", 0, "give each node a tagged interface with this VLAN id")
	f.BoolVar(&opts.NoAgent, "no-agent", false, "no agents: the kernel routes between pods, to test the fabric itself")
	f.StringArrayVar(&agentSetting, "set", nil, "a setting of the agents, key=value (may be repeated)")
	return c
}

// open finds the lab a command means: the named one, or the only one there is.
func open(name string) (*lab.Lab, error) {
	if name != "" {
		return lab.Open(name)
	}
	names, err := lab.List()
	if err != nil {
		return nil, err
	}
	switch len(names) {
	case 0:
		return nil, errors.New("there is no lab: make one with \"lab up\"")
	case 1:
		return lab.Open(names[0])
	}
	return nil, fmt.Errorf("there are several labs (%s): choose with --lab", strings.Join(names, ", "))
}

func labFlag(c *cobra.Command) *string {
	return c.Flags().String("lab", "", "name of the lab (default: the only one)")
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show nodes, agents, pods and clients", Args: cobra.NoArgs}
	name := labFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, err := open(*name)
		if err != nil {
			return err
		}
		return printStatus(c.OutOrStdout(), l)
	}
	return c
}

func printStatus(out io.Writer, l *lab.Lab) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "PLACE\tKIND\tNODE\tIPV4\tIPV6\tSTATE\tNETNS")
	for _, n := range l.Nodes {
		fmt.Fprintf(w, "%s\tnode\t\t%s\t%s\t%s\t%s\n", n.Name, n.IPv4, n.IPv6, agentState(l, n), n.Namespace)
	}
	for _, p := range l.Pods {
		v4, v6 := "-", "-"
		if p.IPv4.IsValid() {
			v4 = p.IPv4.String()
		}
		if p.IPv6.IsValid() {
			v6 = p.IPv6.String()
		}
		fmt.Fprintf(w, "%s\tpod\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.NodeName, v4, v6, podState(l, p), p.Namespace)
	}
	for _, c := range l.Clients {
		fmt.Fprintf(w, "%s\tclient\t\t%s\t%s\tup\t%s\n", c.Name, c.IPv4, c.IPv6, c.Namespace)
	}
	return w.Flush()
}

func agentState(l *lab.Lab, n *lab.Node) string {
	if l.Options.NoAgent {
		return "no agent"
	}
	if !n.AgentRuns() {
		return "agent dead"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if status, _, err := n.HTTPGet(ctx, "http://127.0.0.1:9990/readyz"); err != nil || status != 200 {
		return "agent not ready"
	}
	return "ready"
}

func podState(l *lab.Lab, p *lab.Pod) string {
	if l.Options.NoAgent {
		return "up"
	}
	s, err := p.Status()
	switch {
	case err != nil:
		return "no status"
	case s.Ready:
		return "ready"
	case s.Error != "":
		return s.Error
	}
	return "not ready"
}

func execCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec PLACE COMMAND [ARG...]",
		Short: "Run a command in a node, pod or client",
		Long: "Run a command in the network namespace and cgroup of a node, pod or client. On a node the\n" +
			"agent's own command line needs the node's bpffs: lab exec node1 felix-lite ... adds it.",
		Args: cobra.MinimumNArgs(2),
	}
	name := labFlag(c)
	c.Flags().SetInterspersed(false)
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := open(*name)
		if err != nil {
			return err
		}
		return l.Exec(args[0], args[1:])
	}
	return c
}

func probeCommand() *cobra.Command {
	var (
		args     probe.TCPArgs
		sizes    []int
		unbound  bool
		protocol string
	)
	c := &cobra.Command{
		Use:   "probe PLACE ADDRESS:PORT",
		Short: "Let the prober of a place talk to an echo server and say who answered",
		Args:  cobra.ExactArgs(2),
	}
	name := labFlag(c)
	c.Flags().StringVar(&protocol, "protocol", "tcp", "tcp or udp")
	c.Flags().IntVar(&args.Bytes, "bytes", 1<<20, "payload each way of a TCP connection")
	c.Flags().IntSliceVar(&sizes, "sizes", []int{1, 1200}, "payload sizes of the UDP datagrams")
	c.Flags().BoolVar(&unbound, "unconnected", false, "UDP: do not connect the socket")
	c.Flags().IntVar(&args.Count, "count", 1, "how often")
	c.Flags().IntVar(&args.Concurrency, "concurrency", 1, "how many at a time")
	c.RunE = func(c *cobra.Command, a []string) error {
		l, err := open(*name)
		if err != nil {
			return err
		}
		place, err := l.Place(a[0])
		if err != nil {
			return err
		}
		args.Address = a[1]
		var r probe.Result
		if protocol == "udp" {
			r, err = place.Probe().UDP(c.Context(), probe.UDPArgs{
				Address: a[1], Sizes: sizes, Connected: !unbound, Count: args.Count, Concurrency: args.Concurrency,
			})
		} else {
			r, err = place.Probe().TCP(c.Context(), args)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), r)
		if r.OK < r.Attempts {
			return fmt.Errorf("%d of %d attempts failed: %s", r.Attempts-r.OK, r.Attempts, strings.Join(r.Examples, "; "))
		}
		return nil
	}
	return c
}

func applyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Give the objects of a manifest to every node, or take them away",
		Args:  cobra.NoArgs,
	}
	name := labFlag(c)
	file := c.Flags().StringP("filename", "f", "", "manifest, - for standard input")
	remove := c.Flags().Bool("delete", false, "take the objects away")
	_ = c.MarkFlagRequired("filename")
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, err := open(*name)
		if err != nil {
			return err
		}
		data, err := readInput(c.InOrStdin(), *file)
		if err != nil {
			return err
		}
		do, done := l.Apply, "applied"
		if *remove {
			do, done = l.Delete, "deleted"
		}
		objects, err := do(data)
		for _, o := range objects {
			fmt.Fprintln(c.OutOrStdout(), o, done)
		}
		return err
	}
	return c
}

func readInput(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

func podCommand() *cobra.Command {
	var spec lab.PodSpec
	var remove bool
	c := &cobra.Command{
		Use:   "pod NODE NAME",
		Short: "Add a pod to a node, or remove it",
		Args:  cobra.ExactArgs(2),
	}
	name := labFlag(c)
	c.Flags().BoolVar(&remove, "delete", false, "remove the pod")
	c.Flags().BoolVar(&spec.IPv4, "ipv4", false, "IPv4 only, unless --ipv6 is given too")
	c.Flags().BoolVar(&spec.IPv6, "ipv6", false, "IPv6 only, unless --ipv4 is given too")
	c.Flags().StringToStringVar(&spec.Labels, "labels", map[string]string{"app": "echo"}, "labels of the pod")
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := open(*name)
		if err != nil {
			return err
		}
		unlock, err := l.Lock()
		if err != nil {
			return err
		}
		defer unlock()
		if l, err = lab.Open(l.Name); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), upTimeout)
		defer cancel()
		if remove {
			if p := l.Pod(args[1]); p != nil {
				return l.RemovePod(ctx, p)
			}
			return fmt.Errorf("lab %s: no pod %q", l.Name, args[1])
		}
		node := l.Node(args[0])
		if node == nil {
			return fmt.Errorf("lab %s: no node %q", l.Name, args[0])
		}
		spec.Name = args[1]
		_, err = l.AddPod(ctx, node, spec)
		return err
	}
	return c
}

func downCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "down [NAME]",
		Short: "Remove a lab and everything it made",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if all {
				names, err := lab.List()
				for _, name := range names {
					err = errors.Join(err, lab.Remove(name))
				}
				return err
			}
			if len(args) == 1 {
				return lab.Remove(args[0])
			}
			l, err := open("")
			if err != nil {
				return err
			}
			return l.Down()
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove every lab on this machine, running tests' too")
	return c
}
