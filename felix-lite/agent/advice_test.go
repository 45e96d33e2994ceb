// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/felix-lite/felix-lite/internal/sysctl"
)

func TestSettingsOfTheNodeThatAreInTheWayAreLoggedAtTheStart(t *testing.T) {
	n := newTestNode(t)
	for path, value := range map[string]string{"net/ipv4/conf/eth0/forwarding": "0", "net/ipv6/conf/all/forwarding": "0"} {
		if _, err := sysctl.Set(path, value); err != nil {
			t.Fatal(err)
		}
	}
	hook := logtest.NewLocal(n.log)
	r := n.start("resyncInterval: 1s")
	r.waitReady()
	advised := func() map[string]int {
		out := map[string]int{}
		for _, e := range hook.AllEntries() {
			if path, ok := e.Data["sysctl"]; ok {
				out[fmt.Sprint(e.Level, " ", path, " is ", e.Data["value"], ", set ", e.Data["set"], ": ", e.Message)]++
			}
		}
		return out
	}
	want := map[string]int{
		"warning net/ipv4/conf/eth0/forwarding is 0, set 1: the kernel drops the answers to pods' connections out of the cluster":       1,
		"warning net/ipv6/conf/all/forwarding is 0, set 1: the kernel forwards no IPv6 packet, whatever the interface's own setting is": 1,
	}
	n.until("advice", func() (bool, string) {
		got := advised()
		return cmp.Equal(got, want), fmt.Sprint(got)
	})
	// Each resync looks again, and says what has changed.
	if _, err := sysctl.Set("net/ipv6/conf/all/forwarding", "1"); err != nil {
		t.Fatal(err)
	}
	for advice := range want {
		if strings.Contains(advice, "ipv4") {
			want[advice]++
		}
	}
	n.until("the rest of it", func() (bool, string) {
		got := advised()
		return cmp.Equal(got, want), fmt.Sprint(got)
	})
}
