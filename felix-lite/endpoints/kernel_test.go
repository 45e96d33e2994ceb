// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

// follow runs a monitor and keeps what it has told.
type follower struct {
	t        *testing.T
	ch       chan LinkBatch
	links    map[int]Link
	defaults []int
}

func follow(t *testing.T, ns netns.NsHandle, resync time.Duration) *follower {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	f := &follower{t: t, ch: make(chan LinkBatch), links: map[int]Link{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewMonitor(&ns, resync, logrus.NewEntry(log)).Run(ctx, f.ch) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("monitor: %v", err)
		}
	})
	return f
}

// until takes batches in until the condition holds.
func (f *follower) until(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case b := <-f.ch:
			if b.Full {
				clear(f.links)
			}
			for _, l := range b.Links {
				f.links[l.Index] = l
			}
			for _, i := range b.Removed {
				delete(f.links, i)
			}
			f.defaults = b.Defaults
		case <-deadline:
			f.t.Fatalf("%s: last seen %+v, default routes %v", what, f.links, f.defaults)
		}
	}
}

func (f *follower) named(name string) (Link, bool) {
	for _, l := range f.links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

func TestTheMonitorFollowsLinksAddressesAndDefaultRoutes(t *testing.T) {
	ns := testenv.NetNS(t)
	f := follow(t, ns, time.Hour)
	f.until("loopback", func() bool { _, ok := f.named("lo"); return ok })

	testenv.Veth(t, "cali1", "peer1", netns.None())
	f.until("a new veth that is up", func() bool { l, ok := f.named("cali1"); return ok && l.Kind == "veth" && l.Up && l.Ethernet })

	testenv.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "peer1")
	prefix := netip.MustParsePrefix("192.0.2.1/24")
	f.until("its address", func() bool { l, _ := f.named("peer1"); return slices.Contains(l.Addrs, prefix) })
	testenv.Run(t, "ip", "route", "add", "default", "via", "192.0.2.254")
	f.until("the default route", func() bool { l, _ := f.named("peer1"); return slices.Equal(f.defaults, []int{l.Index}) })
	testenv.Run(t, "ip", "addr", "del", "192.0.2.1/24", "dev", "peer1")
	f.until("the address to go", func() bool { l, _ := f.named("peer1"); return !slices.Contains(l.Addrs, prefix) })
	f.until("the default route to go", func() bool { return len(f.defaults) == 0 })

	testenv.Run(t, "ip", "link", "set", "cali1", "down")
	testenv.Run(t, "ip", "link", "set", "cali1", "name", "cali2")
	f.until("the new name", func() bool { _, ok := f.named("cali2"); return ok })
	testenv.Run(t, "ip", "link", "del", "cali2")
	f.until("the veth to go", func() bool {
		_, a := f.named("cali2")
		_, b := f.named("peer1")
		return !a && !b
	})
}

func TestALinkThatLeavesItsBridgeIsNotGone(t *testing.T) {
	ns := testenv.NetNS(t)
	f := follow(t, ns, time.Hour)
	testenv.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	testenv.Veth(t, "port0", "peer0", netns.None())
	testenv.Run(t, "ip", "link", "set", "port0", "master", "br0")
	f.until("the port on its bridge", func() bool { l, ok := f.named("port0"); return ok && l.Master != 0 })
	testenv.Run(t, "ip", "link", "set", "port0", "nomaster")
	f.until("the port on its own", func() bool { l, ok := f.named("port0"); return ok && l.Master == 0 })
}

func TestABurstOfLinksIsSeenWhole(t *testing.T) {
	ns := testenv.NetNS(t)
	f := follow(t, ns, time.Hour)
	f.until("loopback", func() bool { _, ok := f.named("lo"); return ok })
	// Nobody takes batches meanwhile: notifications pile up, are merged or lost, and nothing is missed.
	const n = 300
	var batch strings.Builder
	for i := range n {
		fmt.Fprintf(&batch, "link add cali%d type veth peer name p%d\n", i, i)
	}
	runBatch(t, batch.String())
	f.until("all of them", func() bool { return len(f.links) == 2*n+1 })
}

func runBatch(t *testing.T, commands string) {
	t.Helper()
	file := t.TempDir() + "/batch"
	if err := os.WriteFile(file, []byte(commands), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "ip", "-batch", file)
}

func TestTheTunnelIsCreatedRepairedAndReplaced(t *testing.T) {
	testenv.NetNS(t)
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	spec := TunnelSpec{Port: 4789, MTU: 1450}
	ensure := func(what string, wantChange bool) int {
		t.Helper()
		index, changed, err := EnsureTunnel(h, spec)
		if err != nil || changed != wantChange {
			t.Fatalf("%s: changed %v, error %v", what, changed, err)
		}
		l, err := h.LinkByName(TunnelName)
		if err != nil || l.Attrs().Index != index {
			t.Fatalf("%s: index %d, link %v, %v", what, index, l, err)
		}
		if why := tunnelDiffers(l, spec); why != "" || l.Attrs().MTU != spec.MTU || l.Attrs().Flags&net.FlagUp == 0 {
			t.Fatalf("%s: %s, %+v", what, why, l.Attrs())
		}
		return index
	}
	first := ensure("new", true)
	if ensure("unchanged", false) != first {
		t.Fatal("it was replaced without need")
	}
	spec.MTU = 1400
	if ensure("another MTU", true) != first {
		t.Fatal("an MTU needs no new device")
	}
	testenv.Run(t, "ip", "link", "set", TunnelName, "down")
	testenv.Run(t, "ip", "addr", "flush", "dev", TunnelName)
	if ensure("damaged", true) != first {
		t.Fatal("repair needs no new device")
	}
	spec.Port = 4790
	second := ensure("another port", true)
	testenv.Run(t, "ip", "link", "del", TunnelName)
	testenv.Run(t, "ip", "link", "add", TunnelName, "type", "vxlan", "id", "7", "dstport", "4790")
	if ensure("somebody else's device by our name", true) == second {
		t.Fatal("a device that is not flow-based was kept")
	}
	if out := testenv.Run(t, "ip", "-6", "addr", "show", "dev", TunnelName); strings.Contains(out, "inet6") {
		t.Errorf("it has a link-local address, which is tentative at first: %s", out)
	}
	if removed, err := RemoveTunnel(h); !removed || err != nil {
		t.Fatalf("remove: %v, %v", removed, err)
	}
	if removed, err := RemoveTunnel(h); removed || err != nil {
		t.Fatalf("remove again: %v, %v", removed, err)
	}
}

func TestAPortThatAnotherDeviceHoldsIsNamed(t *testing.T) {
	testenv.NetNS(t)
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	testenv.Run(t, "ip", "link", "add", "flannel.1", "type", "vxlan", "external", "dstport", "4789")
	testenv.Run(t, "ip", "link", "set", "flannel.1", "up")
	_, _, err = EnsureTunnel(h, TunnelSpec{Port: 4789, MTU: 1450})
	if err == nil || !strings.Contains(err.Error(), "flannel.1") {
		t.Fatalf("error: %v", err)
	}
}
