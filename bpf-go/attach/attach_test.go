// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/features"
	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/bpf-go/load"
	"github.com/felix-lite/felix-lite/bpf-go/maps"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// node is a network namespace with a bpffs, maps and an attacher.
type node struct {
	*Attacher
	root string
	set  *maps.Set
}

func newNode(t *testing.T, typ Type, hidden ...string) *node {
	t.Helper()
	testenv.NetNS(t)
	root := testenv.BPFFS(t)
	set, err := maps.Open(root, maps.Options{Sizes: maps.Sizes{
		Conntrack: 100, ConntrackHalfOpen: 100, NATFrontend: 100, NATBackend: 100, NATAffinity: 100,
		Routes: 100, Interfaces: 16,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return &node{Attacher: attacher(t, root, set, typ, hidden...), root: root, set: set}
}

func attacher(t *testing.T, root string, set *maps.Set, typ Type, hidden ...string) *Attacher {
	t.Helper()
	f, err := features.Probe(hidden)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Root: root, Maps: set.Raw, Type: typ, Features: f})
	if typ == TCX {
		testenv.SkipIfNotSupported(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func veth(t *testing.T, class layout.Class) Interface {
	t.Helper()
	l, _ := testenv.Veth(t, "veth.a", "veth.b", -1)
	return Interface{Ifindex: l.Attrs().Index, Name: "veth.a", Class: class}
}

func (n *node) attach(t *testing.T, i Interface) {
	t.Helper()
	for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
		if err := n.Attach(i, hook, layout.PreambleCfg{IfaceSlot: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) query(t *testing.T, i Interface) [2]State {
	t.Helper()
	states, err := n.Query(i)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func filterCount(t *testing.T, i Interface) int {
	t.Helper()
	l, err := netlink.LinkByIndex(i.Ifindex)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(l, parent)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
		n += len(filters)
	}
	return n
}

func pinCount(t *testing.T, n *node) int {
	t.Helper()
	entries, err := os.ReadDir(maps.LinksDir(n.root))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestWorkloadsAreAttachedByClsactAndReplacedInPlace(t *testing.T) {
	n := newNode(t, Auto)
	i := veth(t, layout.ClassWEP)
	n.attach(t, i)
	first := n.query(t, i)
	n.attach(t, i)
	second := n.query(t, i)
	for hook := range first {
		if first[hook].Mechanism != ByTC || second[hook].Mechanism != ByTC {
			t.Errorf("hook %d: %v, then %v, want clsact", hook, first[hook], second[hook])
		}
		if first[hook].Program == second[hook].Program {
			t.Errorf("hook %d: program %d was not replaced", hook, first[hook].Program)
		}
	}
	if got := filterCount(t, i); got != 2 {
		t.Errorf("%d filters after two rounds, want 2", got)
	}
	if pinCount(t, n) != 0 {
		t.Error("a workload left a pin")
	}
	if err := n.Detach(i); err != nil {
		t.Fatal(err)
	}
	if got := n.query(t, i); got != [2]State{} {
		t.Errorf("after detach: %v", got)
	}
	if kind, err := n.qdiscKind(i); err != nil || kind != "" {
		t.Errorf("an empty %q qdisc was left (%v)", kind, err)
	}
	if err := n.Detach(i); err != nil {
		t.Errorf("detaching twice: %v", err)
	}
}

func TestHostInterfacesAreAttachedByPinnedLinksThatTheNextAgentAdopts(t *testing.T) {
	n := newNode(t, TCX)
	i := veth(t, layout.ClassHEP)
	n.attach(t, i)
	first := n.query(t, i)
	if first[0].Mechanism != ByTCX || first[1].Mechanism != ByTCX || pinCount(t, n) != 2 {
		t.Fatalf("attached: %v with %d pins, want two tcx links", first, pinCount(t, n))
	}
	linkOf := func() link.ID {
		r, err := link.QueryPrograms(link.QueryOptions{Target: i.Ifindex, Attach: ebpf.AttachTCXIngress})
		if err != nil || len(r.Programs) != 1 {
			t.Fatalf("programs on tcx ingress: %v, %v", r, err)
		}
		id, _ := r.Programs[0].LinkID()
		return id
	}
	before := linkOf()

	next := &node{Attacher: attacher(t, n.root, n.set, TCX), root: n.root, set: n.set}
	i.Name = "renamed" // the pin is found by the ifindex
	next.attach(t, i)
	if linkOf() != before {
		t.Error("the link was replaced, not updated")
	}
	if got := next.query(t, i); got[0].Program == first[0].Program {
		t.Error("the program was not replaced")
	}
	if err := next.Detach(i); err != nil {
		t.Fatal(err)
	}
	if got := next.query(t, i); got != [2]State{} || pinCount(t, n) != 0 {
		t.Errorf("after detach: %v, %d pins", got, pinCount(t, n))
	}
}

func TestChangingTheAttachTypeMovesTheProgramAndLeavesNothing(t *testing.T) {
	n := newNode(t, TCX)
	i := veth(t, layout.ClassHEP)
	n.attach(t, i)
	byTC := &node{Attacher: attacher(t, n.root, n.set, TC), root: n.root, set: n.set}
	byTC.attach(t, i)
	if got := n.query(t, i); got[0].Mechanism != ByTC || got[1].Mechanism != ByTC || pinCount(t, n) != 0 {
		t.Errorf("changed to clsact: %v, %d pins", got, pinCount(t, n))
	}
	n.attach(t, i)
	if got := n.query(t, i); got[0].Mechanism != ByTCX || filterCount(t, i) != 0 {
		t.Errorf("changed back to tcx: %v, %d filters", got, filterCount(t, i))
	}
}

func TestWithoutTCXHostInterfacesAreAttachedByClsact(t *testing.T) {
	n := newNode(t, Auto, "tcx")
	i := veth(t, layout.ClassHEP)
	n.attach(t, i)
	if got := n.query(t, i); got[0].Mechanism != ByTC || got[1].Mechanism != ByTC {
		t.Errorf("attached: %v", got)
	}
	f, err := features.Probe([]string{"tcx"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Root: n.root, Maps: n.set.Raw, Type: TCX, Features: f}); !errors.Is(err, features.ErrNotSupported) {
		t.Errorf("attach type TCX without it: %v", err)
	}
}

func TestForeignFiltersAndTheirQdiscStay(t *testing.T) {
	n := newNode(t, TC)
	i := veth(t, layout.ClassWEP)
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: i.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil {
		t.Fatal(err)
	}
	foreign := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: i.Ifindex, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 7, Protocol: unix.ETH_P_ALL},
		Fd:          passing(t).FD(), Name: "theirs", DirectAction: true,
	}
	if err := netlink.FilterAdd(foreign); err != nil {
		t.Fatal(err)
	}
	n.attach(t, i)
	if got := filterCount(t, i); got != 3 {
		t.Errorf("%d filters, want ours and theirs: 3", got)
	}
	if err := n.Detach(i); err != nil {
		t.Fatal(err)
	}
	if got := filterCount(t, i); got != 1 {
		t.Errorf("%d filters after detach, want theirs: 1", got)
	}
}

func TestAFilterThatStandsInOurPlaceIsNotReplaced(t *testing.T) {
	n := newNode(t, TC)
	i := veth(t, layout.ClassWEP)
	if err := n.ensureQdisc(i, layout.HookIngress); err != nil {
		t.Fatal(err)
	}
	foreign := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: i.Ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          passing(t).FD(), Name: "theirs", DirectAction: true,
	}
	if err := netlink.FilterAdd(foreign); err != nil {
		t.Fatal(err)
	}
	err := n.Attach(i, layout.HookIngress, layout.PreambleCfg{})
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "veth.a") {
		t.Errorf("error %v, want ErrForeign that names the interface", err)
	}
	if err := n.Detach(i); err != nil {
		t.Fatal(err)
	}
	if got := filterCount(t, i); got != 1 {
		t.Errorf("%d filters, want theirs", got)
	}
}

func TestAnIngressQdiscServesIngressAndSaysWhyThereIsNoEgress(t *testing.T) {
	n := newNode(t, TC)
	i := veth(t, layout.ClassHEP)
	if err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: i.Ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}); err != nil {
		t.Fatal(err)
	}
	if err := n.Attach(i, layout.HookIngress, layout.PreambleCfg{}); err != nil {
		t.Error(err)
	}
	if got := n.query(t, i); got[0].Mechanism != ByTC {
		t.Errorf("ingress: %v", got[0])
	}
	err := n.Attach(i, layout.HookEgress, layout.PreambleCfg{})
	if err == nil || !strings.Contains(err.Error(), "ingress") {
		t.Errorf("egress: %v", err)
	}
	if err := n.Detach(i); err != nil {
		t.Error(err)
	}
	if kind, err := n.qdiscKind(i); err != nil || kind != "ingress" {
		t.Errorf("qdisc %q, %v: the ingress qdisc is not ours to delete", kind, err)
	}
}

func TestAVanishedInterfaceIsATypedErrorAndItsPinsAreCleaned(t *testing.T) {
	for _, typ := range []Type{TC, TCX} {
		t.Run(string(typ), func(t *testing.T) {
			n := newNode(t, typ)
			i := veth(t, layout.ClassHEP)
			n.attach(t, i)
			l, err := netlink.LinkByIndex(i.Ifindex)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkDel(l); err != nil {
				t.Fatal(err)
			}
			for _, hook := range []layout.Hook{layout.HookIngress, layout.HookEgress} {
				if err := n.Attach(i, hook, layout.PreambleCfg{}); !errors.Is(err, ErrInterfaceGone) {
					t.Errorf("attach to %s: %v, want ErrInterfaceGone", hook, err)
				}
			}
			if _, err := n.Query(i); !errors.Is(err, ErrInterfaceGone) {
				t.Errorf("query: %v, want ErrInterfaceGone", err)
			}
			if err := n.CleanStale(); err != nil {
				t.Error(err)
			}
			if got := pinCount(t, n); got != 0 {
				t.Errorf("%d pins left", got)
			}
			if err := n.Detach(i); err != nil {
				t.Errorf("detach: %v", err)
			}
		})
	}
}

func TestStalePinsAreCleanedAndLivingOnesStay(t *testing.T) {
	n := newNode(t, TCX)
	alive := veth(t, layout.ClassHEP)
	n.attach(t, alive)
	l, _ := testenv.Veth(t, "dead", "daed", -1)
	dead := Interface{Ifindex: l.Attrs().Index, Name: "dead", Class: layout.ClassHEP}
	n.attach(t, dead)
	if err := netlink.LinkDel(l); err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(maps.LinksDir(n.root), "somebodys")
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(note); err != nil {
		t.Fatal(err)
	}
	if err := n.CleanStale(); err != nil {
		t.Fatal(err)
	}
	if got := pinCount(t, n); got != 3 {
		t.Errorf("%d pins, want two of the living interface and somebody's", got)
	}
	if got := n.query(t, alive); got[0].Mechanism != ByTCX || got[1].Mechanism != ByTCX {
		t.Errorf("the living interface: %v", got)
	}
}

func TestARefusedProgramLeavesTheOldOne(t *testing.T) {
	for _, class := range []layout.Class{layout.ClassWEP, layout.ClassHEP} {
		t.Run(class.String(), func(t *testing.T) {
			n := newNode(t, Auto)
			i := veth(t, class)
			n.attach(t, i)
			before := n.query(t, i)
			n.maps = func() map[string]*ebpf.Map { // a map that the preamble can not use
				return map[string]*ebpf.Map{"cali_counters2": n.set.Globals.Raw()}
			}
			err := n.Attach(i, layout.HookIngress, layout.PreambleCfg{})
			var refused *load.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "veth.a") {
				t.Errorf("error %v, want a *load.Error with the interface's name", err)
			}
			if got := n.query(t, i); got != before {
				t.Errorf("before %v, after %v", before, got)
			}
		})
	}
}

// The goal is 200 workloads, 400 hooks, in two seconds; the bench measures it. Here it must not be
// off by an order of magnitude.
func TestManyWorkloadsAreAttachedQuickly(t *testing.T) {
	n := newNode(t, Auto)
	i := veth(t, layout.ClassWEP)
	const rounds = 100
	start := time.Now()
	for range rounds {
		n.attach(t, i)
	}
	took := time.Since(start)
	t.Logf("%d hooks: %v each", 2*rounds, took/(2*rounds))
	if took > 10*time.Second {
		t.Errorf("%d hooks took %v", 2*rounds, took)
	}
}
