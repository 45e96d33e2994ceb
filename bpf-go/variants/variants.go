// SPDX-License-Identifier: Apache-2.0

// Package variants is the one Go table of the datapath's variants: direction x class x family.
//
// A variant's name is its object's name and its compiler flags; its index places its programs in
// the jump map. The C side (variant.h, jump.h) and the Makefile hold the same words; tests compare
// all three. The package is plain data: it opens nothing.
package variants

import (
	"fmt"
	"strings"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

// Variant is one compilation of tc.c.
type Variant struct {
	Hook   layout.Hook // ingress is "from", egress is "to"
	Class  layout.Class
	Family layout.Family
}

// All are the 24 variants, in the order of their indices.
func All() []Variant {
	var all []Variant
	for _, class := range Classes() {
		for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
			for _, family := range Families {
				all = append(all, Variant{Hook: hook, Class: class, Family: family})
			}
		}
	}
	return all
}

// Classes are the classes of interfaces, in the order of their numbers.
func Classes() []layout.Class {
	var all []layout.Class
	for class := layout.ClassWEP; class < layout.ClassCount; class++ {
		all = append(all, class)
	}
	return all
}

// Families are the address families, in the order of their numbers.
var Families = []layout.Family{layout.FamilyV4, layout.FamilyV6}

// Hooks are the hooks of an interface, in the order of their numbers.
var Hooks = []layout.Hook{layout.HookIngress, layout.HookEgress}

// Index is the variant's number: (class * 2 + hook) * 2 + family.
func (v Variant) Index() uint32 {
	return (uint32(v.Class)*2+uint32(v.Hook))*2 + uint32(v.Family)
}

// Slot is the index of one of the variant's programs in cali_jump2, relative to the bank.
func (v Variant) Slot(slot layout.Slot) uint32 {
	return v.Index()*uint32(layout.SlotStride) + uint32(slot)
}

// Direction is "from" (ingress: from what is behind the interface) or "to".
func Direction(hook layout.Hook) string {
	if hook == layout.HookEgress {
		return "to"
	}
	return "from"
}

// Name is the name of the variant and of its object: from_wep_v4.
func (v Variant) Name() string {
	return fmt.Sprintf("%s_%s_%s", Direction(v.Hook), v.Class, v.Family)
}

// String is Name.
func (v Variant) String() string { return v.Name() }

// Parse finds a variant by its name.
func Parse(name string) (Variant, error) {
	for _, v := range All() {
		if v.Name() == name {
			return v, nil
		}
	}
	return Variant{}, fmt.Errorf("variant %q is not known: a name is %s_%s_%s", name,
		"{from,to}", "{"+strings.Join(classNames(), ",")+"}", "{v4,v6}")
}

func classNames() []string {
	var names []string
	for _, class := range Classes() {
		names = append(names, class.String())
	}
	return names
}
