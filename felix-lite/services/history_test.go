// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// history plays random changes to a calculator and its simulated maps.
type history struct {
	rng   *rand.Rand
	world *world
	calc  *Calculator
	maps  *simMaps
	truth truth // of world, as of the last step
	// fault, if set, alters each delta as a faulty program would.
	fault func([]op, *rand.Rand) []op
}

func newHistory(seed uint64) *history {
	o := Options{
		NodeName: "n0", ExternalIPs: true,
		Addresses: addrs("192.0.2.10", "127.0.0.1", "fe80::1", "2001:db8::10"),
	}
	h := &history{rng: rand.New(rand.NewPCG(seed, 1)), world: newWorld(o), maps: newSimMaps()}
	h.calc = New(o)
	h.calc.Synced()
	return h
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func pick[T any](h *history, from ...T) T { return from[h.rng.IntN(len(from))] }

func (h *history) chance(percent int) bool { return h.rng.IntN(100) < percent }

func (h *history) addr(f model.Family, v4, v6 string, n int) netip.Addr {
	format := v4
	if f == model.IPv6 {
		format = v6
	}
	return netip.MustParseAddr(fmt.Sprintf(format, 1+h.rng.IntN(n)))
}

func (h *history) serviceName() model.ObjectName {
	return model.ObjectName{Namespace: pick(h, "a", "b"), Name: fmt.Sprintf("s%d", h.rng.IntN(3))}
}

func (h *history) service() *model.Service {
	s := &model.Service{Name: h.serviceName(), Type: model.ClusterIP, Created: time.Unix(int64(h.rng.IntN(3)), 0)}
	for _, f := range model.Families {
		if h.chance(75) {
			s.ClusterIPs = append(s.ClusterIPs, h.addr(f, "10.96.0.%d", "fd96::%d", 5))
		}
		for h.chance(25) {
			s.ExternalIPs = append(s.ExternalIPs, pick(h, h.addr(f, "198.51.100.%d", "2001:db8:1::%d", 3), h.addr(f, "10.96.0.%d", "fd96::%d", 5),
				h.addr(f, "192.0.2.1%d", "2001:db8::1%d", 3), h.addr(f, "10.65.0.%d", "fd65::%d", 6)))
		}
		for h.chance(25) {
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, model.LoadBalancerIP{
				Addr: h.addr(f, "198.51.100.%d", "2001:db8:1::%d", 3), Mode: pick(h, "", model.IPModeVIP, model.IPModeProxy),
			})
		}
	}
	names := []string{"http", "dns", "admin"}
	for i := range 1 + h.rng.IntN(3) {
		p := model.ServicePort{Name: names[i], Protocol: pick(h, model.TCP, model.TCP, model.UDP, model.SCTP), Port: uint16(80 + h.rng.IntN(3))}
		if h.chance(40) {
			p.NodePort = uint16(30000 + h.rng.IntN(3))
		}
		// The API server refuses two ports with the same number and protocol.
		if !slices.ContainsFunc(s.Ports, func(o model.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
			s.Ports = append(s.Ports, p)
		}
	}
	if h.chance(25) {
		s.InternalTrafficPolicy = model.PolicyLocal
	}
	if h.chance(35) {
		s.ExternalTrafficPolicy = model.PolicyLocal
	}
	if h.chance(40) {
		s.SessionAffinity, s.AffinityTimeout = model.AffinityClientIP, time.Duration(h.rng.IntN(2))*time.Minute
	}
	switch h.rng.IntN(20) {
	case 0:
		s.Labels = map[string]string{model.LabelServiceProxyName: "other"}
	case 1:
		s.Labels = map[string]string{model.LabelHeadless: ""}
	case 2:
		s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	case 3:
		s.ClusterIPs, s.Headless = nil, true
	}
	return s
}

func (h *history) slice() *model.EndpointSlice {
	s := &model.EndpointSlice{
		Name: model.ObjectName{Namespace: pick(h, "a", "b"), Name: fmt.Sprintf("slice%d", h.rng.IntN(6))}, Family: pick(h, model.IPv4, model.IPv6),
	}
	s.Service = model.ObjectName{Namespace: s.Name.Namespace, Name: h.serviceName().Name}
	s.Headless = h.chance(5)
	for _, n := range []string{"http", "dns", "admin"} {
		for range 1 + h.rng.IntN(2) {
			s.Ports = append(s.Ports, model.EndpointPort{Name: n, Protocol: pick(h, model.TCP, model.TCP, model.UDP, model.SCTP), Port: uint16(8080 + h.rng.IntN(2))})
		}
	}
	hinted := h.chance(50)
	for range h.rng.IntN(6) {
		e := model.Endpoint{
			Addr: h.addr(s.Family, "10.65.0.%d", "fd65::%d", 8), Node: pick(h, "n0", "n0", "n1", "n2", ""), Weight: uint16(h.rng.IntN(3)),
			Ready: h.chance(60), Serving: true,
		}
		if !e.Ready {
			e.Serving, e.Terminating = h.chance(60), h.chance(60)
		}
		if hinted || h.chance(20) {
			e.ZoneHints = []string{pick(h, "z0", "z1")}
		}
		if hinted && h.chance(80) {
			e.NodeHints = []string{pick(h, "n0", "n1")}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// edit returns a slice with one endpoint's condition changed: the most common change of all.
func (h *history) edit(old *model.EndpointSlice) *model.EndpointSlice {
	s := *old
	s.Endpoints = slices.Clone(old.Endpoints)
	if len(s.Endpoints) > 0 {
		e := &s.Endpoints[h.rng.IntN(len(s.Endpoints))]
		switch {
		case h.chance(40):
			e.Ready = !e.Ready
		case h.chance(50):
			e.Ready, e.Serving, e.Terminating = false, true, true
		default:
			e.Addr = h.addr(s.Family, "10.65.0.%d", "fd65::%d", 8)
		}
	}
	return &s
}

func (h *history) node() *model.Node {
	n := &model.Node{Name: pick(h, "n0", "n1", "n2"), Zone: pick(h, "z0", "z1", "")}
	for _, f := range model.Families {
		n.Addresses = append(n.Addresses, model.NodeAddress{Type: model.NodeInternalIP, Addr: h.addr(f, "192.0.2.1%d", "2001:db8::1%d", 4)})
	}
	return n
}

func (h *history) pod() *model.Pod {
	return &model.Pod{
		Name: model.ObjectName{Namespace: "a", Name: fmt.Sprintf("p%d", h.rng.IntN(3))}, HostNetwork: h.chance(20),
		Phase: pick(h, model.PodRunning, model.PodSucceeded), IPs: []netip.Addr{h.addr(model.IPv4, "10.65.0.%d", "", 6), h.addr(model.IPv6, "", "fd65::%d", 6)},
	}
}

func anyKey[K comparable, V any](h *history, m map[K]V, compare func(a, b K) int) (K, bool) {
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		var none K
		return none, false
	}
	slices.SortFunc(keys, compare)
	return keys[h.rng.IntN(len(keys))], true
}

func (h *history) change() model.Change {
	switch n := h.rng.IntN(100); {
	case n < 25:
		return model.Updated(h.service())
	case n < 33:
		return model.Deleted(model.KindService, h.serviceName())
	case n < 55:
		return model.Updated(h.slice())
	case n < 80:
		if name, ok := anyKey(h, h.world.slices, model.ObjectName.Compare); ok {
			return model.Updated(h.edit(h.world.slices[name]))
		}
		return model.Updated(h.slice())
	case n < 88:
		s := h.slice()
		return model.Deleted(model.KindEndpointSlice, s.Name)
	case n < 92:
		return model.Updated(h.node())
	case n < 94:
		return model.Deleted(model.KindNode, h.node().ObjectName())
	case n < 98:
		return model.Updated(h.pod())
	default:
		return model.Deleted(model.KindPod, h.pod().Name)
	}
}

// step makes a batch of changes, applies the delta write by write, and checks everything. An
// error says what is wrong; it is what the seeded faults must lead to.
func (h *history) step() error {
	before := h.truth
	var d Delta
	if h.chance(5) {
		o := h.world.opts
		o.Addresses = addrs("192.0.2.10", "2001:db8::10")
		for range h.rng.IntN(3) {
			o.Addresses = append(o.Addresses, h.addr(pick(h, model.IPv4, model.IPv6), "192.0.2.2%d", "2001:db8::2%d", 3))
		}
		o.ExternalIPs = h.chance(80)
		h.world.opts = o
		d = h.calc.SetOptions(o)
	} else {
		var batch []model.Change
		for range 1 + h.rng.IntN(3) {
			ch := h.change()
			h.world.apply([]model.Change{ch})
			batch = append(batch, ch)
		}
		d = h.calc.Apply(batch)
	}
	h.truth = h.world.evaluate()
	return h.play(d, before, h.truth, -1)
}

// play applies a delta; after stop writes (if not negative) it ends as if the agent had died.
func (h *history) play(d Delta, before, after truth, stop int) error {
	ops := d.ops()
	if h.fault != nil {
		ops = h.fault(ops, h.rng)
	}
	allowed := allowedBetween(before, after)
	for i, o := range ops {
		if i == stop {
			return nil
		}
		o.do(h.maps)
		if err := h.maps.consistent(allowed); err != nil {
			return fmt.Errorf("after %q (%d of %d): %w", o.what, i+1, len(ops), err)
		}
	}
	if err := h.maps.equal(after); err != nil {
		return fmt.Errorf("in the end: %w", err)
	}
	return h.maps.same(h.calc)
}

// restart replaces the calculator by a new one that knows only the maps and the world.
func (h *history) restart() Delta {
	if own := h.world.nodes[h.world.opts.NodeName]; own == nil || own.Zone == "" {
		// What the old calculator remembered of its zone, the new one is told by its options.
		h.world.opts.Zone = h.world.zone
	}
	h.calc = New(h.world.opts)
	for _, f := range model.Families {
		fes, bes := h.maps.dump(f)
		h.calc.Seed(f, fes, bes)
	}
	var all []model.Change
	for _, o := range h.world.services {
		all = append(all, model.Updated(o))
	}
	for _, o := range h.world.slices {
		all = append(all, model.Updated(o))
	}
	for _, o := range h.world.nodes {
		all = append(all, model.Updated(o))
	}
	for _, o := range h.world.pods {
		all = append(all, model.Updated(o))
	}
	h.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for len(all) > 0 {
		n := 1 + h.rng.IntN(len(all))
		if d := h.calc.Apply(all[:n]); !d.Empty() {
			panic("something was emitted before the sources were in sync")
		}
		all = all[n:]
	}
	return h.calc.Synced()
}

const histories, restarts, steps = 1000, 400, 30

func TestAnyHistoryLeavesTheMapsAsIfBuiltFromScratchAndNeverBreaksAFrontend(t *testing.T) {
	for seed := range uint64(histories) {
		h := newHistory(seed)
		for i := range steps {
			if err := h.step(); err != nil {
				t.Fatalf("history %d, step %d: %v", seed, i, err)
			}
		}
	}
}

func TestARestartWritesNothingWhenNothingHasChanged(t *testing.T) {
	for seed := range uint64(restarts) {
		h := newHistory(seed + 1e6)
		for i := range steps {
			if err := h.step(); err != nil {
				t.Fatalf("history %d, step %d: %v", seed, i, err)
			}
		}
		if d := h.restart(); !d.Empty() {
			t.Fatalf("history %d: a restart wants %v", seed, d.ops()[0].what)
		}
		for i := range 5 {
			if err := h.step(); err != nil {
				t.Fatalf("history %d, step %d after the restart: %v", seed, i, err)
			}
		}
	}
}

func TestARestartAfterACrashBetweenTwoWritesRepairsTheMapsWithoutBreakingAFrontend(t *testing.T) {
	for seed := range uint64(restarts) {
		h := newHistory(seed + 2e6)
		for i := range steps {
			if err := h.step(); err != nil {
				t.Fatalf("history %d, step %d: %v", seed, i, err)
			}
		}
		start := h.truth
		var batch []model.Change
		for range 5 {
			ch := h.change()
			h.world.apply([]model.Change{ch})
			batch = append(batch, ch)
		}
		d := h.calc.Apply(batch)
		mid := h.world.evaluate()
		if n := len(d.ops()); n > 0 {
			if err := h.play(d, start, mid, h.rng.IntN(n)); err != nil {
				t.Fatalf("history %d, before the crash: %v", seed, err)
			}
		}
		// The world goes on while the agent is away.
		if h.chance(50) {
			h.world.apply([]model.Change{h.change()})
		}
		after := h.world.evaluate()
		d = h.restart()
		if err := h.play(d, merge(start, mid), after, -1); err != nil {
			t.Fatalf("history %d, after the crash: %v", seed, err)
		}
	}
}

// merge returns what either of two truths allows; owners are the later one's.
func merge(a, b truth) truth {
	out := truth{owner: map[FrontendKey]portName{}, cluster: map[portName]map[target]bool{}, local: map[portName]map[target]bool{}}
	// Between two truths a frontend may still be its former owner's: allow all that any port has.
	everything := map[target]bool{}
	for _, t := range []truth{a, b} {
		for _, lists := range []map[portName]map[target]bool{t.cluster, t.local} {
			for _, l := range lists {
				for tg := range l {
					everything[tg] = true
				}
			}
		}
		for k, p := range t.owner {
			out.owner[k], out.cluster[p] = p, everything
		}
	}
	return out
}

// TestSeededFaultsAreFound shows that the checks above can fail: each of these faults, made by the
// code that hands on a delta, is noticed within the same number of histories.
func TestSeededFaultsAreFound(t *testing.T) {
	is := func(o op, prefix string) bool { return len(o.what) >= len(prefix) && o.what[:len(prefix)] == prefix }
	drop := func(prefix string) func([]op, *rand.Rand) []op {
		return func(ops []op, rng *rand.Rand) []op {
			for i, o := range ops {
				if is(o, prefix) {
					return slices.Delete(slices.Clone(ops), i, i+1)
				}
			}
			return ops
		}
	}
	moveFirst := func(prefix string) func([]op, *rand.Rand) []op {
		return func(ops []op, _ *rand.Rand) []op {
			var first, rest []op
			for _, o := range ops {
				if is(o, prefix) {
					first = append(first, o)
				} else {
					rest = append(rest, o)
				}
			}
			return append(first, rest...)
		}
	}
	faults := map[string]func([]op, *rand.Rand) []op{
		"a backend is not written":                  drop("write backend"),
		"a frontend is not written":                 drop("write frontend"),
		"a frontend is not deleted":                 drop("delete frontend"),
		"a backend is not deleted":                  drop("delete backend"),
		"frontends are written before backends":     moveFirst("write frontend"),
		"backends are deleted before the frontends": moveFirst("delete backend"),
		"writes are applied in reverse":             func(ops []op, _ *rand.Rand) []op { ops = slices.Clone(ops); slices.Reverse(ops); return ops },
		"two writes change places": func(ops []op, rng *rand.Rand) []op {
			if len(ops) < 2 {
				return ops
			}
			ops = slices.Clone(ops)
			i, j := rng.IntN(len(ops)), rng.IntN(len(ops))
			ops[i], ops[j] = ops[j], ops[i]
			return ops
		},
		"a write is applied twice, late": func(ops []op, _ *rand.Rand) []op {
			if len(ops) == 0 {
				return ops
			}
			return append(slices.Clone(ops), ops[0])
		},
		"the last write is lost": func(ops []op, _ *rand.Rand) []op { return ops[:max(0, len(ops)-1)] },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(histories) {
				h := newHistory(seed)
				h.fault = fault
				for range steps {
					if err := h.step(); err != nil {
						t.Logf("found in history %d: %v", seed, err)
						return
					}
				}
			}
			t.Error("not found")
		})
	}
}
