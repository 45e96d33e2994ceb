// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/felix-lite/felix-lite/bpf-go/objects"
)

var layoutObjects = map[string]string{"v4": objects.LayoutV4, "v6": objects.LayoutV6}

func cStructs(t *testing.T, object string) map[string]*btf.Struct {
	t.Helper()
	data, err := objects.Bytes(object)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*btf.Struct{}
	for typ, err := range spec.All() {
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := typ.(*btf.Struct); ok && strings.HasPrefix(s.Name, "cali_") {
			structs[s.Name] = s
		}
	}
	return structs
}

func TestGoTypesHaveTheSizesAndOffsetsOfTheObjects(t *testing.T) {
	for family, object := range layoutObjects {
		structs := cStructs(t, object)
		if len(structs) == 0 {
			t.Fatalf("%s has no types", object)
		}
		for name, c := range structs {
			g, ok := generatedTypes[family][name]
			if !ok {
				t.Errorf("%s: struct %s has no Go type: run `make generate`", family, name)
				continue
			}
			if uint32(g.Size()) != c.Size {
				t.Errorf("%s: %s is %d bytes, struct %s %d", family, g, g.Size(), name, c.Size)
			}
			fields := named(g)
			if len(fields) != len(c.Members) {
				t.Errorf("%s: %s has %d fields, struct %s %d", family, g, len(fields), name, len(c.Members))
				continue
			}
			for i, m := range c.Members {
				size, err := btf.Sizeof(m.Type)
				if err != nil {
					t.Fatal(err)
				}
				if f := fields[i]; uint32(f.Offset) != m.Offset.Bytes() || int(f.Type.Size()) != size {
					t.Errorf("%s: %s.%s is %d bytes at %d, %s.%s %d bytes at %d", family, g, f.Name,
						f.Type.Size(), f.Offset, name, m.Name, size, m.Offset.Bytes())
				}
			}
		}
	}
}

func named(g reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for i := range g.NumField() {
		if f := g.Field(i); f.Name != "_" {
			fields = append(fields, f)
		}
	}
	return fields
}

// Padding in a key holds whatever was on the stack: lookups would miss now and then.
func TestNoStructHasImplicitPadding(t *testing.T) {
	for family, object := range layoutObjects {
		for name, c := range cStructs(t, object) {
			sum := 0
			for _, m := range c.Members {
				size, err := btf.Sizeof(m.Type)
				if err != nil {
					t.Fatal(err)
				}
				sum += size
			}
			if uint32(sum) != c.Size {
				t.Errorf("%s: struct %s is %d bytes, its members %d", family, name, c.Size, sum)
			}
		}
	}
}

func TestTwinsHaveTheSameFieldsInTheSameOrder(t *testing.T) {
	v4, v6 := cStructs(t, objects.LayoutV4), cStructs(t, objects.LayoutV6)
	for name, a := range v4 {
		b := v6[name]
		if b == nil || len(a.Members) != len(b.Members) {
			t.Errorf("struct %s: other members in IPv6", name)
			continue
		}
		for i := range a.Members {
			if a.Members[i].Name != b.Members[i].Name {
				t.Errorf("struct %s: member %d is %s and %s", name, i, a.Members[i].Name, b.Members[i].Name)
			}
		}
	}
	// What both families read at fixed places: all in front of the first address.
	for _, family := range []string{"v4", "v6"} {
		ct := generatedTypes[family]["cali_ct_value"]
		for field, offset := range map[string]uintptr{"LastSeen": 0, "Timeout": 4, "Flags": 8, "Type": 12} {
			if f, ok := ct.FieldByName(field); !ok || f.Offset != offset {
				t.Errorf("%s: %s of a conntrack value is at %d, want %d", family, field, f.Offset, offset)
			}
		}
		if size := generatedTypes[family]["cali_state"].Size(); size > 512 {
			t.Errorf("%s: state is %d bytes, at most 512 are agreed", family, size)
		}
	}
}

func TestMapsOfTheObjectsUseTheseTypes(t *testing.T) {
	for family, object := range layoutObjects {
		spec, err := objects.Spec(object)
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range spec.Maps {
			if m.Pinning != ebpf.PinByName {
				continue
			}
			for what, typ := range map[string]btf.Type{"key": m.Key, "value": m.Value} {
				s, ok := typ.(*btf.Struct)
				if !ok {
					continue
				}
				if generatedTypes[family][s.Name] == nil {
					t.Errorf("%s of %s is struct %s, which has no Go type", what, name, s.Name)
				}
			}
		}
	}
}

func TestAddressesAndPortsRoundTripInNetworkOrder(t *testing.T) {
	for _, text := range []string{"10.65.1.2", "255.255.255.255", "0.0.0.0"} {
		addr := netip.MustParseAddr(text)
		a, err := AddrFrom[AddrV4](addr)
		if err != nil || a.Addr() != addr {
			t.Errorf("%s: %v, %v", text, a, err)
		}
		mapped, err := AddrFrom[AddrV4](netip.AddrFrom16(addr.As16()))
		if err != nil || mapped != a {
			t.Errorf("%s mapped into IPv6: %v, %v", text, mapped, err)
		}
		if _, err := AddrFrom[AddrV6](addr); err == nil {
			t.Errorf("%s was taken for IPv6", text)
		}
	}
	addr := netip.MustParseAddr("fd00:65::1:2")
	a, err := AddrFrom[AddrV6](addr)
	if err != nil || a.Addr() != addr || a.Family() != FamilyV6 {
		t.Errorf("%v: %v, %v", addr, a, err)
	}
	if _, err := AddrFrom[AddrV4](addr); err == nil {
		t.Errorf("%v was taken for IPv4", addr)
	}
	for _, hop := range []string{"192.0.2.1", "2001:db8::1"} {
		addr := netip.MustParseAddr(hop)
		if got := AnyFrom(addr).Addr(addr.Is6()); got != addr {
			t.Errorf("next hop %v became %v", addr, got)
		}
	}
	if AnyFrom(netip.Addr{}).Addr(false).IsValid() {
		t.Error("no next hop became one")
	}
	if PortOf(PortBE(443)) != 443 {
		t.Error("port does not round-trip")
	}
}

func TestEnumsPrintNamesAndReasonsHaveTexts(t *testing.T) {
	for got, want := range map[string]string{
		ClassL3Dev.String():                    "l3dev",
		HookEgress.String():                    "egress",
		FamilyV6.String():                      "v6",
		DropNoProgram.String():                 "no-program",
		CTNATRev.String():                      "nat-rev",
		(RTLocal | RTWorkload).String():        "local,workload",
		(CTFViaStack | CTFlag(1<<31)).String(): "via-stack,bit31",
		RouteFlag(0).String():                  "-",
		Counter(63).String():                   "unknown-63",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, c := range append(append([]Counter{}, Counts...), Drops...) {
		if c.Text() == "" {
			t.Errorf("counter %s has no text: write a comment behind it in reasons.h", c)
		}
	}
	for _, c := range Drops {
		if !c.IsDrop() {
			t.Errorf("%s is a drop", c)
		}
	}
}
