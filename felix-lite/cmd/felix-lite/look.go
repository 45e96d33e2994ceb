// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/conntrack"
	"github.com/felix-lite/felix-lite/felix-lite/agent"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/inspect"
)

// listing is a command that prints one listing of the live maps.
func listing(o *options, use, short string, list func(*cobra.Command, *inspect.View) (inspect.Lister, error)) *cobra.Command {
	return withOutput(o, &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			view, err := inspect.Open(o.bpffsRoot, o.runDirectory)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, view.Close()) }()
			l, err := list(cmd, view)
			if err != nil {
				return err
			}
			return inspect.Render(cmd.OutOrStdout(), o.output, l)
		},
	})
}

func newStatus(o *options) *cobra.Command {
	var health string
	cmd := listing(o, "status", "Show the node at a glance", func(cmd *cobra.Command, v *inspect.View) (inspect.Lister, error) {
		address := health
		if address == "" {
			address = v.State.Health
		}
		if address == "" {
			address = config.Default().HealthAddress
		}
		return v.Status(cmd.Context(), address)
	})
	cmd.Flags().StringVar(&health, "health-address", "", "where the agent answers /readyz (default: as it has noted)")
	return cmd
}

func newServices(o *options) *cobra.Command {
	return listing(o, "services", "List service frontends with their backends",
		func(_ *cobra.Command, v *inspect.View) (inspect.Lister, error) { return v.Services() })
}

func newRoutes(o *options) *cobra.Command {
	return listing(o, "routes", "List what the datapath knows about addresses",
		func(_ *cobra.Command, v *inspect.View) (inspect.Lister, error) { return v.Routes() })
}

func newInterfaces(o *options) *cobra.Command {
	return listing(o, "interfaces", "List the interfaces that carry programs",
		func(_ *cobra.Command, v *inspect.View) (inspect.Lister, error) { return v.Interfaces() })
}

func newCounters(o *options) *cobra.Command {
	var filter inspect.CounterFilter
	cmd := listing(o, "counters", "List counters that are not zero, by interface, hook and family",
		func(_ *cobra.Command, v *inspect.View) (inspect.Lister, error) { return v.Counters(filter) })
	cmd.Flags().BoolVar(&filter.Drops, "drops", false, "drop reasons alone")
	cmd.Flags().StringVar(&filter.Interface, "interface", "", "one interface alone")
	return cmd
}

// flowFilter are the flags that choose flows.
type flowFilter struct {
	address, proto, state string
	port                  uint16
	service               uint32
}

func (f *flowFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "address", "", "address or prefix of one of the ends")
	cmd.Flags().Uint16Var(&f.port, "port", 0, "port of one of the ends")
	cmd.Flags().StringVar(&f.proto, "proto", "", "protocol: tcp, udp, icmp, icmpv6, sctp or a number")
	cmd.Flags().StringVar(&f.state, "state", "", "state: new, replied, established, closing, closed, reset")
	cmd.Flags().Uint32Var(&f.service, "service-id", 0, "id of a service port")
}

func (f *flowFilter) parse() (conntrack.Filter, error) {
	out := conntrack.Filter{Port: f.port, ServiceID: f.service}
	if f.state != "" {
		var err error
		if out.State, err = conntrack.ParseState(f.state); err != nil {
			return out, err
		}
	}
	if f.proto != "" {
		var err error
		if out.Proto, err = conntrack.ParseProto(f.proto); err != nil {
			return out, err
		}
	}
	if f.address == "" {
		return out, nil
	}
	if p, err := netip.ParsePrefix(f.address); err == nil {
		out.Prefix = p.Masked()
		return out, nil
	}
	a, err := netip.ParseAddr(f.address)
	if err != nil {
		return out, fmt.Errorf("address %q is neither an address nor a prefix", f.address)
	}
	out.Prefix = netip.PrefixFrom(a, a.BitLen())
	return out, nil
}

func newConntrack(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "conntrack", Short: "List or flush the datapath's connections"}
	var filter flowFilter
	list := withOutput(o, &cobra.Command{Use: "list", Short: "List connections", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withFlows(o, &filter, maps.OpenReadOnly, func(set *maps.Set, clock conntrack.Clock, f conntrack.Filter) error {
				entries, err := conntrack.List(agent.ConntrackTables(set), clock, f)
				if err != nil {
					return err
				}
				return inspect.Render(cmd.OutOrStdout(), o.output, inspect.SortFlows(entries))
			})
		}})
	filter.add(list)
	var doomed flowFilter
	var all bool
	flush := &cobra.Command{Use: "flush", Short: "Delete connections", Args: cobra.NoArgs,
		Long: "Deletes the connections that the flags choose, both entries of a translated one. Packets of a deleted TCP\n" +
			"connection are treated as those of an unknown one: translated connections break.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if doomed == (flowFilter{}) && !all {
				return errors.New("say which connections to delete, or --all")
			}
			return withFlows(o, &doomed, maps.OpenExisting, func(set *maps.Set, clock conntrack.Clock, f conntrack.Filter) error {
				n, err := conntrack.Flush(agent.ConntrackTables(set), clock, f)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d entries deleted\n", n)
				return err
			})
		}}
	doomed.add(flush)
	flush.Flags().BoolVar(&all, "all", false, "delete every connection")
	cmd.AddCommand(list, flush)
	return cmd
}

// withFlows opens the maps and the datapath's clock.
func withFlows(o *options, filter *flowFilter, open func(string) (*maps.Set, error),
	do func(*maps.Set, conntrack.Clock, conntrack.Filter) error) (err error) {
	f, err := filter.parse()
	if err != nil {
		return err
	}
	set, err := open(o.bpffsRoot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	clock, err := features.OpenClock()
	if err != nil {
		return err
	}
	defer clock.Close()
	return do(set, conntrack.Clock{Jiffies: clock.Jiffies, HZ: clock.HZ}, f)
}

func newFeatures(o *options) *cobra.Command {
	return withOutput(o, &cobra.Command{Use: "features", Short: "Show what this kernel can do for the datapath", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := features.Probe(nil)
			if err != nil {
				return err
			}
			return inspect.Render(cmd.OutOrStdout(), o.output, inspect.Features(set.List()))
		}})
}

func newCleanup(o *options) *cobra.Command {
	return &cobra.Command{Use: "cleanup", Short: "Remove everything that an agent has programmed on this node", Args: cobra.NoArgs,
		Long: "Removes from this network namespace and below --bpffs-root what felix-lite has put there: programs, pins,\n" +
			"routes and neighbours (protocol 241) and the overlay's device. Interfaces of pods stay, without programs.\n" +
			"Stop the agent first. What is not felix-lite's is not touched.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := agent.Cleanup(cmd.Context(), agent.CleanupOptions{BPFFSRoot: o.bpffsRoot, RunDirectory: o.runDirectory})
			for _, line := range report {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		}}
}
