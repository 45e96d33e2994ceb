// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/coreos/go-iptables/iptables"
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
	asked   Backend // what the backend was found for
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

// Done is closed when Run has ended.
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
	if err := k.settle(s); err != nil {
		return Result{Err: err}
	}
	r := Result{Backend: k.backend}
	var errs []error
	for _, f := range model.Families {
		if ctx.Err() != nil {
			return r // half is done; the next agent does the rest
		}
		c, err := k.family(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var want []Chain
		if f == model.IPv4 && s.IPv4 || f == model.IPv6 && s.IPv6 {
			want = Rules(s, f, k.random[f])
		} else if !look(k.backend).ours {
			continue
		}
		n, limits, err := c.ensure(want)
		r.Changes += n
		r.Limits = append(r.Limits, limits...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f, err))
		}
	}
	r.Err = errors.Join(errs...)
	return r
}

// settle finds the back-end, once, and takes away what an earlier run left in the other.
func (k *Keeper) settle(s Spec) error {
	if k.backend != "" && k.asked == s.Backend {
		return nil
	}
	nft, legacy := look(NFT), look(Legacy)
	b, other := s.Backend, legacy
	if b == Auto || b == "" {
		var err error
		if b, err = choose(nft, legacy); err != nil {
			return err
		}
	}
	left := Legacy
	if b == Legacy {
		left, other = NFT, nft
	}
	if other.ours {
		if _, err := removeFrom(left); err != nil {
			return fmt.Errorf("chains that an earlier run left in the back-end %s: %w", left, err)
		}
	}
	k.backend, k.asked = b, s.Backend
	k.tools, k.random = map[model.Family]*chains{}, map[model.Family]bool{}
	return nil
}

func (k *Keeper) family(f model.Family) (*chains, error) {
	if c := k.tools[f]; c != nil {
		return c, nil
	}
	t, err := open(k.backend, f)
	if err != nil {
		return nil, err
	}
	k.tools[f], k.random[f] = newChains(t), t.HasRandomFully()
	return k.tools[f], nil
}

// Remove takes all our chains away, from both back-ends and families, in the network namespace of the calling thread, and
// returns how many there were.
func Remove() (int, error) {
	n := 0
	var errs []error
	for _, b := range []Backend{NFT, Legacy} {
		if !look(b).ours {
			continue
		}
		removed, err := removeFrom(b)
		n += removed
		if err != nil {
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}

func removeFrom(b Backend) (int, error) {
	n := 0
	var errs []error
	for _, f := range model.Families {
		t, err := open(b, f)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed, err := removeAll(t)
		n += removed
		if err != nil {
			errs = append(errs, fmt.Errorf("back-end %s, %s: %w", b, f, err))
		}
	}
	return n, errors.Join(errs...)
}

// removeAll takes all our chains of one family away, and returns how many there were.
func removeAll(t *iptables.IPTables) (int, error) {
	c := newChains(t)
	n := 0
	var errs []error
	for _, place := range places {
		changes, err := c.remove(place)
		if changes > 0 {
			n++
		}
		if err != nil && !unknownToKernel(err) {
			errs = append(errs, fmt.Errorf("table %s, chain %s: %w", place.Table, place.Name, err))
		}
	}
	return n, errors.Join(errs...)
}
