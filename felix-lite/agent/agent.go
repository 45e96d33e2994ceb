// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/conntrack"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
	"github.com/felix-lite/felix-lite/felix-lite/interfaces"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/nodes"
	"github.com/felix-lite/felix-lite/felix-lite/services"
	"github.com/felix-lite/felix-lite/felix-lite/socketlb"
	"github.com/felix-lite/felix-lite/internal/statefile"
	"github.com/felix-lite/felix-lite/routetable"
)

// Options of an Agent.
type Options struct {
	Config            config.Config
	Source            model.Source
	Version, Revision string
	// SocketProbe is the command that runs socketlb.Probe; empty: this binary's own.
	SocketProbe []string
	Log         *logrus.Entry
}

// Agent is the node's agent: made by New, run once by Run.
type Agent struct {
	opts    Options
	cfg     config.Config
	log     *logrus.Entry
	now     func() time.Time
	started time.Time

	lock     *os.File
	features *features.Set
	clock    *features.Clock
	maps     *maps.Set
	ns       netns.NsHandle // the network namespace of the thread that called New
	netlink  *netlink.Handle

	programs  *programs
	tunnel    *tunnel
	fallback  *fallback
	sockets   *socketlb.Manager
	endpoints *endpoints.Manager
	services  *services.Calculator
	nodes     *nodes.Calculator
	tables    *tables
	kernel    *routetable.RouteTable
	netfilter *netfilterState
	sweeper   *conntrack.Sweeper
	dataplane *dataplane

	health  *health
	metrics *metrics

	// What the loop has seen so far.
	sourceSynced bool // every source has told all it has
	pruning      bool // what nobody wants is deleted
	links        map[int]endpoints.Link
	view         interfaces.View // the same links, as the classifier wants them
	hostAddrs    []netip.Addr    // of this node's interfaces
	sizes        mtus
	sizesDirty   bool // what follows from own addresses and uplinks is to be computed
	svcOptions   services.Options
	advice       []hostnat.Advice // about settings of the node, as last logged
	adviceDue    bool             // they are to be looked at
	problems     problems
	refusals     refusals
	triggered    []time.Time // of endpoint slices whose changes are to be written
	epochDue     bool        // conntrack must resolve its ways again
	globalsErr   error
	sweepErr     error
	resyncAt     time.Time
	state        stateWriter
	socketsTold  statefile.SocketLB
	wasReady     bool
}

