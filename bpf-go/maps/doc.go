// SPDX-License-Identifier: Apache-2.0

// Package maps opens, creates and pins the datapath's maps and gives each a typed Go face.
//
// In: the bpffs root of a node, and sizes. Out: a Set with one field for each map. Tables that the
// agent fills (Frontends, Backends, Routes, Interfaces) speak in addresses and ports of the usual
// Go types, serve both families at once, and are reconcile.Operations; conntrack is given as it is,
// by family, because its sweeper reads hundreds of thousands of entries.
//
// The agent's loop is the only writer of everything but conntrack and affinity. The package decides
// nothing: which entries there should be is for services, nodes and endpoints to say. It never
// touches pins that are not ours: `cali_*` pins without our owner marker make Open refuse.
package maps
