// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/felix-lite/netfilter"
)

// netfilterState is what the loop knows of the node's netfilter chains, which a goroutine keeps.
type netfilterState struct {
	keeper *netfilter.Keeper
	log    *logrus.Entry
	fixed  netfilter.Spec // what follows from the configuration

	spec    netfilter.Spec // as last handed over
	dirty   bool           // the chains are to be looked at again although nothing has changed
	backend netfilter.Backend
	failure string
	limits  []string
}

func newNetfilter(ns netns.NsHandle, cfg *config.Config, log *logrus.Entry) *netfilterState {
	return &netfilterState{
		keeper: netfilter.NewKeeper(netfilter.Options{Namespace: ns, Interval: cfg.NetfilterRefreshInterval}),
		log:    log.WithField("component", "netfilter"),
		fixed: netfilter.Spec{IPv4: cfg.IPv4Enabled, IPv6: cfg.IPv6Enabled, Backend: netfilter.Backend(cfg.IptablesBackend),
			MarkShift: cfg.MarkShift(), Masquerade: cfg.NATOutgoing == config.Enabled},
		dirty: true,
	}
}

// ensureNetfilter says what the chains should be, where that may be another thing than before, or somebody may have
// changed them. Before the links are known, it can not be said how workloads' interfaces are told from others.
func (a *Agent) ensureNetfilter() {
	n := a.netfilter
	if len(a.links) == 0 {
		return
	}
	spec := n.fixed
	spec.Workloads = netfilter.Prefixes(a.cfg.WorkloadInterfacePattern, a.otherInterfaces())
	spec.PodCIDRs = a.ownPodCIDRs()
	spec.Pair = a.fallback.phase != fallbackOff
	if !n.dirty && spec.Equal(n.spec) {
		return
	}
	n.spec, n.dirty = spec, false
	n.keeper.Want(spec)
}

// otherInterfaces are the names that rules for workloads must not match: our own, and the uplinks'.
func (a *Agent) otherInterfaces() []string {
	names := []string{"lo", interfaces.TunnelName, interfaces.NATInName, interfaces.NATOutName}
	for _, index := range interfaces.Uplinks(a.view, a.patterns()) {
		names = append(names, a.view.Links[index].Name)
	}
	return names
}

// ownPodCIDRs are the ranges of this node's pods.
func (a *Agent) ownPodCIDRs() []netip.Prefix { return slices.Clone(a.nodes.Own().PodCIDRs) }

// onNetfilter takes in what became of a look at the chains. Nothing else waits for it: a node without iptables does all but
// what the chains are for.
func (a *Agent) onNetfilter(r netfilter.Result) {
	n := a.netfilter
	if r.Pair {
		a.fallback.chained()
	}
	if r.Backend != "" && r.Backend != n.backend {
		n.log.WithField("backend", string(r.Backend)).Info("netfilter chains are kept")
		n.backend = r.Backend
	} else if r.Changes > 0 {
		n.log.WithField("changes", r.Changes).Info("netfilter chains were not as they should be and have been written")
	}
	if !slices.Equal(r.Limits, n.limits) {
		for _, limit := range r.Limits {
			n.log.Warn(limit)
		}
		n.limits = r.Limits
	}
	text := ""
	if r.Err != nil {
		text = r.Err.Error()
		a.metrics.reconcileErrors.WithLabelValues("netfilter").Inc()
	}
	if text == n.failure {
		return
	}
	n.failure = text
	switch {
	case errors.Is(r.Err, netfilter.ErrMissing):
		n.log.WithError(r.Err).Error("pods are not masqueraded outside of the cluster, and a firewall on this node may drop what the datapath lets pass")
	case r.Err != nil:
		n.log.WithError(r.Err).Error("netfilter chains are not as they should be, trying again")
	default:
		n.log.Info("netfilter chains are as they should be again")
	}
}

// endLimit is how long the agent's end waits for a command that waits for the xtables lock.
const endLimit = 15 * time.Second

// end waits until no command is under way: none of ours should write when we have gone.
func (n *netfilterState) end() {
	select {
	case <-n.keeper.Done():
	case <-time.After(endLimit):
		n.log.WithField("after", endLimit.String()).Warn("a command of iptables does not end and is left to itself: does somebody hold /run/xtables.lock?")
	}
}
