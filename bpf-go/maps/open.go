// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// ownerName is the pin that tells our maps from another dataplane's.
	ownerName = "felix_lite_owner"
	// ourPrefix is what all our pins' names start with, as do those of another dataplane.
	ourPrefix = "cali_"
	// oldSuffix and newSuffix mark a map that was moved aside, and one that is being filled. bpffs
	// refuses dots in names.
	oldSuffix = "_old"
	newSuffix = "_new"
)

var (
	// ErrForeign means that there are `cali_*` pins without our owner marker: another dataplane's.
	ErrForeign = errors.New("maps of another dataplane are pinned here")
	// ErrNotBPFFS means that the root is not on a BPF file system.
	ErrNotBPFFS = errors.New("not a bpf file system")
	// ErrNoMaps means that no agent has made maps below this root.
	ErrNoMaps = errors.New("no felix-lite maps are pinned here")
)

// Open creates and pins what is missing below root and adopts what is there. A map of another size
// is replaced by one of the wanted size with the same content (see FinishResize); one of another
// layout is moved aside to <name>_old. The error wraps ErrForeign if the pins are not ours, and
// ErrNotBPFFS if root is not on a bpffs.
func Open(root string, o Options) (*Set, error) {
	s, err := newSet(root, o)
	if err != nil {
		return nil, err
	}
	o.Sizes.apply(s.specs)
	if err := rlimit.RemoveMemlock(); err != nil { // limits maps below Linux 5.11
		return nil, fmt.Errorf("lift the memlock limit: %w", err)
	}
	if err := checkBPFFS(root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of pins: %w", err)
	}
	if err := s.claim(); err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range s.specNames() {
		m, err := s.adopt(name)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		if m == nil {
			missing = append(missing, name)
		} else {
			s.open[name] = m
		}
	}
	if err := s.createAll(missing); err != nil {
		s.Close()
		return nil, err
	}
	s.bind()
	return s, nil
}

// OpenExisting opens the maps that an agent left below root, creating and changing nothing. The
// error wraps ErrNoMaps if there are none.
func OpenExisting(root string) (*Set, error) { return openExisting(root, nil) }

// OpenReadOnly is OpenExisting with handles that can not write. Requires at least Linux 5.2.
func OpenReadOnly(root string) (*Set, error) {
	return openExisting(root, &ebpf.LoadPinOptions{ReadOnly: true})
}

func openExisting(root string, o *ebpf.LoadPinOptions) (*Set, error) {
	s, err := newSet(root, Options{})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.pin(ownerName)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w: is --bpffs-root right, and has an agent run?", s.dir, ErrNoMaps)
		}
		return nil, err
	}
	for _, name := range s.specNames() {
		m, err := ebpf.LoadPinnedMap(s.pin(name), o)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		s.open[name] = m
		if !sameLayout(s.specs[name], m) {
			s.Close()
			return nil, fmt.Errorf("map %s: it is %v, this build knows it as %s: use the agent's own build",
				name, m, describe(s.specs[name]))
		}
	}
	s.bind()
	return s, nil
}

func newSet(root string, o Options) (*Set, error) {
	specs, err := loadSpecs()
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	return &Set{
		dir: mapsDir(root), log: o.Log.WithField("component", "maps"), specs: specs,
		open: map[string]*ebpf.Map{}, noBatch: o.NoBatch,
	}, nil
}

func (s *Set) specNames() []string {
	names := make([]string, 0, len(s.specs))
	for name := range s.specs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func checkBPFFS(root string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return fmt.Errorf("bpffs root %s: %w", root, err)
	}
	if int64(st.Type) != unix.BPF_FS_MAGIC {
		return fmt.Errorf("bpffs root %s: %w: mount one there (mount -t bpf bpf %s)", root, ErrNotBPFFS, root)
	}
	return nil
}

