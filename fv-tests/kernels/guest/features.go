// SPDX-License-Identifier: Apache-2.0

package main

import "os"

// runFeatures prints what this kernel is able to do.
func runFeatures(r *reporter) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	r.verdict("release", err)
	r.note("%s", release)
}
