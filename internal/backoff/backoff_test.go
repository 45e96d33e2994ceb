// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"
)

func TestWaitsGrowUpToTheLongestAndASuccessForgetsThem(t *testing.T) {
	var b Backoff
	now := time.Now()
	if _, waiting := b.Waiting(); waiting || !b.Due(now) {
		t.Error("it waits before anything has failed")
	}
	last := time.Duration(0)
	for i := range 20 {
		delay := b.Failed(now)
		if delay < Min || delay > Max*12/10 || i < 7 && delay <= last {
			t.Errorf("wait %d is %v after %v", i, delay, last)
		}
		if b.Due(now.Add(delay-1)) || !b.Due(now.Add(delay)) {
			t.Errorf("wait %d of %v is not kept", i, delay)
		}
		last = delay
	}
	b.Succeeded()
	if _, waiting := b.Waiting(); waiting || b.Failed(now) > Min*12/10 {
		t.Error("a success is not the end of it")
	}
}
