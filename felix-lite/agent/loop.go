// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/routetable"
)

// inputs are the channels on which the world tells the loop of itself.
type inputs struct {
	objects chan model.Batch
	links   chan endpoints.LinkBatch
	files   chan files.Batch
	kernel  <-chan routetable.Event
}

// attachLimit is how many interfaces one pass attaches before the loop looks at its inputs again.
const attachLimit = 64

// start sets the goroutines going that read the world. One that can not go on ends the agent, so
// that whoever supervises it starts it again: the dataplane goes on meanwhile.
func (a *Agent) start(ctx context.Context, cancel context.CancelCauseFunc) inputs {
	in := inputs{objects: make(chan model.Batch, 4), links: make(chan endpoints.LinkBatch), files: make(chan files.Batch)}
	run := func(what string, f func() error) {
		go func() {
			if err := f(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w: %w", what, errSourceEnded, err))
			}
		}()
	}
	run("objects", func() error { return a.opts.Source.Run(ctx, in.objects) })
	monitor := endpoints.NewMonitor(&a.ns, a.cfg.ResyncInterval, a.log.WithField("component", "links"))
	run("links", func() error { return monitor.Run(ctx, in.links) })
	watcher := files.NewWatcher(filepath.Join(a.cfg.RunDirectory, "endpoints"), a.cfg.ResyncInterval,
		a.log.WithField("component", "endpoint-files"))
	run("endpoint files", func() error { return watcher.Run(ctx, in.files) })
	if err := a.kernel.Watch(ctx); err != nil {
		cancel(fmt.Errorf("kernel routes: %w: %w", errSourceEnded, err))
	}
	in.kernel = a.kernel.Events()
	run("netfilter", func() error { return a.netfilter.keeper.Run(ctx) })
	go serve(ctx, "health", a.cfg.HealthAddress, a.health.handler(), a.log)
	go serve(ctx, "metrics", a.cfg.MetricsAddress, a.metrics.handler(), a.log)
	return in
}

// loop takes in what there is, makes a pass, and sleeps until there is more or something is due.
func (a *Agent) loop(ctx context.Context, in inputs) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, errSourceEnded) {
				return cause
			}
			return nil
		case b := <-in.objects:
			a.onObjects(b)
		case b := <-in.links:
			a.onLinks(b)
		case b := <-in.files:
			a.onFiles(b)
		case e := <-in.kernel:
			a.kernel.HandleEvent(e)
		case r := <-a.sockets.Results():
			a.sockets.OnResult(r)
		case r := <-a.netfilter.keeper.Results():
			a.onNetfilter(r)
		case r := <-a.programs.loaded:
			a.programs.onLoaded(r)
		case <-timer.C:
		}
		a.takeMore(in)
		next := a.pass(ctx)
		timer.Reset(max(0, next.Sub(a.now())))
	}
}

// takeMore takes in what else is waiting, so that a burst costs one pass.
func (a *Agent) takeMore(in inputs) {
	for range 256 {
		select {
		case b := <-in.objects:
			a.onObjects(b)
		case b := <-in.links:
			a.onLinks(b)
		case b := <-in.files:
			a.onFiles(b)
		case e := <-in.kernel:
			a.kernel.HandleEvent(e)
		default:
			return
		}
	}
}

// pass brings the kernel nearer to what is wanted, in the order in which a packet may look at it,
// and returns when the next one is due.
func (a *Agent) pass(ctx context.Context) time.Time {
	a.timed("programs", func() { a.programs.ensure(ctx) })
	a.timed("resync", func() { a.resync(ctx) })
	a.timed("tunnel", func() { a.ensureTunnel() })
	a.timed("fallback", func() { a.ensureFallback() })
	more := false
	a.timed("interfaces", func() { more = a.endpoints.Apply(attachLimit) })
	a.routeWorkloads()
	if !more {
		a.allowPrune()
		a.programs.attached()
	}
	a.routeFallback()
	a.timed("tables", func() { a.applyTables(ctx) })
	a.timed("kernel", func() { a.applyKernel(ctx) })
	a.writeGlobals()
	a.timed("sockets", func() { a.sockets.Ensure(ctx, a.fallbackServes()) })
	a.endpoints.Settle(a.routed)
	a.timed("promotions", func() { a.promote() })
	a.timed("conntrack", func() { a.sweep() })
	a.publish()
	if more {
		return a.now()
	}
	return a.nextPass()
}

// timed measures a component's part of a pass; an idle one is not worth a sample.
func (a *Agent) timed(component string, f func()) {
	start := a.now()
	f()
	if d := a.now().Sub(start); d > 100*time.Microsecond {
		a.metrics.sync.WithLabelValues(component).Observe(d.Seconds())
	}
}

// nextPass is the earliest of all that is waiting.
func (a *Agent) nextPass() time.Time {
	now := a.now()
	next := now.Add(idlePass)
	consider := func(at time.Time, ok bool) {
		// What is due already was tried in this pass and held back: soon, but not at once.
		if at = later(at, now.Add(50*time.Millisecond)); ok && at.Before(next) {
			next = at
		}
	}
	consider(a.programs.retry.Waiting())
	consider(a.tunnel.retry.Waiting())
	consider(a.fallback.due(a.serving()))
	consider(a.sockets.Next())
	consider(a.endpoints.NextRetry())
	consider(a.tables.backends.NextRetry())
	consider(a.tables.frontends.NextRetry())
	consider(a.tables.routes.NextRetry())
	consider(a.kernel.NextRetry())
	consider(a.dataplane.promotions.due())
	consider(a.sweeper.Next(), true)
	consider(a.resyncAt, !a.resyncAt.IsZero())
	consider(a.state.due())
	return next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
