// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// dumpTimeout bounds each command of a dump.
const dumpTimeout = 5 * time.Second

// Dump describes a node for a failure report: counters, drops, connections, services, routes, and the
// end of the agent's log. What cannot be read is said, not hidden.
func (n *Node) Dump(ctx context.Context) string {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimSpace(text); text != "" {
			fmt.Fprintf(&b, "--- %s: %s ---\n%s\n", n.Name, title, text)
		}
	}
	if n.lab.Options.NoAgent {
		section("routes", n.output(ctx, "ip", "-d", "route", "show", "table", "all"))
		return b.String()
	}
	if c, err := n.Counters(); err != nil {
		section("counters", err.Error())
	} else {
		section("counters since attach", c.String())
		section("drops", fmt.Sprint(c.Drops()))
	}
	for _, verb := range [][]string{{"conntrack", "list"}, {"services"}, {"routes"}, {"interfaces"}} {
		section(strings.Join(verb, " "), head(n.output(ctx, n.CLI(verb...)...), 60))
	}
	section("kernel routes", n.output(ctx, "ip", "route")+n.output(ctx, "ip", "-6", "route"))
	section("neighbours", n.output(ctx, "ip", "neigh")+n.output(ctx, "ip", "-6", "neigh"))
	section("agent log", n.LogTail(40))
	return b.String()
}

// output runs a command in the node's namespace and returns what it printed, errors included.
func (n *Node) output(ctx context.Context, argv ...string) string {
	data, err := n.Run(ctx, argv...)
	if err != nil {
		data += fmt.Sprintf("%s: %v\n", strings.Join(argv, " "), err)
	}
	return data
}

// Run runs a command in the place's namespace and returns its standard output and error together.
func (p *Place) Run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.Namespace.Do(cmd.Start); err != nil {
		return "", fmt.Errorf("run in %s: %w", p.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("run in %s: %w", p.Name, err)
	}
	return out.String(), nil
}

// ForgetPathMTUs drops what the place's routes have learned about paths in a family.
func (p *Place) ForgetPathMTUs(ctx context.Context, ipv6 bool) error {
	if !ipv6 {
		return p.Namespace.sysctls(map[string]string{"net/ipv4/route/flush": "1"})
	}
	// The IPv6 sysctl of that name leaves path MTUs alone.
	if out, err := p.Run(ctx, "ip", "-6", "route", "flush", "cache"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func head(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	if len(all) <= lines {
		return text
	}
	return strings.Join(all[:lines], "") + fmt.Sprintf("... %d more lines", len(all)-lines)
}
