// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/felix-lite/felix-lite/felix-lite/socketlb"
)

// newSocketProbe is the process of the agent's self-test; nobody else has a use for it.
func newSocketProbe() *cobra.Command {
	var netns string
	cmd := &cobra.Command{
		Use: socketlb.ProbeVerb, Short: "Connect to the destination of the agent's self-test", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return socketlb.Probe(cmd.OutOrStdout(), netns) },
	}
	cmd.Flags().StringVar(&netns, "netns", "", "network namespace to connect in")
	return cmd
}
