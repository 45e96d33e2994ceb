// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Options of a Sweeper. Tables and Clock are required.
type Options struct {
	// Tables returns the open maps; asked at the start of each sweep, because a resized table is another map.
	Tables func() Tables
	Clock  Clock
	// Interval from the start of one sweep to the start of the next; 10 s if zero. It is an eighth of that, though
	// not under a second, while a table is more than 80 % full.
	Interval time.Duration
	// Budget is the longest that one Step works; 20 ms if zero.
	Budget time.Duration
	// Pause between two steps of a sweep, for the loop's other work; four times Budget if zero.
	Pause time.Duration
	// OrphanGrace is how old an entry without its twin may become: the datapath makes the two one after the other.
	// 10 s if zero.
	OrphanGrace time.Duration
	// OrphanSweeps: living entries are asked for their twins in one of so many sweeps, because that is most of a
	// sweep's cost; 4 if zero.
	OrphanSweeps int
	// Now is the loop's clock; time.Now if nil.
	Now func() time.Time
}

// Sweeper removes dead entries. It is driven by one loop: call Step at Next.
type Sweeper struct {
	opts     Options
	jobs     []job // of the sweep that is going on; the first is being worked at
	current  Stats
	last     Stats
	sweeps   int // started so far
	next     time.Time
	pressure bool
}

// pressureAt is how full a table is, in percent, when it is swept more often.
const pressureAt = 80

