// SPDX-License-Identifier: Apache-2.0

// Package layout has the Go types of everything the datapath and user space share: map keys and
// values, the per-CPU state, load-time constants, and the enums with their names and texts.
//
// bpf-c/*.h is the one source: the zz_ files are generated from the compiled objects' BTF (`make
// generate`), and tests compare sizes and offsets with the objects that are embedded. A struct that
// holds an address exists once for each family: where only the address differs it is a generic type
// with aliases (CTKeyV4 = CTKey[AddrV4]), so that code for both families is written once.
//
// Fields are exactly the C members: those named ...BE are in network byte order (PortBE and PortOf
// convert), addresses are network-order words (AddrFrom, Addr), times are jiffies. Nothing here
// reads or writes a map.
package layout
