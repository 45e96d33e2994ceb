// SPDX-License-Identifier: Apache-2.0

// Package kubernetes reads the cluster from an API server: Services, EndpointSlices, Nodes, Pods
// and Namespaces.
//
// In come lists and watches of client-go's reflectors, one for each kind; out go batches of changed
// model objects ([model.Source]). The agent runs it. It only reads: an agent writes no object through
// this package.
//
// API objects are converted as they arrive and forgotten; what stays in memory is the model object
// that the agent has as well. Nothing is sent before every kind has been listed once: services
// without their endpoints would look like services that have none, and the dataplane of a restarted
// agent would refuse connections that it served a moment ago.
//
// It never gives up. What is wrong with the connection or with the agent's rights is logged once and
// then every few minutes, in words that say what to do, and is reported as an error of kind Source.
package kubernetes
