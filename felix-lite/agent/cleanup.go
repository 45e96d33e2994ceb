// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/attach"
	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/felix-lite/hostnat"
	"github.com/felix-lite/felix-lite/felix-lite/netfilter"
	"github.com/felix-lite/felix-lite/internal/statefile"
	"github.com/felix-lite/felix-lite/routetable"
)

// CleanupOptions say where to clean.
type CleanupOptions struct {
	BPFFSRoot    string
	RunDirectory string
}

// Cleanup removes from this network namespace and below the bpffs root everything that an agent has
// put there, and returns a line for each kind of thing. It goes on after an error, may be run again,
// and touches nothing that is not ours: pins without the owner marker are refused.
func Cleanup(ctx context.Context, o CleanupOptions) ([]string, error) {
	var report []string
	var errs []error
	note := func(what string, n int, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		report = append(report, fmt.Sprintf("%-12s %d removed", what, n))
	}
	if _, err := os.Stat(o.RunDirectory); err == nil {
		held, err := lock(o.RunDirectory, 0)
		if err != nil {
			return nil, fmt.Errorf("stop the agent first: %w", err)
		}
		defer held.Close()
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()

	n, err := detachAll(h, o.BPFFSRoot)
	if errors.Is(err, maps.ErrForeign) {
		return nil, err
	}
	note("interfaces", n, err)
	n, err = removeRoutes(ctx)
	note("routes", n, err)
	n, err = netfilter.Remove(ctx)
	note("chains", n, err)
	removed, err := hostnat.Remove(h)
	note("host pair", count(removed), err)
	removed, err = endpoints.RemoveTunnel(h)
	note("tunnels", count(removed), err)
	n, err = detachSockets(o.BPFFSRoot)
	note("hooks", n, err)
	n, err = maps.Unpin(o.BPFFSRoot)
	note("pins", n, err)
	n, err = removeFiles(o.RunDirectory)
	note("files", n, err)
	return report, errors.Join(errs...)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// detachSockets takes our programs at connect time off their cgroup.
func detachSockets(root string) (int, error) {
	links, err := attach.CgroupLinks(root)
	n := 0
	errs := []error{err}
	for _, l := range links {
		if err := attach.DetachCgroup(root, l.Hook); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// detachAll takes our programs off every interface of the namespace.
func detachAll(h *netlink.Handle, root string) (int, error) {
	if err := maps.CheckOwner(root); err != nil {
		return 0, err
	}
	feats, err := features.Probe(nil)
	if err != nil {
		return 0, err
	}
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	a, err := attach.New(attach.Options{Root: root, Type: attach.Auto, Features: feats, Log: quiet})
	if err != nil {
		return 0, err
	}
	defer a.Close()
	links, err := h.LinkList()
	if err != nil {
		return 0, fmt.Errorf("list links: %w", err)
	}
	n := 0
	var errs []error
	for _, l := range links {
		on := attach.Interface{Ifindex: l.Attrs().Index, Name: l.Attrs().Name}
		states, err := a.Query(on)
		if errors.Is(err, attach.ErrForeign) {
			continue // somebody else's filter stands there, so ours does not
		}
		if err == nil && states[layout.HookIngress].Mechanism == attach.None && states[layout.HookEgress].Mechanism == attach.None {
			continue
		}
		if err == nil {
			err = a.Detach(on)
		}
		if err != nil && !errors.Is(err, attach.ErrInterfaceGone) {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// removeRoutes makes the empty set of routes and neighbours the desired one.
func removeRoutes(ctx context.Context) (int, error) {
	rt, err := routetable.New(routetable.Options{})
	if err != nil {
		return 0, err
	}
	defer rt.Close()
	if _, err := rt.Resync(ctx); err != nil {
		return 0, err
	}
	rt.AllowPrune()
	r := rt.Apply(ctx)
	return r.Deleted, r.Err
}

// removeFiles removes what the agent wrote into the run directory; endpoint files are the CNI plugin's.
func removeFiles(dir string) (int, error) {
	statuses, err := filepath.Glob(filepath.Join(dir, "endpoint-status", "*.json"))
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, file := range append(statuses, filepath.Join(dir, statefile.Name), filepath.Join(dir, "agent.lock")) {
		switch err := os.Remove(file); {
		case err == nil:
			n++
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}