// NewSweeper makes a sweeper; the first sweep is due at once.
func NewSweeper(opts Options) *Sweeper {
	if opts.Interval <= 0 {
		opts.Interval = 10 * time.Second
	}
	if opts.Budget <= 0 {
		opts.Budget = 20 * time.Millisecond
	}
	if opts.Pause <= 0 {
		opts.Pause = 4 * opts.Budget
	}
	if opts.OrphanGrace <= 0 {
		opts.OrphanGrace = 10 * time.Second
	}
	if opts.OrphanSweeps <= 0 {
		opts.OrphanSweeps = 4
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Sweeper{opts: opts, next: opts.Now()}
}

// Next is when Step is due.
func (s *Sweeper) Next() time.Time { return s.next }

// Last has the statistics of the last finished sweep; Finished is zero if there was none.
func (s *Sweeper) Last() Stats { return s.last }

// Pressure tells whether a table was more than 80 % full at the end of the last sweep.
func (s *Sweeper) Pressure() bool { return s.pressure }

// Step goes on with the sweep, or starts one, for at most about the budget. It returns true when the sweep is finished.
// An error (one that is not "gone meanwhile") gives up the table it came from, not the others.
func (s *Sweeper) Step() (finished bool, err error) {
	start := s.opts.Now()
	now, err := s.opts.Clock.now()
	if err != nil {
		s.next = start.Add(s.opts.Interval)
		return false, err
	}
	if len(s.jobs) == 0 {
		s.jobs = s.newJobs()
		s.current = newStats(start)
	}
	var errs []error
	for len(s.jobs) > 0 {
		done, err := s.jobs[0].piece(now, &s.current)
		if err != nil {
			s.current.Errors++
			errs = append(errs, err)
		}
		if done || err != nil {
			s.current.Tables = append(s.current.Tables, s.jobs[0].fill())
			s.jobs = s.jobs[1:]
		}
		if s.opts.Now().Sub(start) >= s.opts.Budget {
			break
		}
	}
	end := s.opts.Now()
	s.current.Steps++
	s.current.Busy += end.Sub(start)
	s.next = end.Add(s.opts.Pause)
	if len(s.jobs) == 0 {
		s.finish(end)
		finished = true
	}
	return finished, errors.Join(errs...)
}

func (s *Sweeper) finish(end time.Time) {
	s.current.Finished = end
	s.last = s.current
	s.pressure = false
	for _, t := range s.last.Tables {
		if uint64(t.Entries)*100 > uint64(t.MaxEntries)*pressureAt {
			s.pressure = true
		}
	}
	interval := s.opts.Interval
	if s.pressure {
		interval = min(interval, max(interval/8, time.Second))
	}
	s.next = s.last.Started.Add(interval)
	if s.next.Before(end) {
		s.next = end.Add(s.opts.Pause)
	}
}

func (s *Sweeper) newJobs() []job {
	t := s.opts.Tables()
	orphans := s.sweeps%s.opts.OrphanSweeps == 0
	s.sweeps++
	jobs := jobsOf(family[layout.AddrV4]{t.V4, t.V4Half}, s.opts.OrphanGrace, orphans)
	return append(jobs, jobsOf(family[layout.AddrV6]{t.V6, t.V6Half}, s.opts.OrphanGrace, orphans)...)
}

func jobsOf[A layout.Address](f family[A], grace time.Duration, orphans bool) []job {
	var out []job
	for _, t := range f.tables() {
		out = append(out, &tableJob[A]{table: t, w: newWalker[A](t.m), grace: grace, orphans: orphans})
	}
	return out
}

// job is the sweep of one table.
type job interface {
	// piece does a small part, a batch of entries.
	piece(now ticks, st *Stats) (done bool, err error)
	// fill tells how full the table was left.
	fill() TableFill
}

type tableJob[A layout.Address] struct {
	table   tableOf[A]
	w       *walker[A]
	grace   time.Duration
	orphans bool // look for living entries without their twins
	live    int
}

func (j *tableJob[A]) piece(now ticks, st *Stats) (bool, error) {
	keys, values, err := j.w.read()
	if err != nil {
		return true, err
	}
	for i := range keys {
		st.Scanned++
		if err := j.judge(&keys[i], &values[i], now, st); err != nil {
			return true, err
		}
	}
	return j.w.done, nil
}

func (j *tableJob[A]) fill() TableFill {
	return TableFill{Name: j.table.name(), Entries: j.live, MaxEntries: int(j.table.m.MaxEntries())}
}

// judge decides about one entry, together with its twin if it has one.
func (j *tableJob[A]) judge(k *layout.CTKey[A], v *layout.CTValue[A], now ticks, st *Stats) error {
	dead := now.dead(v.LastSeen, v.Timeout)
	tk, pair := twinKey(k, v)
	if !dead && !(pair && j.orphans) {
		j.keep(k, v, st)
		return nil
	}
	if !pair {
		return j.drop(k, v, st)
	}
	var tv layout.CTValue[A]
	in, err := j.table.family.twin(k, v, &tk, &tv)
	switch {
	case err != nil:
		return err
	case in == nil && !dead && now.seconds(now.age(v.Created)) <= j.grace.Seconds():
		j.keep(k, v, st)
		return nil
	case in == nil:
		if !dead {
			st.Orphans++
		}
		return j.drop(k, v, st)
	case !dead:
		j.keep(k, v, st)
		return nil
	case !now.dead(tv.LastSeen, tv.Timeout):
		st.KeptByTwin++
		j.keep(k, v, st)
		return nil
	}
	// Both are dead. The backend's side goes first: while only the client's is left a new packet finds it dead and
	// makes both anew, with a last_seen that saves them.
	dropTwin := func() error {
		r, err := removeUnchanged(in, &tk, tv.LastSeen)
		st.count(r, tv.TCPState)
		return err
	}
	if layout.CTType(v.Type) == layout.CTNATRev {
		return errors.Join(j.drop(k, v, st), dropTwin())
	}
	return errors.Join(dropTwin(), j.drop(k, v, st))
}

func (j *tableJob[A]) keep(k *layout.CTKey[A], v *layout.CTValue[A], st *Stats) {
	j.live++
	if layout.CTType(v.Type) == layout.CTNATFwd && layout.CTFlag(v.Flags)&layout.CTFHostOrigin != 0 {
		st.HostFlows++
	}
	var a A
	st.live[a.Family()][k.Proto]++
}

func (j *tableJob[A]) drop(k *layout.CTKey[A], v *layout.CTValue[A], st *Stats) error {
	r, err := removeUnchanged(j.table.m, k, v.LastSeen)
	st.count(r, v.TCPState)
	if r == touched {
		j.keep(k, v, st)
	}
	return err
}

// twin finds the other entry of a pair. What stands under the twin's key but belongs to another flow is no twin.
func (f family[A]) twin(k *layout.CTKey[A], v *layout.CTValue[A], tk *layout.CTKey[A], tv *layout.CTValue[A]) (*ebpf.Map, error) {
	in, err := f.lookup(tk, tv)
	if in == nil || err != nil {
		return nil, err
	}
	if back, pair := twinKey(tk, tv); !pair || back != *k || tv.Type == v.Type {
		return nil, nil
	}
	return in, nil
}
