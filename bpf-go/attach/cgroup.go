// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
)

// ErrNotCgroup means that a path is no directory of a cgroup2 hierarchy.
var ErrNotCgroup = errors.New("not a cgroup2 directory")

// cgroupPinPrefix starts the names of cgroup links' pins.
const cgroupPinPrefix = "ctlb_"

// Cgroup attaches programs to one cgroup and so to every process in it and below, by links that are pinned
// beside those of the interfaces. Programs of others on the same hooks run too. Requires at least Linux 5.7.
type Cgroup struct {
	path  string
	id    uint64
	links string
}

// NewCgroup checks that path is a cgroup2 directory; the error wraps ErrNotCgroup if it is not. root is the
// node's bpffs root.
func NewCgroup(path, root string) (*Cgroup, error) {
	id, err := CgroupID(path)
	if err != nil {
		return nil, err
	}
	c := &Cgroup{path: path, id: id, links: maps.LinksDir(root)}
	if err := os.MkdirAll(c.links, 0o700); err != nil {
		return nil, fmt.Errorf("directory of link pins: %w", err)
	}
	return c, nil
}

// CgroupID is what the kernel calls the cgroup at path: the number of its inode.
func CgroupID(path string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("cgroup root %s: %w", path, err)
	}
	if int64(fs.Type) != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("cgroup root %s: %w", path, ErrNotCgroup)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("cgroup root %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, fmt.Errorf("cgroup root %s: %w", path, ErrNotCgroup)
	}
	return st.Ino, nil
}

// Path is the cgroup's directory.
func (c *Cgroup) Path() string { return c.path }

func (c *Cgroup) pin(hook string) string { return filepath.Join(c.links, cgroupPinPrefix+hook) }

// Attach puts a program on a hook: in place of ours where one stands, without a moment in between. anew is
// true where none stood. On an error what was attached stays.
func (c *Cgroup) Attach(hook load.CgroupHook, program *ebpf.Program) (anew bool, err error) {
	current, err := c.live(hook)
	if err != nil {
		return false, fmt.Errorf("attach %s to %s: %w", hook.Name, c.path, err)
	}
	if current != nil {
		defer current.Close()
		if err := current.Update(program); err != nil {
			return false, fmt.Errorf("attach %s to %s: update link: %w", hook.Name, c.path, err)
		}
		return false, nil
	}
	dir, err := os.Open(c.path)
	if err != nil {
		return false, fmt.Errorf("attach %s: %w", hook.Name, err)
	}
	defer dir.Close()
	created, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: program, Attach: hook.Attach})
	if err != nil {
		return false, fmt.Errorf("attach %s to %s: %w", hook.Name, c.path, err)
	}
	defer created.Close() // without its pin the link ends here, and the hook is as it was
	// One that stands on another cgroup, or on one that is gone, makes room.
	if err := dropLink(c.pin(hook.Name)); err != nil {
		return false, fmt.Errorf("attach %s to %s: remove the link to another cgroup: %w", hook.Name, c.path, err)
	}
	if err := created.Pin(c.pin(hook.Name)); err != nil {
		return false, fmt.Errorf("attach %s to %s: pin link: %w", hook.Name, c.path, err)
	}
	return true, nil
}

// live opens a hook's pinned link if it stands on this cgroup; nil if there is none.
func (c *Cgroup) live(hook load.CgroupHook) (link.Link, error) {
	l, err := link.LoadPinnedLink(c.pin(hook.Name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, badPin(c.pin(hook.Name), err)
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, err
	}
	if g := info.Cgroup(); g == nil || g.CgroupId != c.id || ebpf.AttachType(g.AttachType) != hook.Attach {
		l.Close()
		return nil, nil
	}
	return l, nil
}

func badPin(pin string, err error) error {
	return fmt.Errorf("link pin %s: %w: if it is no link, remove it", pin, err)
}

// CgroupLink is one pinned link of a program at connect time.
type CgroupLink struct {
	Hook     string
	CgroupID uint64 // 0: the cgroup is gone
	Program  ebpf.ProgramID
	LinkID   link.ID
}

// CgroupLinks lists the pinned links below a bpffs root, whichever cgroup they stand on. On an error, which names the
// pins that can not be read, the list has the others.
func CgroupLinks(root string) ([]CgroupLink, error) {
	entries, err := os.ReadDir(maps.LinksDir(root))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory of link pins: %w", err)
	}
	var links []CgroupLink
	var errs []error
	for _, e := range entries {
		hook, ours := strings.CutPrefix(e.Name(), cgroupPinPrefix)
		if !ours {
			continue
		}
		found, err := cgroupLink(filepath.Join(maps.LinksDir(root), e.Name()), hook)
		switch {
		case err == nil:
			links = append(links, found)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return links, errors.Join(errs...)
}

func cgroupLink(pin, hook string) (CgroupLink, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return CgroupLink{}, badPin(pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return CgroupLink{}, fmt.Errorf("link pin %s: %w", pin, err)
	}
	found := CgroupLink{Hook: hook, Program: info.Program, LinkID: info.ID}
	if g := info.Cgroup(); g != nil {
		found.CgroupID = g.CgroupId
	}
	return found, nil
}

// DetachCgroup takes one hook's program off, whichever cgroup it stands on. That there is none is no error.
func DetachCgroup(root, hook string) error {
	if err := dropLink(filepath.Join(maps.LinksDir(root), cgroupPinPrefix+hook)); err != nil {
		return fmt.Errorf("detach %s: %w", hook, err)
	}
	return nil
}