// claim pins the owner marker, or finds it, or refuses.
func (s *Set) claim() error {
	if _, err := os.Stat(s.pin(ownerName)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var foreign []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ourPrefix) {
			foreign = append(foreign, e.Name())
		}
	}
	if len(foreign) > 0 {
		const most = 5
		list := strings.Join(foreign[:min(most, len(foreign))], ", ")
		if len(foreign) > most {
			list += fmt.Sprintf(" and %d more", len(foreign)-most)
		}
		return fmt.Errorf("%s has %s without the marker %s: %w: stop that dataplane and remove its pins, "+
			"or give this one another bpffs root", s.dir, list, ownerName, ErrForeign)
	}
	marker, err := ebpf.NewMap(&ebpf.MapSpec{Name: ownerName, Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("owner marker: %w", err)
	}
	defer marker.Close()
	if err := marker.Pin(s.pin(ownerName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("owner marker: %w", err)
	}
	return nil
}

// adopt opens a map that is there, in its new size if that has changed; nil means that it is to be created.
func (s *Set) adopt(name string) (*ebpf.Map, error) {
	spec := s.specs[name]
	// What an agent that died in the middle of a resize left half filled is worth nothing.
	if err := removePin(s.pin(name + newSuffix)); err != nil {
		return nil, err
	}
	have, err := ebpf.LoadPinnedMap(s.pin(name), nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !sameLayout(spec, have):
		defer have.Close()
		return nil, s.moveAside(name, have)
	case have.MaxEntries() == spec.MaxEntries:
		return have, nil
	case !resizable(name):
		// Programs in use hold this map; another size would part them from it.
		return have, nil
	}
	created, err := s.resize(name, have)
	if err != nil {
		// A node with the wrong table size beats a node without an agent.
		s.log.WithFields(logrus.Fields{"map": name, "entries": have.MaxEntries()}).WithError(err).
			Error("map keeps its old size")
		return have, nil
	}
	return created, nil
}

// createAll makes and pins maps, side by side: the kernel fills large tables with their free entries, which
// takes half a second or more of one CPU. The largest are begun with.
func (s *Set) createAll(names []string) error {
	size := func(name string) uint64 {
		spec := s.specs[name]
		return uint64(spec.MaxEntries) * uint64(spec.KeySize+spec.ValueSize)
	}
	sort.Slice(names, func(i, j int) bool { return size(names[i]) > size(names[j]) })
	created := make([]*ebpf.Map, len(names))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		group.Go(func() (err error) {
			if created[i], err = s.create(name); err != nil {
				return fmt.Errorf("map %s: %w", name, err)
			}
			return nil
		})
	}
	err := group.Wait()
	for i, m := range created {
		if m != nil {
			s.open[names[i]] = m
		}
	}
	return err
}

func (s *Set) create(name string) (*ebpf.Map, error) {
	m, err := s.make(name)
	if err != nil {
		return nil, err
	}
	if err := m.Pin(s.pin(name)); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin: %w", err)
	}
	return m, nil
}

// make creates a map without a pin.
func (s *Set) make(name string) (*ebpf.Map, error) {
	spec := s.specs[name].Copy()
	spec.Pinning = ebpf.PinNone
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create %s with %d entries: %w", describe(spec), spec.MaxEntries, err)
	}
	return m, nil
}

// moveAside keeps a map of another layout under another name, for whoever wants to look.
func (s *Set) moveAside(name string, have *ebpf.Map) error {
	aside := s.pin(name + oldSuffix)
	if err := removePin(aside); err != nil {
		return err
	}
	if err := os.Rename(s.pin(name), aside); err != nil {
		return fmt.Errorf("move the old layout aside: %w", err)
	}
	s.log.WithFields(logrus.Fields{"map": name, "old": have.String(), "new": describe(s.specs[name]), "kept": aside}).
		Warn("map has another layout: moved aside and started empty")
	return nil
}

func sameLayout(spec *ebpf.MapSpec, m *ebpf.Map) bool {
	return m.Type() == spec.Type && m.KeySize() == spec.KeySize && m.ValueSize() == spec.ValueSize &&
		m.Flags()&^readOnlyFlags == spec.Flags&^readOnlyFlags
}

// readOnlyFlags say how a handle was opened, not what the map is.
const readOnlyFlags = unix.BPF_F_RDONLY | unix.BPF_F_WRONLY

func removePin(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pin %s: %w", filepath.Base(path), err)
	}
	return nil
}
