// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
)

// dataplane is what the endpoint manager does to the kernel, done.
type dataplane struct {
	set      *maps.Set
	attacher *attach.Attacher

	owners  map[int]counted // by interface index: whose counters are to be kept when it goes
	retired *dropTotals     // drops of interfaces that have gone

	promotions promotions
}

func newDataplane(cfg *config.Config, set *maps.Set, feats *features.Set, log *logrus.Entry) (*dataplane, error) {
	attacher, err := attach.New(attach.Options{Root: cfg.BPFFSRoot, Maps: set.Raw, Type: attach.Type(cfg.AttachType),
		Features: feats, Log: log})
	if err != nil {
		return nil, err
	}
	return &dataplane{set: set, attacher: attacher, owners: map[int]counted{}, retired: newDropTotals(),
		promotions: promotions{waiting: map[int]endpoints.Attachment{}}}, nil
}

// Attach implements endpoints.Dataplane.
func (d *dataplane) Attach(a endpoints.Attachment) error {
	if a.Class == layout.ClassWEP {
		if err := forward(a.Name); err != nil {
			return err
		}
	}
	for _, hook := range variants.Hooks {
		if err := d.attacher.Attach(on(a), hook, preamble(a, hook)); err != nil {
			var refused *load.Error
			if errors.As(err, &refused) {
				return &endpoints.ProgramError{Variant: fmt.Sprintf("%s of %s_%s", refused.Object, variants.Direction(hook), a.Class),
					Err: err}
			}
			return err
		}
	}
	if d.attacher.CanPromote(a.Class) {
		d.promotions.waiting[a.Ifindex] = a
	}
	return nil
}

func on(a endpoints.Attachment) attach.Interface {
	return attach.Interface{Ifindex: a.Ifindex, Name: a.Name, Class: a.Class}
}

// preamble are the constants of the program on one hook of an interface.
func preamble(a endpoints.Attachment, hook layout.Hook) layout.PreambleCfg {
	cfg := layout.PreambleCfg{IfaceSlot: a.IfaceSlot, Flags: uint32(a.Flags), EPSlot: a.EPSlot, Hook: uint32(hook)}
	for _, family := range variants.Families {
		cfg.Policy[family] = a.Policy[uint32(hook)*2+uint32(family)]
		cfg.Main[family] = variants.Variant{Hook: hook, Class: a.Class, Family: family}.Slot(layout.SlotMain)
	}
	if a.Class == layout.ClassWEP {
		cfg.FailClosed = 1
	}
	return cfg
}

// forward lets the kernel's stack route what a pod sends and the datapath leaves to it. The setting
// dies with the interface, so there is nothing to restore.
func forward(name string) error {
	for _, family := range []string{"ipv4", "ipv6"} {
		file := filepath.Join("/proc/sys/net", family, "conf", name, "forwarding")
		old, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a family that the kernel or the interface does not have
		}
		if err != nil {
			return fmt.Errorf("read forwarding of %s: %w", name, err)
		}
		if strings.TrimSpace(string(old)) == "1" {
			continue
		}
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			return fmt.Errorf("switch forwarding on for %s: %w", name, err)
		}
	}
	return nil
}

// Detach implements endpoints.Dataplane.
func (d *dataplane) Detach(a endpoints.Attachment) error {
	delete(d.promotions.waiting, a.Ifindex)
	return d.attacher.Detach(on(a))
}

// Attached implements endpoints.Dataplane.
func (d *dataplane) Attached(a endpoints.Attachment) (bool, error) {
	states, err := d.attacher.Query(on(a))
	if err != nil {
		return false, err
	}
	for _, s := range states {
		if s.Mechanism == attach.None {
			return false, nil
		}
	}
	return true, nil
}

// Publish implements endpoints.Dataplane.
func (d *dataplane) Publish(a endpoints.Attachment) error {
	v := layout.IfaceValue{Flags: uint32(a.Flags), IfaceSlot: a.IfaceSlot, EPSlot: a.EPSlot, Class: uint8(a.Class), Policy: a.Policy}
	copy(v.Name[:len(v.Name)-1], a.Name)
	if old, found, err := d.set.Interfaces.Lookup(uint32(a.Ifindex)); err != nil || !found || old != v {
		if err := d.set.Interfaces.Put(uint32(a.Ifindex), v); err != nil {
			return err
		}
	}
	d.owners[a.Ifindex] = counted{a.IfaceSlot, a.Class}
	return nil
}

// Withdraw implements endpoints.Dataplane.
func (d *dataplane) Withdraw(ifindex int) error {
	delete(d.promotions.waiting, ifindex)
	if o, ok := d.owners[ifindex]; ok {
		// A snapshot may be reading the totals: it keeps the old ones.
		d.retired = d.retired.clone()
		d.retired.addSlot(d.set.Counters, o.slot, o.class)
		delete(d.owners, ifindex)
	}
	return d.set.Interfaces.Remove(uint32(ifindex))
}

// ZeroCounters implements endpoints.Dataplane.
func (d *dataplane) ZeroCounters(slot uint32) error { return d.set.Counters.Zero(slot) }

// known reads the interfaces that an earlier run left.
func (d *dataplane) known() ([]endpoints.Known, error) {
	var out []endpoints.Known
	err := d.set.Interfaces.All(func(index uint32, v layout.IfaceValue) bool {
		name, _, _ := strings.Cut(string(v.Name[:]), "\x00")
		out = append(out, endpoints.Known{Ifindex: int(index), Name: name, IfaceSlot: v.IfaceSlot, EPSlot: v.EPSlot,
			Ready: layout.IfaceFlag(v.Flags)&layout.IFFReady != 0})
		return true
	})
	return out, err
}

// counted lists the rows that drops are counted in.
func (d *dataplane) counted() []counted {
	out := make([]counted, 0, len(d.owners))
	for _, o := range d.owners {
		out = append(out, o)
	}
	return out
}
