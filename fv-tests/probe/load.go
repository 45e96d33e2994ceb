// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// load is a set of workers that repeat an attempt until they are stopped.
type load struct {
	args LoadArgs
	tally
	stop chan struct{}
	done sync.WaitGroup
}

// openBytes is the frame that open connections exchange: small, so that many can be open.
const openBytes = 256

func (s *server) startLoad(ctx context.Context, args LoadArgs) error {
	if args.Timeout == 0 {
		args.Timeout = 5 * time.Second
	}
	l := &load{args: args, stop: make(chan struct{})}
	s.mu.Lock()
	_, taken := s.loads[args.ID]
	if !taken {
		s.loads[args.ID] = l
	}
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("load %q runs already", args.ID)
	}
	var err error
	switch args.Kind {
	case LoadTCPConnect:
		l.start(func() (func() (observation, error), error) { return l.connectTCP, nil })
	case LoadUDPNew:
		l.start(func() (func() (observation, error), error) { return l.newUDP, nil })
	case LoadTCPOpen:
		err = l.start(func() (func() (observation, error), error) { return l.openTCP(ctx) })
	case LoadUDPOpen:
		err = l.start(l.openUDP)
	default:
		err = fmt.Errorf("unknown kind of load %q", args.Kind)
	}
	if err != nil {
		_, _ = s.stopLoad(args.ID)
	}
	return err
}

// start prepares every worker and then lets all run, spread over the interval.
func (l *load) start(prepare func() (func() (observation, error), error)) error {
	var work []func() (observation, error)
	for i := range l.args.Workers {
		attempt, err := prepare()
		if err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
		work = append(work, attempt)
	}
	for i, attempt := range work {
		delay := l.args.Interval * time.Duration(i) / time.Duration(len(work))
		l.done.Go(func() { l.repeat(attempt, delay) })
	}
	return nil
}

func (l *load) repeat(attempt func() (observation, error), delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-timer.C:
		}
		start := time.Now()
		o, err := attempt()
		took := time.Since(start)
		l.add(o, err, took)
		var broken *brokenError
		if errors.As(err, &broken) {
			return
		}
		timer.Reset(max(l.args.Interval-took, time.Millisecond))
	}
}

// brokenError ends a worker whose connection is gone: it is counted once, not at every interval.
type brokenError struct{ err error }

func (b *brokenError) Error() string { return "open connection: " + b.err.Error() }
func (b *brokenError) Unwrap() error { return b.err }

func (l *load) connectTCP() (observation, error) {
	s, err := dialTCP(context.Background(), TCPArgs{Address: l.args.Address}, l.args.Timeout)
	if err != nil {
		return observation{}, err
	}
	defer s.conn.Close()
	if err := s.exchange(openBytes, l.args.Timeout); err != nil {
		return s.seen, err
	}
	return s.seen, s.finish(l.args.Timeout)
}

func (l *load) newUDP() (observation, error) {
	s, err := openUDP(UDPArgs{Address: l.args.Address, Connected: !l.args.Unconnected})
	if err != nil {
		return observation{}, err
	}
	defer s.conn.Close()
	return s.seen, s.identify(l.args.Timeout)
}

func (l *load) openTCP(ctx context.Context) (func() (observation, error), error) {
	s, err := dialTCP(ctx, TCPArgs{Address: l.args.Address}, l.args.Timeout)
	if err != nil {
		return nil, err
	}
	go func() {
		<-l.stop
		l.done.Wait()
		s.conn.Close()
	}()
	return func() (observation, error) {
		if err := s.exchange(openBytes, l.args.Timeout); err != nil {
			return s.seen, &brokenError{err}
		}
		return s.seen, nil
	}, nil
}

func (l *load) openUDP() (func() (observation, error), error) {
	s, err := openUDP(UDPArgs{Address: l.args.Address, Connected: !l.args.Unconnected})
	if err != nil {
		return nil, err
	}
	if err := s.identify(l.args.Timeout); err != nil {
		s.conn.Close()
		return nil, err
	}
	go func() {
		<-l.stop
		l.done.Wait()
		s.conn.Close()
	}()
	return func() (observation, error) { return s.seen, s.echo(openBytes, l.args.Timeout) }, nil
}

func (s *server) loadStats(id string) (any, error) {
	s.mu.Lock()
	l := s.loads[id]
	s.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no load %q", id)
	}
	return l.result(), nil
}

func (s *server) stopLoad(id string) (any, error) {
	s.mu.Lock()
	l := s.loads[id]
	delete(s.loads, id)
	s.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no load %q", id)
	}
	close(l.stop)
	l.done.Wait()
	return l.result(), nil
}
