// SPDX-License-Identifier: Apache-2.0

// Command felix-lite is the node agent and the commands that look at what it has made.
//
// It parses flags and wires packages together, and does nothing else: the work is in felix-lite/agent
// and felix-lite/inspect.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/felix-lite/felix-lite/felix-lite/config"
)

// version is set when the binary is linked.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// options are what the commands that look at maps share.
type options struct {
	bpffsRoot, runDirectory, output string
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "felix-lite",
		Short: "Kubernetes networking of one node with eBPF: services, routes, interfaces",
		Long: "felix-lite agent programs this node's dataplane. The other commands read the live maps, whether an agent\n" +
			"runs or not.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	defaults := config.Default()
	flags := root.PersistentFlags()
	flags.StringVar(&o.bpffsRoot, "bpffs-root", envOr("FELIX_LITE_BPFFS_ROOT", defaults.BPFFSRoot), "bpf file system of the node")
	flags.StringVar(&o.runDirectory, "run-directory", envOr("FELIX_LITE_RUN_DIRECTORY", defaults.RunDirectory),
		"directory of endpoint files, and of the agent's names of things")
	root.AddCommand(newAgent(), newConfig(), newVersion(), newStatus(o), newServices(o), newRoutes(o), newInterfaces(o),
		newCounters(o), newConntrack(o), newFeatures(o), newCleanup(o), newSocketProbe())
	return root
}

// withOutput gives a command the choice of a format.
func withOutput(o *options, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "output format: table or json")
	return cmd
}

func envOr(name, fallback string) string {
	if v, ok := os.LookupEnv(name); ok && v != "" {
		return v
	}
	return fallback
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this build", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "felix-lite %s (%s)\n", version, revision())
			return err
		},
	}
}

// load reads the configuration as the agent and `config` do.
func load(cmd *cobra.Command, file string) (*config.Effective, error) {
	if file == "" {
		file = os.Getenv("FELIX_LITE_CONFIG")
	}
	return config.Load(config.Inputs{File: file, Environ: os.Environ(), Flags: cmd.Flags(), Hostname: os.Hostname})
}

func newConfig() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use: "config", Short: "Print the effective configuration, with the origin of each value", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			effective, err := load(cmd, file)
			if effective == nil {
				return err
			}
			return errors.Join(effective.Render(cmd.OutOrStdout(), output), err)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "output format: table or json")
	config.AddFlags(cmd.Flags())
	return cmd
}
