// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// lastLines is how much of the verifier's log a message carries: the refused instruction, its
// registers and the reason.
const lastLines = 4

// Error says which object the kernel, or the loader, refused. Its message ends with the verifier's
// last lines; %+v and Log give the whole log.
type Error struct {
	Object string // from_wep_v4
	Err    error
}

// Error is one line, with the verifier's last lines at its end.
func (e *Error) Error() string {
	var refused *ebpf.VerifierError
	if !errors.As(e.Err, &refused) {
		return fmt.Sprintf("load %s: %v", e.Object, e.Err)
	}
	cause, _, _ := strings.Cut(e.Err.Error(), ": load program:")
	lines := refused.Log
	if n := len(lines); n > 0 && strings.HasPrefix(lines[n-1], "processed ") {
		lines = lines[:n-1] // statistics, not the reason
	}
	lines = lines[max(0, len(lines)-lastLines):]
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return fmt.Sprintf("load %s: %s: %v: %s", e.Object, cause, refused.Cause, strings.Join(lines, " | "))
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Log is the whole log of the verifier; empty if it was not the verifier that refused.
func (e *Error) Log() string {
	var refused *ebpf.VerifierError
	if !errors.As(e.Err, &refused) {
		return ""
	}
	return strings.Join(refused.Log, "\n")
}

// Format prints the message, and with %+v the whole log behind it.
func (e *Error) Format(f fmt.State, verb rune) {
	fmt.Fprint(f, e.Error())
	if log := e.Log(); verb == 'v' && f.Flag('+') && log != "" {
		fmt.Fprintf(f, "\n%s", log)
	}
}
