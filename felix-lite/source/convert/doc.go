// SPDX-License-Identifier: Apache-2.0

// Package convert turns Kubernetes API objects into the plain types of package model.
//
// In come decoded objects from package files or package kubernetes; out go a model object and what
// is wrong with it. It is pure. The promise to everybody downstream: an object that is returned
// passes its own Validate. Parts that do not fit (an address that is none, a second port with the
// same number) are left out and reported, the rest is kept, so that one bad line costs one backend
// and not a service.
//
// It applies the defaults that an API server would have set, because manifests in a directory never
// met one. It must not keep references into the objects it is given: they are large, and the
// caller's cache should be able to forget them.
package convert
