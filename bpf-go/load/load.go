// SPDX-License-Identifier: Apache-2.0

// Package load brings compiled objects into the kernel with their constants set and the node's maps
// in place of their own.
//
// In: an object (a variant of tc.c, the policies, a preamble), its load-time constants, and the
// pinned maps. Out: programs, not attached to anything and in no jump slot: bpf-go/jump and
// bpf-go/attach do that. Every TC program is loaded without an expected attach type, so that one
// prog_array serves TCX ingress, TCX egress and clsact. It is called by the agent at start and when
// the configuration changes, and by tests.
package load

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/objects"
	"github.com/felix-lite/felix-lite/bpf-go/variants"
)

// Names of the programs of the objects that are not variants.
const (
	PreambleProgram    = "cali_preamble"
	PolicyDenyProgram  = "cali_policy_deny"
	PolicyAllowProgram = "cali_policy_allow"
)

// Object is a loaded object: its programs by name. Close it when the programs stand in their slots.
type Object struct {
	Name     string
	Variant  variants.Variant // of a variant of tc.c
	Programs map[string]*ebpf.Program
}

// Close closes the programs. Those that stand in a jump map or on a hook stay loaded.
func (o *Object) Close() {
	for _, p := range o.Programs {
		p.Close()
	}
}

// CloseAll closes all programs of several objects.
func CloseAll(all []*Object) {
	for _, o := range all {
		o.Close()
	}
}

// Variant loads one variant of tc.c. maps are the node's, by name; those that the object does not
// use are ignored, those that it uses and are not there it gets of its own. The error is an *Error.
func Variant(v variants.Variant, cfg layout.Config, maps map[string]*ebpf.Map) (*Object, error) {
	o, err := object(v.Name(), cfg, maps)
	if err != nil {
		return nil, err
	}
	o.Variant = v
	return o, nil
}

// All loads all 24 variants, or none: Classes for all of them.
func All(ctx context.Context, cfg layout.Config, maps map[string]*ebpf.Map) ([]*Object, error) {
	return Classes(ctx, cfg, maps, variants.Classes()...)
}

// Classes loads all variants of some classes, or none. The verifier is what takes time, so they are
// loaded side by side on all CPUs; one that is refused, or the context's end, keeps the others from
// being started. The objects are in the order of their indices.
func Classes(ctx context.Context, cfg layout.Config, maps map[string]*ebpf.Map, classes ...layout.Class) ([]*Object, error) {
	wanted := slices.DeleteFunc(variants.All(), func(v variants.Variant) bool { return !slices.Contains(classes, v.Class) })
	all := make([]*Object, len(wanted))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, v := range wanted {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			all[i], err = Variant(v, cfg, maps)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		CloseAll(slices.DeleteFunc(all, func(o *Object) bool { return o == nil }))
		return nil, err
	}
	return all, nil
}

// Policies loads the two policies that always stand in cali_policy2: deny all, allow all.
func Policies(cfg layout.Config, maps map[string]*ebpf.Map) (*Object, error) {
	return object(objects.Policy, cfg, maps)
}

// Preamble loads the program that stands on one hook of one interface.
func Preamble(cfg layout.PreambleCfg, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	s, err := preambleSpec()
	if err != nil {
		return nil, &Error{Object: objects.Preamble, Err: err}
	}
	o, err := Spec(objects.Preamble, s.Copy(), cfg, maps)
	if err != nil {
		return nil, err
	}
	program, ok := o.Programs[PreambleProgram]
	if !ok {
		o.Close()
		return nil, &Error{Object: objects.Preamble, Err: fmt.Errorf("it has no program %s", PreambleProgram)}
	}
	return program, nil
}

// preambleSpec is parsed once: hundreds of preambles come from it. The variants are large and loaded
// rarely; to keep them parsed would cost tens of megabytes.
var preambleSpec = sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return objects.Spec(objects.Preamble) })

// object loads an object of the binary with its constants.
func object(name string, cfg any, maps map[string]*ebpf.Map) (*Object, error) {
	s, err := objects.Spec(name)
	if err != nil {
		return nil, &Error{Object: name, Err: err}
	}
	return Spec(name, s, cfg, maps)
}

// Spec loads a parsed object under a name for its errors. An object without constants ignores cfg.
func Spec(name string, s *ebpf.CollectionSpec, cfg any, maps map[string]*ebpf.Map) (*Object, error) {
	if err := SetConstants(s, cfg); err != nil {
		return nil, &Error{Object: name, Err: err}
	}
	for _, p := range s.Programs {
		if p.Type == ebpf.SchedCLS {
			p.AttachType = ebpf.AttachNone
		}
	}
	replacements := map[string]*ebpf.Map{}
	for mapName, m := range s.Maps {
		m.Pinning = ebpf.PinNone
		if have := maps[mapName]; have != nil {
			m.MaxEntries = have.MaxEntries() // sizes are the configuration's
			replacements[mapName] = have
		}
	}
	c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, &Error{Object: name, Err: err}
	}
	o := &Object{Name: name, Programs: c.Programs}
	c.Programs = nil
	c.Close() // programs hold the maps that they use
	return o, nil
}
