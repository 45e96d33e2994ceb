// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/cilium/ebpf/rlimit"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/felix-lite/felix-lite/felix-lite/agent"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/files"
	"github.com/felix-lite/felix-lite/felix-lite/source/kubernetes"
)

func newAgent() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "agent", Short: "Program this node's dataplane until told to stop", Args: cobra.NoArgs,
		Long: "Programs this node's dataplane until it gets SIGTERM or SIGINT. What it has programmed stays in place\n" +
			"when it ends; the next one adopts it. `felix-lite cleanup` removes it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			effective, err := load(cmd, file)
			if err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			log := newLogger(cmd, effective.Config)
			for _, w := range effective.Warnings {
				log.Warn(w)
			}
			if err := rlimit.RemoveMemlock(); err != nil {
				return fmt.Errorf("lift the limit of locked memory: %w", err)
			}
			source, err := newSource(&effective.Config, log)
			if err != nil {
				return err
			}
			a, err := agent.New(agent.Options{Config: effective.Config, Source: source, Version: version, Revision: revision(), Log: log})
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	config.AddFlags(cmd.Flags())
	return cmd
}

func newLogger(cmd *cobra.Command, cfg config.Config) *logrus.Entry {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	// The configuration's values are those that logrus parses, and are checked.
	if level, err := logrus.ParseLevel(strings.ToLower(string(cfg.LogLevel))); err == nil {
		log.SetLevel(level)
	}
	if cfg.LogFormat == config.LogJSON {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	}
	return logrus.NewEntry(log)
}

func newSource(cfg *config.Config, log *logrus.Entry) (model.Source, error) {
	if cfg.Source == config.SourceFiles {
		return files.New(files.Options{Directory: cfg.FilesDirectory, ResyncInterval: cfg.ResyncInterval, Log: log}), nil
	}
	client, err := kubernetes.NewClient(kubernetes.ClientOptions{Kubeconfig: cfg.Kubeconfig,
		Endpoint: cfg.KubernetesServiceEndpoint, UserAgent: "felix-lite/" + version})
	if err != nil {
		return nil, err
	}
	return kubernetes.New(kubernetes.Options{Client: client, Log: log}), nil
}

// revision is the commit that the binary was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	return rev + dirty
}
