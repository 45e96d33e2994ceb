// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
	"github.com/felix-lite/felix-lite/felix-lite/socketlb"
	"github.com/felix-lite/felix-lite/internal/statefile"
	"github.com/felix-lite/felix-lite/routetable"
)

// prepareSockets makes the manager of the programs at connect time.
func (a *Agent) prepareSockets() {
	command := a.opts.SocketProbe
	if len(command) == 0 {
		command = []string{"/proc/self/exe", socketlb.ProbeVerb}
	}
	a.sockets = socketlb.NewManager(socketlb.Options{Mode: socketlb.Mode(a.cfg.ConnectTimeLoadBalancing),
		CgroupRoot: a.cfg.CgroupRoot, BPFFSRoot: a.cfg.BPFFSRoot, IPv4: a.cfg.IPv4Enabled, IPv6: a.cfg.IPv6Enabled,
		Features: a.features, HZ: a.clock.HZ, Maps: a.maps, Namespace: a.ns, Command: command, Now: a.now, Log: a.log})
}

// onFiles takes in what the watcher of endpoint files says.
func (a *Agent) onFiles(b files.Batch) {
	a.endpoints.OnFiles(b)
	a.sockets.Files(b)
}

// fallbackNeeded reports whether this host's traffic to services may have to be balanced by bpfin.cali and bpfout.cali,
// because it is not at connect time. known is false as long as the self-test has not told.
func (a *Agent) fallbackNeeded() (needed, known bool) { return a.sockets.FallbackNeeded() }

// fallbackServes reports whether it is: the pair is known to the datapath, and the kernel has the routes into it.
func (a *Agent) fallbackServes() bool { return a.fallbackWaits() == "" }

// fallbackWaits says what is missing until the fallback serves; empty if nothing is. An address that somebody else
// routes is his to serve: no waiting would change that.
func (a *Agent) fallbackWaits() string {
	out := a.serving()
	if out == 0 || out != a.fallback.told || !a.fallback.routes.Enabled() || !a.pruning {
		return "the pair for host traffic is not in use yet"
	}
	for p := range a.kernel.Open() {
		ours := a.fallback.routes.Has(p.Dst) || p.Interface == hostnat.InName
		if ours && !errors.Is(p.Status.Err, routetable.ErrConflict) {
			return p.Object + " is not in the kernel yet"
		}
	}
	return ""
}

// socketsCondition does not hold where sockets should be balanced at connect time and are not, as long as host traffic is
// not balanced packet by packet instead. The message says so in any case.
func (a *Agent) socketsCondition() Condition {
	c := Condition{Name: "socketLB", OK: true}
	if err := a.sockets.Problem(); err != nil {
		c.Message = err.Error()
	}
	if leaving := a.sockets.State().Leaving; len(leaving) > 0 && c.Message == "" {
		if why := a.fallbackWaits(); why != "" {
			c.Message = "programs of an earlier run stay on " + strings.Join(leaving, ", ") + ": " + why
		}
	}
	if needed, known := a.sockets.FallbackNeeded(); a.sockets.Plan().Balances() && a.sockets.Broken() && needed && known {
		c.OK = a.fallbackServes()
	}
	return c
}

// socketState is what the state file says of connect time.
func socketState(s socketlb.State) statefile.SocketLB {
	return statefile.SocketLB{Mode: s.Mode, Cgroup: s.Cgroup, SelfTest: s.SelfTest, Fallback: s.Fallback, Why: s.Why,
		Missing: s.Missing, OptedOut: s.OptedOut}
}

// socketFigures are the metrics of connect time and of the fallback.
func (a *Agent) socketFigures() socketFigures {
	s := a.sockets.State()
	return socketFigures{mode: s.Mode, balances: a.sockets.Plan().Balances(), pending: s.SelfTest == socketlb.TestPending && !a.sockets.Broken(),
		working: one(s.SelfTest == socketlb.TestPassed && !a.sockets.Broken()), optedOut: float64(s.OptedOut), pair: one(a.fallbackServes())}
}

// one is a truth as a metric.
func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// noteSockets has the state file written again when what it says of connect time is not so any more.
func (a *Agent) noteSockets() {
	if now := socketState(a.sockets.State()); !now.Equal(a.socketsTold) {
		a.socketsTold, a.state.dirty = now, true
	}
}
