// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/felix-lite/felix-lite/internal/testenv"
)

func TestASettingIsWrittenOnlyWhereItIsAnother(t *testing.T) {
	testenv.NetNS(t)
	const path = "net/ipv4/conf/lo/rp_filter"
	if _, err := Set(path, "2"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value   string
		changed bool
	}{{"2", false}, {"1", true}, {"1", false}} {
		if changed, err := Set(path, c.value); err != nil || changed != c.changed {
			t.Errorf("set %s: changed %v, %v", c.value, changed, err)
		}
		if got, err := Get(path); err != nil || got != c.value {
			t.Errorf("read %q, %v; want %s", got, err, c.value)
		}
	}
	if _, err := Set("net/ipv4/conf/none0/rp_filter", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of an interface that is not there: %v", err)
	}
}
