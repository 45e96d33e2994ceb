// SPDX-License-Identifier: Apache-2.0

// Command lab builds, shows and removes a felix-lite cluster of network namespaces on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/felix-lite/felix-lite/fv-tests/demo"
	"github.com/felix-lite/felix-lite/fv-tests/lab"
)

func main() {
	lab.RunChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		stop()
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A felix-lite cluster in network namespaces: nodes, pods and outside clients on one machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), statusCommand(), execCommand(), probeCommand(), applyCommand(), podCommand(), downCommand(), demoCommand())
	return root
}

func demoCommand() *cobra.Command {
	var opts demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Build a lab, send traffic along every path, show what carried it, and clean up",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return demo.Run(c.Context(), c.OutOrStdout(), opts)
		},
	}
	c.Flags().StringVar(&opts.Overlay, "overlay", "VXLAN", "how nodes reach each other's pods: VXLAN or Direct")
	return c
}
