// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
)

func TestAPromotedWorkloadHookMovesToTCXAndIsReplacedThereAndDetached(t *testing.T) {
	n := newNode(t, TCX)
	i := veth(t, layout.ClassWEP)
	n.attach(t, i)
	before := n.query(t, i)
	if before[layout.HookIngress].Mechanism != ByTC {
		t.Fatalf("attached by %v, want clsact first", before)
	}

	changed, err := n.Promote(i)
	if err != nil || !changed {
		t.Fatalf("promote: changed %v, %v", changed, err)
	}
	after := n.query(t, i)
	if after[layout.HookIngress] != (State{ByTCX, before[layout.HookIngress].Program}) {
		t.Errorf("ingress is %v, want the same program by TCX", after[layout.HookIngress])
	}
	if after[layout.HookEgress] != before[layout.HookEgress] {
		t.Errorf("egress is %v, was %v: it is not on the fast path and stays", after[layout.HookEgress], before[layout.HookEgress])
	}
	if changed, err = n.Promote(i); err != nil || changed {
		t.Errorf("promote again: changed %v, %v", changed, err)
	}

	n.attach(t, i) // a new preamble, as after a restart
	replaced := n.query(t, i)
	if replaced[layout.HookIngress].Mechanism != ByTCX || replaced[layout.HookIngress].Program == after[layout.HookIngress].Program {
		t.Errorf("attached again: %v, want another program by TCX", replaced[layout.HookIngress])
	}
	if got := programsOn(t, i); len(got) != 1 {
		t.Errorf("%d programs on the TCX hook, want 1", len(got))
	}

	if err := n.Detach(i); err != nil {
		t.Fatal(err)
	}
	if got := n.query(t, i); got != [2]State{} {
		t.Errorf("detached: %v", got)
	}
	if got := programsOn(t, i); len(got) != 0 {
		t.Errorf("%d programs left on the TCX hook", len(got))
	}
}

func TestAPromotedHookGoesBackToClsactWhenTCXIsNotToBeUsed(t *testing.T) {
	n := newNode(t, TCX)
	i := veth(t, layout.ClassWEP)
	n.attach(t, i)
	if changed, err := n.Promote(i); err != nil || !changed {
		t.Fatalf("promote: changed %v, %v", changed, err)
	}
	byTC := &node{Attacher: attacher(t, n.root, n.set, TC), root: n.root, set: n.set}
	if got := byTC.query(t, i); got[layout.HookIngress].Mechanism != ByTCX {
		t.Errorf("before: %v, want what is there to be seen", got)
	}
	byTC.attach(t, i)
	if got := byTC.query(t, i); got[0].Mechanism != ByTC || got[1].Mechanism != ByTC {
		t.Errorf("after: %v, want clsact alone", got)
	}
	if got := programsOn(t, i); len(got) != 0 {
		t.Errorf("%d programs left on the TCX hook", len(got))
	}
}

func TestOnlyWorkloadsArePromotedAndOnlyWhereThereIsTCX(t *testing.T) {
	n := newNode(t, TC)
	i := veth(t, layout.ClassWEP)
	n.attach(t, i)
	if changed, err := n.Promote(i); err != nil || changed {
		t.Errorf("without TCX: changed %v, %v", changed, err)
	}
	if n.CanPromote(layout.ClassHEP) || n.CanPromote(layout.ClassWEP) {
		t.Error("nothing can be promoted without TCX")
	}
}

func programsOn(t *testing.T, i Interface) []link.AttachedProgram {
	t.Helper()
	q, err := link.QueryPrograms(link.QueryOptions{Target: i.Ifindex, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Fatal(err)
	}
	return q.Programs
}