// New opens the node's maps, adopts what an earlier run left in them, and prepares everything; it
// attaches nothing yet. The agent acts in the network namespace of the calling thread, which must also
// be the one that calls Run. Errors here are those that no retry would mend.
func New(opts Options) (*Agent, error) {
	cfg := opts.Config
	a := &Agent{opts: opts, cfg: cfg, log: opts.Log, now: time.Now, started: time.Now(), ns: netns.None(), links: map[int]endpoints.Link{},
		view: interfaces.View{Links: map[int]interfaces.Link{}}, sizesDirty: true}
	var err error
	if a.features, err = features.Probe(cfg.DisabledFeatures); err != nil {
		return nil, err
	}
	if cfg.AttachType == config.AttachTCX {
		if err := a.features.Require(features.TCX); err != nil {
			return nil, fmt.Errorf("attachType TCX: %w", err)
		}
	}
	if err := os.MkdirAll(cfg.RunDirectory, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if a.lock, err = lock(cfg.RunDirectory, lockPatience); err != nil {
		return nil, err
	}
	if a.maps, err = maps.Open(cfg.BPFFSRoot, maps.Options{Sizes: mapSizes(cfg.MapSizes),
		NoBatch: !a.features.Has(features.BatchHash), Log: opts.Log}); err != nil {
		a.lock.Close()
		return nil, err
	}
	if err := a.prepare(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) prepare() error {
	var err error
	if a.clock, err = features.OpenClock(); err != nil {
		return fmt.Errorf("datapath clock: %w", err)
	}
	if a.ns, err = netns.Get(); err != nil {
		return fmt.Errorf("own network namespace: %w", err)
	}
	if a.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	a.health = newHealth(a.now)
	a.metrics = newMetrics(a.opts.Version, a.opts.Revision)
	a.programs = newPrograms(a.maps, constants(&a.cfg, a.features, a.clock), a.log, a.now,
		func(variant string) { a.metrics.programLoadErrors.WithLabelValues(variant).Inc() })
	if err := a.programs.adopt(); err != nil {
		return fmt.Errorf("policies and earlier programs: %w", err)
	}
	a.tunnel = newTunnel(a.netlink, &a.cfg, a.log, a.now)
	g, err := a.maps.Globals.Read()
	if err != nil {
		return err
	}
	a.tunnel.told = int(g.TunnelIfindex)
	if a.fallback, err = newFallback(a.netlink, a.log, a.now); err != nil {
		return err
	}
	a.fallback.told = int(g.NatoutIfindex)
	a.tables = newTables(tableOps{a.maps.Frontends, a.maps.Backends, a.maps.Routes})
	if a.kernel, err = routetable.New(routetable.Options{Namespace: a.ns, OwnInterface: a.ownInterface}); err != nil {
		return err
	}
	a.netfilter = newNetfilter(a.ns, &a.cfg, a.log)
	a.sweeper = conntrack.NewSweeper(conntrack.Options{Tables: a.conntrackTables, Clock: a.conntrackClock(),
		Interval: a.cfg.ConntrackSweepInterval, Budget: a.cfg.ConntrackSweepBudget})
	a.prepareSockets()
	if err := a.prepareEndpoints(); err != nil {
		return err
	}
	return a.seed()
}

// prepareEndpoints starts the endpoint manager with the slots of the interfaces that are known.
func (a *Agent) prepareEndpoints() error {
	status, err := files.NewStatusDir(filepath.Join(a.cfg.RunDirectory, "endpoint-status"))
	if err != nil {
		return err
	}
	if a.dataplane, err = newDataplane(&a.cfg, a.maps, a.features, a.log); err != nil {
		return err
	}
	var families layout.IfaceFlag
	if a.cfg.IPv4Enabled {
		families |= layout.IFFV4
	}
	if a.cfg.IPv6Enabled {
		families |= layout.IFFV6
	}
	known, err := a.dataplane.known()
	if err != nil {
		return fmt.Errorf("read interfaces of an earlier run: %w", err)
	}
	a.endpoints = endpoints.NewManager(endpoints.Options{Classify: a.classify, Families: families,
		Programmed: a.programmed, IfaceSlots: a.maps.Counters.Slots(), EPSlots: a.endpointSlots(), Dataplane: a.dataplane, Status: status, Now: a.now,
		Log: a.log.WithField("component", "endpoints")}, known)
	return nil
}

// programmed says whether interfaces of a class may be attached: when there are programs to jump to. Pods that were
// there before the first ones go on as they did until then; new ones are not told to be ready. Where programs can
// not be loaded at all a workload is attached without, and so closed.
func (a *Agent) programmed(class layout.Class) bool {
	return a.programs.active[class] || class == layout.ClassWEP && a.programs.failure != nil
}

// endpointSlots is how many numbers there are for endpoints: that of policy generations, which the
// conntrack entries of an endpoint's flows are compared with, and what fits into those entries.
func (a *Agent) endpointSlots() uint32 {
	size := uint32(1 << 16)
	if m := a.maps.Raw()["cali_ep_gen2"]; m != nil {
		size = min(size, m.MaxEntries())
	}
	return size
}

// seed tells the calculators what the maps hold, so that ids and places survive a restart.
func (a *Agent) seed() error {
	a.svcOptions = services.Options{NodeName: a.cfg.NodeName, NodePorts: services.NodePortAll, ExternalIPs: true}
	a.services = services.New(a.svcOptions)
	a.nodes = nodes.New(nodes.Options{NodeName: a.cfg.NodeName, Overlay: nodes.Overlay(a.cfg.Overlay),
		Underlay: nodes.Underlay(a.cfg.UnderlayFamily), IPv4: a.cfg.IPv4Enabled, IPv6: a.cfg.IPv6Enabled,
		NATOutgoing: a.cfg.NATOutgoing == config.Enabled, NATExclusions: a.cfg.NATOutgoingExclusionCIDRs})
	var frontends [2][]services.Frontend
	var backends [2][]services.Backend
	if err := a.maps.Frontends.All(func(k maps.FrontendKey, v layout.FEValue) bool {
		f := layout.FamilyOf(k.Addr)
		frontends[f] = append(frontends[f], frontendFrom(k, v))
		return true
	}); err != nil {
		return fmt.Errorf("read frontends of an earlier run: %w", err)
	}
	if err := a.maps.Backends.All(func(k maps.BackendKey, v maps.Backend) bool {
		backends[k.Family] = append(backends[k.Family], backendFrom(k, v))
		return true
	}); err != nil {
		return fmt.Errorf("read backends of an earlier run: %w", err)
	}
	for _, f := range model.Families {
		a.services.Seed(f, frontends[f], backends[f])
	}
	var routes []nodes.Route
	if err := a.maps.Routes.All(func(p netip.Prefix, r maps.Route) bool {
		routes = append(routes, routeFrom(p, r))
		return true
	}); err != nil {
		return fmt.Errorf("read routes of an earlier run: %w", err)
	}
	a.nodes.Seed(routes)
	return nil
}

// close lets go of everything; programs, maps and routes stay.
func (a *Agent) close() {
	if a.kernel != nil {
		a.kernel.Close()
	}
	if a.programs != nil {
		a.programs.close()
	}
	if a.sockets != nil {
		a.sockets.Close()
	}
	if a.dataplane != nil {
		a.dataplane.attacher.Close()
	}
	if a.netlink != nil {
		a.netlink.Close()
	}
	if a.ns.IsOpen() {
		a.ns.Close()
	}
	if a.clock != nil {
		a.clock.Close()
	}
	if err := a.maps.Close(); err != nil {
		a.log.WithError(err).Warn("maps could not be closed")
	}
	a.lock.Close()
}

// ownInterface says on which interfaces nobody else has a say about neighbours.
func (a *Agent) ownInterface(name string) bool {
	return name == interfaces.TunnelName || name == interfaces.NATInName || a.cfg.WorkloadInterfacePattern.MatchString(name)
}

func (a *Agent) conntrackClock() conntrack.Clock {
	return conntrack.Clock{Jiffies: a.clock.Jiffies, HZ: a.clock.HZ}
}

// conntrackTables are the tables of the enabled families as they are now: a resize replaces maps.
func (a *Agent) conntrackTables() conntrack.Tables { return ConntrackTables(a.maps) }

// ConntrackTables are a set's conntrack maps.
func ConntrackTables(set *maps.Set) conntrack.Tables {
	return conntrack.Tables{
		V4: set.ConntrackV4.Confirmed.Raw(), V4Half: set.ConntrackV4.HalfOpen.Raw(),
		V6: set.ConntrackV6.Confirmed.Raw(), V6Half: set.ConntrackV6.HalfOpen.Raw(),
	}
}

func mapSizes(s config.MapSizes) maps.Sizes {
	return maps.Sizes{Conntrack: uint32(s.Conntrack), ConntrackHalfOpen: uint32(s.ConntrackHalfOpen),
		NATFrontend: uint32(s.NATFrontend), NATBackend: uint32(s.NATBackend), NATAffinity: uint32(s.NATAffinity),
		Routes: uint32(s.Routes), Interfaces: uint32(s.Interfaces)}
}

// Run does the agent's work until the context ends, and then leaves the dataplane as it is. It
// returns nil at an orderly stop.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := a.start(ctx, cancel)
	a.log.WithFields(logrus.Fields{"node": a.cfg.NodeName, "version": a.opts.Version, "bpffs": a.cfg.BPFFSRoot,
		"overlay": string(a.cfg.Overlay), "adopting": a.programs.complete()}).Info("agent started")
	err := a.loop(ctx, in)
	cancel(nil)
	a.netfilter.end()
	a.log.Info("agent stopped; programs, maps and routes stay in place")
	return err
}

// errSourceEnded is the cause when an input has ended by itself.
var errSourceEnded = errors.New("input ended")
