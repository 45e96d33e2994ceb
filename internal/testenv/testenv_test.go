// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func currentNS(t *testing.T) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestATestIsAloneInItsNamespaceAndTheNextOneIsBack(t *testing.T) {
	var inside string
	t.Run("inside", func(t *testing.T) {
		outside := currentNS(t)
		NetNS(t)
		if inside = currentNS(t); inside == outside {
			t.Error("the test is still in the old namespace")
		}
		far := NewNetNS(t)
		a, b := Veth(t, "a", "b", far)
		if links, err := netlink.LinkList(); err != nil || len(links) != 2 {
			t.Errorf("links here: %v (%v), want lo and %s", links, err, a.Attrs().Name)
		}
		if err := Enter(far, func() error {
			_, err := net.InterfaceByName(b.Attrs().Name)
			return err
		}); err != nil {
			t.Errorf("the far end: %v", err)
		}
	})
	t.Run("after", func(t *testing.T) {
		if currentNS(t) == inside {
			t.Error("a later test runs in an earlier one's namespace")
		}
	})
}

func TestAPrivateBPFFSIsGoneAfterTheTest(t *testing.T) {
	var dir string
	t.Run("inside", func(t *testing.T) {
		dir = BPFFS(t)
		if !mounted(t, dir) {
			t.Errorf("%s is not mounted", dir)
		}
	})
	if mounted(t, dir) {
		t.Errorf("%s is still mounted", dir)
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), " "+dir+" ")
}

func TestAClosedHandleMeansBothEndsHere(t *testing.T) {
	NetNS(t)
	Veth(t, "a", "b", netns.None())
	for _, name := range []string{"a", "b"} {
		if _, err := netlink.LinkByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
