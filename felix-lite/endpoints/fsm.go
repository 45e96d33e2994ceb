// SPDX-License-Identifier: Apache-2.0

package endpoints

import "fmt"

// State is how far an interface has come.
type State uint8

const (
	// Absent: the interface is not there, or is none of ours.
	Absent State = iota
	// Present: it is there; the programs it should carry are not (or others than it should).
	Present
	// Attached: both hooks carry the right programs; its entry in cali_iface2 is yet to be written.
	Attached
	// Ready: everything that belongs to the interface itself is in place.
	Ready

	stateCount
)

var stateNames = [stateCount]string{"absent", "present", "attached", "ready"}

// String returns the state's name as the CLI shows it.
func (s State) String() string {
	if s < stateCount {
		return stateNames[s]
	}
	return fmt.Sprintf("state-%d", uint8(s))
}

// Event is something that happened to an interface, or what became of an action.
type Event uint8

const (
	// Wanted: the interface is there and is to carry programs other than those it carries.
	Wanted Event = iota
	// Vanished: the kernel has removed the interface, and with it its filters.
	Vanished
	// Unwanted: it is still there, but no longer ours to serve (renamed, pattern changed).
	Unwanted
	// AttachDone and AttachFailed end an Attach action.
	AttachDone
	AttachFailed
	// PublishDone and PublishFailed end a Publish action.
	PublishDone
	PublishFailed

	eventCount
)

// Action is what the manager has to do on a transition. Failed actions are tried again with
// back-off; until then the state says which action is due (see due).
type Action uint8

const (
	// Nothing to do.
	Nothing Action = iota
	// Attach both preambles, replacing what is there in place.
	Attach
	// Publish the interface in cali_iface2.
	Publish
	// Detach our programs and forget the interface.
	Detach
	// Forget the interface: its map entry, its slots.
	Forget
)

type step struct {
	next   State
	action Action
}

// transitions is the whole machine. What is missing is ignored: a late answer to an action on an
// interface that has gone in the meantime is normal.
var transitions = [stateCount][eventCount]*step{
	Absent: {
		Wanted: {Present, Attach},
	},
	Present: {
		Wanted:       {Present, Attach},
		Vanished:     {Absent, Forget},
		Unwanted:     {Absent, Detach},
		AttachDone:   {Attached, Publish},
		AttachFailed: {Present, Nothing},
	},
	Attached: {
		Wanted:        {Present, Attach},
		Vanished:      {Absent, Forget},
		Unwanted:      {Absent, Detach},
		PublishDone:   {Ready, Nothing},
		PublishFailed: {Attached, Nothing},
	},
	Ready: {
		Wanted:   {Present, Attach},
		Vanished: {Absent, Forget},
		Unwanted: {Absent, Detach},
	},
}

// next is the machine's one function: where an event leads from a state, and what is to be done.
func next(s State, e Event) (State, Action) {
	if s < stateCount && e < eventCount {
		if t := transitions[s][e]; t != nil {
			return t.next, t.action
		}
	}
	return s, Nothing
}

// due is the action that a state waits for, which is also the one to retry.
func due(s State) Action {
	switch s {
	case Present:
		return Attach
	case Attached:
		return Publish
	}
	return Nothing
}
