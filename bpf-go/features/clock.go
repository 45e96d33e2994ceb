// SPDX-License-Identifier: Apache-2.0

package features

import (
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

// Clock reads the kernel's jiffies, which the datapath's times are in. User space has no other way
// to them than to let a program read them.
type Clock struct {
	// HZ is how many jiffies a second has.
	HZ uint32

	mu      sync.Mutex
	program *ebpf.Program
	out     *ebpf.Map
}

// rates are the values that a kernel can be configured with.
var rates = []uint32{100, 250, 300, 1000}

// OpenClock loads the program and finds out the clock's rate.
func OpenClock() (*Clock, error) {
	spec, err := objects.Spec(objects.Clock)
	if err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the memlock limit: %w", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", objects.Clock, err)
	}
	defer collection.Close()
	c := &Clock{program: collection.DetachProgram("cali_clock"), out: collection.DetachMap("cali_clock_out")}
	if c.program == nil || c.out == nil {
		c.Close()
		return nil, fmt.Errorf("load %s: program or map is missing", objects.Clock)
	}
	if err := c.findRate(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close frees the program.
func (c *Clock) Close() {
	c.program.Close()
	c.out.Close()
}

// Jiffies is the time now.
func (c *Clock) Jiffies() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.program.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
		return 0, fmt.Errorf("read jiffies: %w", err)
	}
	var now uint64
	if err := c.out.Lookup(uint32(0), &now); err != nil {
		return 0, fmt.Errorf("read jiffies: %w", err)
	}
	return now, nil
}

// ToJiffies converts a duration; one that is not zero becomes at least one jiffy.
func (c *Clock) ToJiffies(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return max(1, uint64(d.Seconds()*float64(c.HZ)))
}

// findRate asks for the resolution of the coarse clock, which is one tick (KTIME_LOW_RES): exact and
// instant, where counting jiffies against the time errs on a busy machine.
func (c *Clock) findRate() error {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("resolution of the coarse clock: %w", err)
	}
	if tick.Nano() <= 0 {
		return fmt.Errorf("resolution of the coarse clock is %d ns", tick.Nano())
	}
	c.HZ = nearest(1e9 / float64(tick.Nano()))
	return nil
}

// nearest is the rate that a measured one must be, by ratio.
func nearest(measured float64) uint32 {
	best, distance := rates[0], 0.0
	for i, r := range rates {
		d := measured / float64(r)
		if d < 1 {
			d = 1 / d
		}
		if i == 0 || d < distance {
			best, distance = r, d
		}
	}
	return best
}
