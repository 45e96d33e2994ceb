// SPDX-License-Identifier: Apache-2.0

// Package derive makes EndpointSlices from Services and Pods, as the cluster's controller does,
// for sources that are given none.
//
// In: the same changes that the source sends on (Services, Pods, Nodes, EndpointSlices). Out:
// changes of derived slices, to be sent after them. A service that any given slice belongs to gets
// none. It is pure: no I/O, no clock. The files source calls it.
package derive

import "github.com/felix-lite/felix-lite/felix-lite/model"

// Deriver keeps the derived slices up to date. It is not safe for concurrent use.
type Deriver struct {
}

// New returns a Deriver that knows no objects.
func New() *Deriver { return &Deriver{} }

// Apply takes changes in and returns the changes of derived slices that follow from them, nothing
// if no derived slice is altered.
func (d *Deriver) Apply(changes []model.Change) []model.Change { return nil }

// SliceName is the name of the derived slice of a service and family: "<service>-derived-ipv4".
// Services whose named target port has several numbers get further ones, with "-2", "-3" ... added.
func SliceName(service model.ObjectName, f model.Family) model.ObjectName {
	return model.ObjectName{}
}
