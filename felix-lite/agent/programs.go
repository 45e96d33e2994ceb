// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/jump"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/internal/backoff"
)

// programs keeps one generation of the datapath's programs in the jump maps. A generation that can
// not be loaded leaves the one before in place. Loading takes the verifier seconds, so a goroutine
// does it; what it has loaded is put into the jump maps by the loop. On a node without programs it does
// so in two parts, those of workloads first: pods wait for no others. The second is begun when the pods are
// attached that were there: two verifiers beside it would double the time that takes.
type programs struct {
	set       *maps.Set
	constants layout.Config // JumpBank is set for each load
	log       *logrus.Entry
	now       func() time.Time
	onError   func(variant string)
	classes   func(context.Context, layout.Config, map[string]*ebpf.Map, ...layout.Class) ([]*load.Object, error) // load.Classes

	active  map[layout.Class]bool // of these classes programs can be jumped to
	empty   bool                  // there is no program at all to be jumped to
	current bool                  // there are all classes', of this build, with this configuration's constants
	loading bool
	spoilt  bool // a part of what is being loaded could not be installed: the others are not either
	loaded  chan loadResult
	next    chan struct{} // closed when the second part may be loaded; nil when nothing waits for that
	failure error
	retry   backoff.Backoff
}

// loadResult is a generation for a bank, whole or in parts, or why there is none.
type loadResult struct {
	started time.Time
	bank    uint32
	mark    uint32
	part    []layout.Class // classes of a part of a node's first generation; nil: a whole one
	last    bool           // no part comes after it
	objects []*load.Object
	err     error
}

func newPrograms(set *maps.Set, constants layout.Config, log *logrus.Entry, now func() time.Time, onError func(string)) *programs {
	return &programs{set: set, constants: constants, log: log, now: now, onError: onError, classes: load.Classes,
		active: map[layout.Class]bool{}, loaded: make(chan loadResult, len(firstParts()))}
}

// constants are the load-time constants that follow from the configuration.
func constants(cfg *config.Config, feats *features.Set, clock *features.Clock) layout.Config {
	t := cfg.ConntrackTimeouts
	jiffies := func(d time.Duration) uint32 { return uint32(min(clock.ToJiffies(d), 1<<31-1)) }
	return layout.Config{
		MarkShift: uint32(cfg.MarkShift()), HZ: clock.HZ,
		ToSYNSent: jiffies(t.TCPSynSent), ToEstablished: jiffies(t.TCPEstablished), ToFINs: jiffies(t.TCPFinsSeen),
		ToReset: jiffies(t.TCPResetSeen), ToUDP: jiffies(t.UDP), ToGeneric: jiffies(t.Generic), ToICMP: jiffies(t.ICMP),
		ToTicksShift: ticksShift(clock.HZ), Features: uint32(feats.Flags()),
	}
}

// ticksShift makes the datapath refresh a twin entry about once a second: a power of two of jiffies.
func ticksShift(hz uint32) uint32 { return uint32(bits.Len32(hz)) - 1 }

// adopt finds out what an earlier run left in the jump maps, and makes sure that the policies stand
// in their slots before anything can jump there: an empty one would open a workload or close the host.
func (p *programs) adopt() error {
	active, empty, err := jump.Active(p.set)
	if err != nil {
		return err
	}
	p.activate(active...)
	p.empty = empty
	mark, err := p.mark()
	if err != nil {
		return err
	}
	have, err := p.set.Generation()
	if err != nil {
		return err
	}
	if p.current = p.complete() && have == mark && p.policiesThere(); p.current {
		return nil
	}
	policies, err := load.Policies(p.constants, p.set.Raw())
	if err != nil {
		return err
	}
	defer policies.Close()
	return jump.InstallPolicies(p.set, policies)
}

func (p *programs) activate(classes ...layout.Class) {
	for _, class := range classes {
		p.active[class] = true
	}
}

// complete reports whether there are programs for every class of interface.
func (p *programs) complete() bool { return len(p.active) == len(variants.Classes()) }

// firstParts are the parts in which a node without programs gets them.
func firstParts() [][]layout.Class {
	return [][]layout.Class{{layout.ClassWEP},
		slices.DeleteFunc(variants.Classes(), func(c layout.Class) bool { return c == layout.ClassWEP })}
}

func (p *programs) policiesThere() bool {
	for _, slot := range []layout.PolicyIndex{layout.PolicyDeny, layout.PolicyAllow} {
		if _, found, err := p.set.Policy.Get(uint32(slot)); err != nil || !found {
			return false
		}
	}
	return true
}

