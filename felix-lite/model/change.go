// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"reflect"
	"strings"
)

// Kind says which type of object a Change or an ObjectError is about.
type Kind string

// The kinds of objects that sources send.
const (
	KindService          Kind = "Service"
	KindEndpointSlice    Kind = "EndpointSlice"
	KindNode             Kind = "Node"
	KindPod              Kind = "Pod"
	KindNamespace        Kind = "Namespace"
	KindNetworkPolicy    Kind = "NetworkPolicy"
	KindWorkloadEndpoint Kind = "WorkloadEndpoint"
)

// ObjectName names an object within its kind. Namespace is empty for cluster-scoped kinds.
type ObjectName struct {
	Namespace string
	Name      string
}

// String returns namespace/name, or the name alone for cluster-scoped objects.
func (n ObjectName) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// Compare orders names by namespace, then name.
func (n ObjectName) Compare(o ObjectName) int {
	if c := strings.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(n.Name, o.Name)
}

// Object is any of the pointer types that a Change may carry.
type Object interface {
	// Kind returns the object's kind.
	Kind() Kind
	// ObjectName returns the object's name within its kind.
	ObjectName() ObjectName
	// Validate returns what is wrong with the object, nothing if it can be used.
	Validate() []ObjectError
}

// Change says that an object now is as given, or that it is gone (Object nil).
type Change struct {
	Kind   Kind
	Name   ObjectName
	Object Object
}

// Updated returns the Change for an object that was added or altered.
func Updated(o Object) Change {
	return Change{Kind: o.Kind(), Name: o.ObjectName(), Object: o}
}

// Deleted returns the Change for an object that is gone.
func Deleted(k Kind, n ObjectName) Change {
	return Change{Kind: k, Name: n}
}

// Batch is what a source sends: changes in the order they were seen, never two that contradict
// each other's order.
type Batch struct {
	Changes []Change
	// Synced is set on the batch that completes the source's initial state, and on all later ones.
	Synced bool
	// Errors are objects, or parts of them, that could not be understood. They replace the errors
	// of the same objects in earlier batches; an object in Changes without an entry here is fine.
	Errors []ObjectError
}

// Source reads the world. Run sends batches until the context ends; it returns an error only when
// it can not go on at all. It never closes out.
type Source interface {
	Run(ctx context.Context, out chan<- Batch) error
}

// Equal reports whether two objects are the same in every field. A nil and an empty list differ:
// sources leave absent lists nil.
func Equal(a, b Object) bool {
	return reflect.DeepEqual(a, b)
}

// ObjectError is one thing that is wrong with one object. It is also the form in which the
// calculators report what they refuse to program.
type ObjectError struct {
	Kind Kind
	Name ObjectName
	// Field is the path of the field as in the object's manifest (spec.ports[0].nodePort), or empty.
	Field string
	// Message says what is wrong and, where it is not obvious, what to do.
	Message string
}

// Error returns "service default/web: spec.ports[0].port: message".
func (e ObjectError) Error() string {
	var b strings.Builder
	b.WriteString(strings.ToLower(string(e.Kind)))
	b.WriteByte(' ')
	b.WriteString(e.Name.String())
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}
