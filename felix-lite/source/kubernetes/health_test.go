// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTroubleIsNamedByWhatAPersonHasToDo(t *testing.T) {
	services := &resources[3]
	gr := schema.GroupResource{Resource: "services"}
	for _, tc := range []struct {
		err  error
		want trouble
	}{
		{apierrors.NewForbidden(gr, "", errors.New("no")), forbidden},
		{apierrors.NewUnauthorized("no"), unauthorized},
		{fmt.Errorf("get: %w", x509.UnknownAuthorityError{}), certificate},
		{apierrors.NewTooManyRequests("slow down", 1), overloaded},
		{apierrors.NewServiceUnavailable("starting"), overloaded},
		{apierrors.NewNotFound(gr, ""), missing},
		{&os.SyscallError{Syscall: "connect", Err: errors.New("refused")}, failed},
		{io.ErrUnexpectedEOF, failed},
	} {
		got, message := diagnose(services, tc.err)
		if got != tc.want || message == "" {
			t.Errorf("%v is %s (%s), want %s", tc.err, got, message, tc.want)
		}
	}
}

func TestALastingTroubleIsRepeatedEveryFewMinutesAndAFlappingOneIsNot(t *testing.T) {
	out := &lines{}
	log := logrus.New()
	log.SetOutput(out)
	h := newHealth(newHub(nil), log)
	now := time.Now()
	h.now = func() time.Time { return now }
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no"))
	r := &resources[3]
	for range 60 { // five minutes of failure
		h.outcome(r, err)
		now = now.Add(5 * time.Second)
	}
	if n := out.count("level=warning"); n != 1 {
		t.Errorf("%d warnings in five minutes, want one", n)
	}
	h.outcome(r, err)
	if n := out.count("level=warning"); n != 2 {
		t.Errorf("%d warnings after five minutes, want two", n)
	}
	for range 10 { // ten seconds of flapping
		h.outcome(r, nil)
		h.outcome(r, err)
		now = now.Add(time.Second)
	}
	if n := out.count("level=warning"); n != 2 {
		t.Errorf("%d warnings after flapping, want two", n)
	}
	now = now.Add(flapping)
	h.outcome(r, err)
	if n := out.count("level=warning"); n != 3 {
		t.Errorf("%d warnings when it stays, want three", n)
	}
}

func TestAReportIsWithdrawnWhenTheLastResourceBehindItRecovers(t *testing.T) {
	hub := newHub(nil)
	log := logrus.New()
	log.SetOutput(io.Discard)
	h := newHealth(hub, log)
	reported := func(subject string) bool { return len(hub.troubles.Get(subjectKey(subject)).Errors) > 0 }
	pods, services := &resources[2], &resources[3]

	h.outcome(pods, apierrors.NewUnauthorized("no"))
	h.outcome(services, apierrors.NewUnauthorized("no"))
	h.outcome(pods, nil)
	if !reported("API server") {
		t.Error("withdrawn although services still fail")
	}
	h.outcome(services, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no")))
	if reported("API server") || !reported("services") {
		t.Error("the trouble became another, the report did not")
	}
	h.outcome(services, nil)
	if reported("services") {
		t.Error("still reported after recovery")
	}
}
