// SPDX-License-Identifier: Apache-2.0

package services

import (
	"iter"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// Calculator holds the services and their desired map entries. It is not safe for concurrent use.
//
// Life: New, Seed with what the maps hold, Apply while the sources bring their initial state
// (nothing is emitted, so that a half-known service never replaces a complete one), Synced, then
// Apply for every batch.
type Calculator struct {
}

// New returns a Calculator without services.
func New(o Options) *Calculator { return &Calculator{} }

// Seed tells what the maps of one family hold, so that ids and list positions are kept over a
// restart. It must come before Synced.
func (c *Calculator) Seed(f model.Family, frontends []Frontend, backends []Backend) {}

// Apply takes changes in and returns what to do. Before Synced the Delta is empty. Changes of
// kinds that do not matter here are ignored.
func (c *Calculator) Apply(changes []model.Change) Delta { return Delta{} }

// Synced ends the initial phase: all sources have brought their full state. The Delta turns the
// seeded maps into the desired ones, deletion of what nobody wants any more included.
func (c *Calculator) Synced() Delta { return Delta{} }

// SetOptions replaces the options: the node's addresses or zone, or the configuration, changed.
func (c *Calculator) SetOptions(o Options) Delta { return Delta{} }

// Frontends iterates over the desired frontend map of a family.
func (c *Calculator) Frontends(f model.Family) iter.Seq2[FrontendKey, FrontendValue] { return nil }

// Backends iterates over the desired backend map of a family.
func (c *Calculator) Backends(f model.Family) iter.Seq2[BackendKey, BackendValue] { return nil }

// Problems returns all that stands in the way of programming the services as they ask, ordered by
// service.
func (c *Calculator) Problems() []model.ObjectError { return nil }

// Describe lists the service ports, ordered by service, port and family.
func (c *Calculator) Describe() []PortStatus { return nil }
