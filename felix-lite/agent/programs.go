// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/jump"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/felix-lite/config"
)

// programs keeps one generation of the datapath's programs in the jump maps. A generation that can
// not be loaded leaves the one before in place.
type programs struct {
	set       *maps.Set
	constants layout.Config // JumpBank is set for each load
	log       *logrus.Entry
	now       func() time.Time
	onError   func(variant string)

	active  bool // some generation can be jumped to
	current bool // it is this build's, with this configuration's constants
	failure error
	retry   backoff
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

// inspect finds out whether an earlier run's generation can be jumped to.
func (p *programs) inspect() error {
	g, err := p.set.Globals.Read()
	if err != nil {
		return err
	}
	for _, v := range variants.All() {
		if _, found, err := p.set.Jump.Get(g.JumpBase + v.Slot(layout.SlotMain)); err != nil || !found {
			return err
		}
	}
	p.active = true
	return nil
}

// ensure loads and installs this build's generation where that has not been done, or is to be tried
// again, and reports whether it was installed now.
func (p *programs) ensure() bool {
	now := p.now()
	if p.current || !p.retry.due(now) {
		return false
	}
	started := now
	if err := p.install(); err != nil {
		var refused *load.Error
		variant := "none"
		if errors.As(err, &refused) {
			variant = refused.Object
		}
		p.onError(variant)
		delay := p.retry.failed(now)
		if p.failure == nil || p.failure.Error() != err.Error() {
			p.log.WithError(err).WithFields(logrus.Fields{"variant": variant, "retry": delay.Round(time.Millisecond).String(),
				"active": p.active}).Error("programs could not be installed; those of the last good generation stay")
		}
		p.failure = err
		return false
	}
	p.active, p.current, p.failure = true, true, nil
	p.retry.succeeded()
	p.log.WithField("duration", p.now().Sub(started).Round(time.Millisecond).String()).Info("programs installed")
	return true
}

func (p *programs) install() error {
	raw := p.set.Raw()
	policies, err := load.Policies(p.constants, raw)
	if err != nil {
		return err
	}
	defer policies.Close()
	// Before anything can jump there: an empty policy slot would open a workload or close the host.
	if err := jump.InstallPolicies(p.set, policies); err != nil {
		return err
	}
	bank, err := jump.NextBank(p.set)
	if err != nil {
		return err
	}
	cfg := p.constants
	cfg.JumpBank = bank
	generation, err := loadAll(func(v variants.Variant) (*load.Object, error) { return load.Variant(v, cfg, raw) })
	if err != nil {
		return err
	}
	defer load.CloseAll(generation)
	if err := jump.Install(p.set, bank, generation); err != nil {
		return err
	}
	if err := p.set.FinishResize(); err != nil {
		return fmt.Errorf("finish resizing maps: %w", err)
	}
	return nil
}

// loadAll loads all variants on all CPUs. One that is refused ends it, and none is kept.
func loadAll(one func(variants.Variant) (*load.Object, error)) ([]*load.Object, error) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	var loaded []*load.Object
	for _, v := range variants.All() {
		group.Go(func() error {
			o, err := one(v)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			loaded = append(loaded, o)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		load.CloseAll(loaded)
		return nil, err
	}
	return loaded, nil
}