// mark stands for all that makes a generation: the objects, their constants, and the maps they use.
func (p *programs) mark() (uint32, error) {
	h := fnv.New32a()
	names := []string{objects.Policy}
	for _, v := range variants.All() {
		names = append(names, v.Name())
	}
	for _, name := range names {
		data, err := objects.Bytes(name)
		if err != nil {
			return 0, err
		}
		h.Write(data)
	}
	c := p.constants
	c.JumpBank = 0
	maps, err := p.set.Fingerprint()
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(h, "%+v %d", c, maps)
	return max(1, h.Sum32()), nil
}

// ensure starts to load this build's generation where that has not been done, or is to be tried again.
func (p *programs) ensure(ctx context.Context) {
	now := p.now()
	if p.current || p.loading || !p.retry.Due(now) {
		return
	}
	bank, err := jump.NextBank(p.set)
	if err != nil {
		p.failed(err)
		return
	}
	mark, err := p.mark()
	if err != nil {
		p.failed(err)
		return
	}
	p.loading = true
	cfg, raw := p.constants, p.set.Raw()
	cfg.JumpBank = bank
	parts := [][]layout.Class{nil}
	var next chan struct{}
	if p.empty {
		parts, next = firstParts(), make(chan struct{})
	}
	p.next = next
	go func() {
		for i, part := range parts {
			if i > 0 {
				select {
				case <-next:
				case <-time.After(secondPartLimit):
				case <-ctx.Done():
				}
			}
			r := loadResult{started: now, bank: bank, mark: mark, part: part}
			wanted := part
			if part == nil {
				wanted = variants.Classes()
			}
			r.objects, r.err = p.classes(ctx, cfg, raw, wanted...)
			r.last = r.err != nil || i == len(parts)-1
			p.loaded <- r // has room for all that may be under way
			if r.last {
				return
			}
		}
	}()
}

// secondPartLimit bounds how long host interfaces wait for the programs of their classes while pods are attached.
const secondPartLimit = 2 * time.Second

// attached tells that no workload waits to be attached.
func (p *programs) attached() {
	if p.next != nil && !p.empty {
		close(p.next)
		p.next = nil
	}
}

// onLoaded puts what has been loaded into its bank and lets the preambles jump there.
func (p *programs) onLoaded(r loadResult) {
	p.loading = !r.last
	defer load.CloseAll(r.objects)
	spoilt := p.spoilt
	p.spoilt = spoilt && !r.last
	if spoilt {
		return
	}
	if r.err == nil {
		r.err = p.install(r)
	}
	if r.err != nil {
		p.spoilt = !r.last
		p.failed(r.err)
		return
	}
	p.empty = false
	if r.part != nil {
		p.activate(r.part...)
	} else {
		p.activate(variants.Classes()...)
	}
	fields := logrus.Fields{"duration": p.now().Sub(r.started).Round(time.Millisecond).String()}
	if !r.last {
		p.log.WithFields(fields).Debug("programs of workloads installed")
		return
	}
	p.current, p.failure = true, nil
	p.retry.Succeeded()
	p.log.WithFields(fields).Info("programs installed")
}

// install puts a generation, or a part of the first, into its bank.
func (p *programs) install(r loadResult) error {
	if r.part == nil || p.empty {
		// From here until the end nobody may take the bank for what the mark says.
		if err := p.set.SetGeneration(0); err != nil {
			return err
		}
		if err := p.set.CatchUp(); err != nil {
			return fmt.Errorf("resize maps: %w", err)
		}
	}
	var err error
	if r.part == nil {
		err = jump.Install(p.set, r.bank, r.objects)
	} else {
		err = jump.InstallClasses(p.set, r.bank, r.objects, r.part...)
	}
	if err != nil || !r.last {
		return err
	}
	if err := p.set.FinishResize(); err != nil {
		return fmt.Errorf("finish resizing maps: %w", err)
	}
	return p.set.SetGeneration(r.mark)
}

func (p *programs) failed(err error) {
	var refused *load.Error
	variant := "none"
	if errors.As(err, &refused) {
		variant = refused.Object
	}
	p.onError(variant)
	delay := p.retry.Failed(p.now())
	if p.failure == nil || p.failure.Error() != err.Error() {
		p.log.WithError(err).WithFields(logrus.Fields{"variant": variant, "retry": delay.Round(time.Millisecond).String(),
			"active": !p.empty}).Error("programs could not be installed; those of the last good generation stay")
	}
	p.failure = err
}

// close waits for a load that is under way and drops what it has loaded.
func (p *programs) close() {
	for p.loading {
		r := <-p.loaded
		load.CloseAll(r.objects)
		p.loading = !r.last
	}
}
