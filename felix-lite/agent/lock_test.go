// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestOneAgentAtATime(t *testing.T) {
	dir := t.TempDir()
	first, err := lock(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir, 0); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("a second one: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		second, err := lock(dir, 10*time.Second)
		if err == nil {
			second.Close()
		}
		waited <- err
	}()
	first.Close()
	if err := <-waited; err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
}
