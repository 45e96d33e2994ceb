// SPDX-License-Identifier: Apache-2.0

// Package model holds the plain types that flow through the agent: what the sources read, in the
// words the pure calculators need.
//
// In: package source (kubernetes, files) and package endpoints fill these types from API objects,
// manifests and endpoint files. Out: packages services, nodes and policy compute desired state
// from them. Values are immutable once sent: a source that learns something new sends a new value,
// never changes an old one.
//
// The package imports nothing of Kubernetes and does no I/O. It has no behaviour beyond names,
// equality and validation.
package model
