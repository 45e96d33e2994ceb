// SPDX-License-Identifier: Apache-2.0

package endpoints

import "testing"

func TestInterfaceStateMachine(t *testing.T) {
	type move struct {
		event  Event
		state  State
		action Action
	}
	tests := []struct {
		name  string
		moves []move
	}{
		{"a new interface is attached, then published, then ready", []move{
			{Wanted, Present, Attach}, {AttachDone, Attached, Publish}, {PublishDone, Ready, Nothing},
		}},
		{"a failed attach stays due and is done again", []move{
			{Wanted, Present, Attach}, {AttachFailed, Present, Nothing}, {AttachDone, Attached, Publish},
		}},
		{"a failed map write is tried again without a new attach", []move{
			{Wanted, Present, Attach}, {AttachDone, Attached, Publish}, {PublishFailed, Attached, Nothing}, {PublishDone, Ready, Nothing},
		}},
		{"an interface that vanishes while it is being attached is forgotten, its late answer ignored", []move{
			{Wanted, Present, Attach}, {Vanished, Absent, Forget}, {AttachDone, Absent, Nothing}, {AttachFailed, Absent, Nothing},
		}},
		{"a ready interface whose constants change is attached anew", []move{
			{Wanted, Present, Attach}, {AttachDone, Attached, Publish}, {PublishDone, Ready, Nothing}, {Wanted, Present, Attach},
		}},
		{"an interface renamed out of the pattern is detached", []move{
			{Wanted, Present, Attach}, {AttachDone, Attached, Publish}, {PublishDone, Ready, Nothing}, {Unwanted, Absent, Detach},
		}},
		{"an interface that was never ours is left alone", []move{
			{Unwanted, Absent, Nothing}, {Vanished, Absent, Nothing}, {PublishDone, Absent, Nothing},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Absent
			for i, m := range tt.moves {
				var a Action
				if s, a = next(s, m.event); s != m.state || a != m.action {
					t.Fatalf("move %d: got state %v and action %d, want %v and %d", i, s, a, m.state, m.action)
				}
			}
		})
	}
}

func TestEveryStateThatWaitsHasADueAction(t *testing.T) {
	for s := range stateCount {
		waits := s == Present || s == Attached
		if got := due(s) != Nothing; got != waits {
			t.Errorf("state %v: due action %v, want one: %v", s, due(s), waits)
		}
	}
}

func TestSlots(t *testing.T) {
	t.Run("zero is never handed out and each number once", func(t *testing.T) {
		s := newSlots(5)
		seen := map[uint32]bool{}
		for range 4 {
			n := s.alloc()
			if n == 0 || seen[n] {
				t.Fatalf("got %d, seen %v", n, seen)
			}
			seen[n] = true
		}
		if n := s.alloc(); n != 0 {
			t.Fatalf("a full allocator handed out %d", n)
		}
	})
	t.Run("a freed number comes back last", func(t *testing.T) {
		s := newSlots(4)
		first := s.alloc()
		s.free(first)
		if a, b := s.alloc(), s.alloc(); a == first || b == first {
			t.Fatalf("%d was used again at once (%d, %d)", first, a, b)
		}
		if got := s.alloc(); got != first {
			t.Fatalf("got %d, want the freed %d", got, first)
		}
	})
	t.Run("numbers of an earlier run are kept and not handed out twice", func(t *testing.T) {
		s := newSlots(4)
		if !s.adopt(2) || s.adopt(2) || s.adopt(0) || s.adopt(4) {
			t.Fatal("adopt must take 2 once and refuse 0 and what is out of range")
		}
		if a, b, c := s.alloc(), s.alloc(), s.alloc(); a == 2 || b == 2 || a == b || c != 0 {
			t.Fatalf("got %d %d %d", a, b, c)
		}
	})
	t.Run("freeing what is not in use changes nothing", func(t *testing.T) {
		s := newSlots(3)
		s.free(0)
		s.free(1)
		s.free(9)
		if a, b, c := s.alloc(), s.alloc(), s.alloc(); a == 0 || b == 0 || c != 0 {
			t.Fatalf("got %d %d %d", a, b, c)
		}
	})
}
