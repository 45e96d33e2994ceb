// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

func TestNamesAreSpelledAsGoSpellsThem(t *testing.T) {
	for c, want := range map[string]string{
		"cali_ct_key":         "CTKey",
		"cali_ip":             "Addr",
		"cali_ip_any":         "AddrAny",
		"port_be":             "PortBE",
		"CALI_DROP_TTL":       "DropTTL",
		"CALI_CTF_VIA_STACK":  "CTFViaStack",
		"CALI_CLASS_L3DEV":    "ClassL3Dev",
		"CALI_RT_NEXT_HOP_V6": "RTNextHopV6",
	} {
		if got := goName(c); got != want {
			t.Errorf("%s became %s, want %s", c, got, want)
		}
	}
}

func TestPeopleReadValuesWithoutTheEnumsPrefix(t *testing.T) {
	prefix := commonPrefix([]string{"CALI_CT_NORMAL", "CALI_CT_NAT_FWD", "CALI_CT_NAT_REV"})
	if got := humanName("CALI_CT_NAT_REV", prefix); got != "nat-rev" {
		t.Errorf("%q", got)
	}
	// One name may be the beginning of another.
	prefix = commonPrefix([]string{"CALI_SLOT_ICMP", "CALI_SLOT_ICMP_INNER"})
	if got := humanName("CALI_SLOT_ICMP", prefix); got != "icmp" {
		t.Errorf("%q with prefix %q", got, prefix)
	}
}

func TestCommentsAreFoundWhereFormattersPutThem(t *testing.T) {
	dir := t.TempDir()
	header := `/* A key.
 * Of two lines. */
struct cali_x_key {
	__u32 first; /* said behind it */
	__u8 list[4];   /* an
			 * array */
	__u8 silent;
};

enum cali_x {
	CALI_X_ONE = 1 << 0, /* one */
	CALI_X_TWO =
	    2, /* on the next line */
	CALI_X_NONE = 0,
};
`
	if err := os.WriteFile(filepath.Join(dir, "x.h"), []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readComments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		c.types["cali_x_key"]:         "A key. Of two lines.",
		c.fields["cali_x_key.first"]:  "said behind it",
		c.values["CALI_X_ONE"]:        "one",
		c.values["CALI_X_TWO"]:        "on the next line",
		c.fields["cali_x_key.silent"]: "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, err := readComments(t.TempDir()); err == nil {
		t.Error("a directory without headers is no error")
	}
}

func TestTwinsWithDifferentMembersAreRefused(t *testing.T) {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	u64 := &btf.Int{Name: "unsigned long", Size: 8}
	member := func(name string, typ btf.Type) btf.Member { return btf.Member{Name: name, Type: typ} }
	a := &btf.Struct{Name: "cali_x", Members: []btf.Member{member("a", u32)}}
	for name, b := range map[string]*btf.Struct{
		"another name":      {Name: "cali_x", Members: []btf.Member{member("b", u32)}},
		"another size":      {Name: "cali_x", Members: []btf.Member{member("a", u64)}},
		"one member more":   {Name: "cali_x", Members: []btf.Member{member("a", u32), member("b", u32)}},
		"a struct, not int": {Name: "cali_x", Members: []btf.Member{member("a", &btf.Struct{Name: "cali_y"})}},
	} {
		if _, err := compare(a, b); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestTheShapeFollowsFromWhatDiffers(t *testing.T) {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	array := func(n uint32) btf.Type { return &btf.Array{Type: u32, Nelems: n} }
	ip := func(n uint32) btf.Type {
		return &btf.Struct{Name: "cali_ip", Size: 4 * n, Members: []btf.Member{{Name: "w", Type: array(n)}}}
	}
	of := func(t btf.Type) *btf.Struct {
		return &btf.Struct{Name: "cali_x", Members: []btf.Member{{Name: "a", Type: t}}}
	}
	for name, c := range map[string]struct {
		v4, v6 btf.Type
		want   shape
	}{
		"no address":         {u32, u32, shared},
		"an address":         {ip(1), ip(4), generic},
		"filled differently": {array(2), array(1), twins},
	} {
		if got, err := compare(of(c.v4), of(c.v6)); err != nil || got != c.want {
			t.Errorf("%s: shape %d, want %d (%v)", name, got, c.want, err)
		}
	}
}

func TestAStaleFileIsNamedAndNotWritten(t *testing.T) {
	out := t.TempDir()
	objects := "../../../objects/bin/"
	generate := func(check bool) error {
		return run(objects+"layout_v4.o", objects+"layout_v6.o", "../../../../bpf-c", out, filepath.Join(out, "maps.md"), check)
	}
	if err := generate(true); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 0 {
		t.Errorf("a check wrote %v", entries)
	}
	if err := generate(false); err != nil {
		t.Fatal(err)
	}
	if err := generate(true); err != nil {
		t.Errorf("right after writing: %v", err)
	}
}
