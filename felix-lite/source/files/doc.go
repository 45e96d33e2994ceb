// SPDX-License-Identifier: Apache-2.0

// Package files reads the cluster from a directory of manifests: Services, EndpointSlices, Pods,
// Nodes and Namespaces as YAML (several documents to a file) or JSON.
//
// In comes a directory, watched; out go batches of changed model objects ([model.Source]). The agent
// runs it where no API server is: in the lab, in tests, on a single machine.
//
// It must never lose what is already programmed because somebody slipped: a file that can not be
// parsed keeps the objects it had, an object with an unknown field keeps its last good version, and
// a directory that vanishes as a whole changes nothing. All of these are reported as errors of the
// object or, where no object can be named, of the file (kind File).
//
// Files whose names begin with a dot are not read. Of two documents that define the same object the
// first by file name, then by place, is used.
package files
