// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netns"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Options of a Keeper.
type Options struct {
	// Namespace is the network namespace to act in.
	Namespace netns.NsHandle
	// Interval from one look at the chains to the next.
	Interval time.Duration
}

// Result is what became of one look.
type Result struct {
	Backend Backend // in use; empty where none could be found
	Pair    bool    // the chains for the pair were among those that were wanted
	Changes int     // rules and chains written or deleted
	Limits  []string
	Err     error
}

// Keeper keeps the chains, in a goroutine of its own.
type Keeper struct {
	opts    Options
	wants   chan Spec
	results chan Result
	done    chan struct{}

	// Of the goroutine.
	backend Backend
	asked   Backend  // what the backend was found for
	cleared bool     // the other one holds nothing of ours
	besides []string // what people should know of the other one
	tools   map[model.Family]*chains
	random  map[model.Family]bool
}

// NewKeeper makes a keeper that does nothing before Run and Want.
func NewKeeper(o Options) *Keeper {
	return &Keeper{opts: o, wants: make(chan Spec, 1), results: make(chan Result, 1), done: make(chan struct{})}
}

// Want says what the chains should be; the newest is what counts. The chains are looked at at once. It never blocks.
func (k *Keeper) Want(s Spec) {
	for {
		select {
		case k.wants <- s:
			return
		default:
		}
		select {
		case <-k.wants: // an older one that was not taken yet
		default:
		}
	}
}

// Results is the channel of what became of each look. The newest replaces one that nobody has taken.
func (k *Keeper) Results() <-chan Result { return k.results }

// Done is closed when Run has ended, which waits for no command: one that is at work is killed. What is half done stays so; the
// next keeper does the rest.
func (k *Keeper) Done() <-chan struct{} { return k.done }

// Run does the work until the context ends. Chains stay. It returns an error only where it can not begin.
func (k *Keeper) Run(ctx context.Context) error {
	defer close(k.done)
	runtime.LockOSThread() // never unlocked: commands inherit the thread's network namespace, and it ends with the goroutine
	if err := netns.Set(k.opts.Namespace); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	tick := time.NewTicker(k.opts.Interval)
	defer tick.Stop()
	var spec Spec
	known := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-k.wants:
			spec, known = s, true
		case <-tick.C:
		}
		if known {
			r := k.look(ctx, spec)
			if ctx.Err() != nil {
				return nil
			}
			r.Pair = spec.Pair
			k.report(r)
		}
	}
}

func (k *Keeper) report(r Result) {
	for {
		select {
		case k.results <- r:
			return
		default:
		}
		select {
		case old := <-k.results:
			r.Changes += old.Changes
		default:
		}
	}
}

// look brings the chains of both families to what the spec wants.
func (k *Keeper) look(ctx context.Context, s Spec) Result {
	if err := k.settle(ctx, s); err != nil {
		return Result{Err: err}
	}
	r := Result{Backend: k.backend}
	errs := []error{k.clear(ctx)}
	r.Limits = slices.Clone(k.besides)
	for _, f := range model.Families {
		changes, limits, err := k.ensure(ctx, s, f)
		r.Changes += changes
		r.Limits = append(r.Limits, limits...)
		errs = append(errs, err)
	}
	r.Err = errors.Join(errs...)
	return r
}

// ensure brings the chains of one family to what the spec wants.
func (k *Keeper) ensure(ctx context.Context, s Spec, f model.Family) (changes int, limits []string, err error) {
	c, err := k.family(ctx, f)
	if err != nil {
		return 0, nil, err
	}
	var want []Chain
	if f == model.IPv4 && s.IPv4 || f == model.IPv6 && s.IPv6 {
		want = Rules(s, f, k.random[f])
	} else if h, err := look(ctx, k.backend); err != nil || !h.ours {
		return 0, nil, err
	}
	changes, limits, err = c.ensure(ctx, want)
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err)
	}
	return changes, limits, err
}

// settle finds the back-end, once.
func (k *Keeper) settle(ctx context.Context, s Spec) error {
	if k.backend != "" && k.asked == s.Backend {
		return nil
	}
	b := s.Backend
	if b == Auto || b == "" {
		nft, err := look(ctx, NFT)
		if err != nil {
			return err
		}
		legacy, err := look(ctx, Legacy)
		if err != nil {
			return err
		}
		if b, err = choose(nft, legacy); err != nil {
			return err
		}
	}
	k.backend, k.asked, k.cleared = b, s.Backend, false
	k.tools, k.random = map[model.Family]*chains{}, map[model.Family]bool{}
	return nil
}

// clear takes away, once, what an earlier run left in the other back-end.
func (k *Keeper) clear(ctx context.Context) error {
	if k.cleared {
		return nil
	}
	other := Legacy
	if k.backend == Legacy {
		other = NFT
	}
	_, err := removeFrom(ctx, other)
	if err != nil {
		return fmt.Errorf("chains that an earlier run may have left in the back-end %s: %w", other, err)
	}
	h, err := look(ctx, other)
	if err != nil {
		return fmt.Errorf("the rules in the back-end %s: %w", other, err)
	}
	k.besides = nil
	if h.others > 0 {
		k.besides = []string{fmt.Sprintf("iptables' back-end %s has %d rules and policies of others, too: what they drop stays dropped, for the agent's chains "+
			"stand in %s alone (see iptablesBackend)", other, h.others, k.backend)}
	}
	k.cleared = true
	return nil
}

func (k *Keeper) family(ctx context.Context, f model.Family) (*chains, error) {
	if c := k.tools[f]; c != nil {
		return c, nil
	}
	t, random, err := open(ctx, k.backend, f)
	if err != nil {
		return nil, err
	}
	k.tools[f], k.random[f] = newChains(t), random
	return k.tools[f], nil
}

// Remove takes all our chains away, from both back-ends and families, in the network namespace of the calling thread, and
// returns how many there were. It ends early with the context.
func Remove(ctx context.Context) (int, error) {
	n := 0
	var errs []error
	for _, b := range []Backend{NFT, Legacy} {
		removed, err := removeFrom(ctx, b)
		n += removed
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// removeFrom takes all our chains of one back-end away, and returns how many there were.
func removeFrom(ctx context.Context, b Backend) (int, error) {
	h, err := look(ctx, b)
	if !h.ours {
		return 0, err // listing one by one would make tables where there were none
	}
	n := 0
	errs := []error{err}
	for _, f := range model.Families {
		t, _, err := open(ctx, b, f)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed, err := removeAll(ctx, t)
		n += removed
		if err != nil {
			errs = append(errs, fmt.Errorf("back-end %s, %s: %w", b, f, err))
		}
	}
	return n, errors.Join(errs...)
}

// removeAll takes all our chains of one family away, and returns how many there were.
func removeAll(ctx context.Context, t tool) (int, error) {
	c := newChains(t)
	n := 0
	var errs []error
	for _, place := range places {
		changes, err := c.remove(ctx, place)
		if changes > 0 {
			n++
		}
		if err != nil && !unknownToKernel(err) {
			errs = append(errs, fmt.Errorf("table %s, chain %s: %w", place.Table, place.Name, err))
		}
	}
	return n, errors.Join(errs...)
}
