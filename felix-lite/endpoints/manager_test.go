// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/felix-lite/felix-lite/bpf-go/layout"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints/files"
)

// fakeDataplane records what it is asked, and refuses what the test says.
type fakeDataplane struct {
	calls    []string
	attached map[int]Attachment
	entries  map[int]Attachment
	refuse   func(call string) error
}

func newFakeDataplane() *fakeDataplane {
	return &fakeDataplane{attached: map[int]Attachment{}, entries: map[int]Attachment{}}
}

func (f *fakeDataplane) do(call string) error {
	if f.refuse != nil {
		if err := f.refuse(call); err != nil {
			return err
		}
	}
	f.calls = append(f.calls, call)
	return nil
}

func (f *fakeDataplane) Attach(a Attachment) error {
	if err := f.do("attach " + a.Name); err != nil {
		return err
	}
	f.attached[a.Ifindex] = a
	return nil
}

func (f *fakeDataplane) Detach(a Attachment) error {
	delete(f.attached, a.Ifindex)
	return f.do("detach " + a.Name)
}

func (f *fakeDataplane) Attached(a Attachment) (bool, error) {
	_, ok := f.attached[a.Ifindex]
	return ok, nil
}

func (f *fakeDataplane) Publish(a Attachment) error {
	if err := f.do("publish " + a.Name); err != nil {
		return err
	}
	f.entries[a.Ifindex] = a
	return nil
}

func (f *fakeDataplane) Withdraw(ifindex int) error {
	delete(f.entries, ifindex)
	return f.do(fmt.Sprintf("withdraw %d", ifindex))
}

func (f *fakeDataplane) ZeroCounters(slot uint32) error {
	return f.do(fmt.Sprintf("zero %d", slot))
}

func (f *fakeDataplane) take() string {
	out := strings.Join(f.calls, ", ")
	f.calls = nil
	return out
}

type managerTest struct {
	*Manager
	t      *testing.T
	dp     *fakeDataplane
	status *files.StatusDir
	now    time.Time
}

func newManagerTest(t *testing.T, known ...Known) *managerTest {
	t.Helper()
	dir, err := files.NewStatusDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newManagerTestOn(t, dir, known...)
}

func newManagerTestOn(t *testing.T, dir *files.StatusDir, known ...Known) *managerTest {
	log := logrus.New()
	log.SetOutput(io.Discard)
	mt := &managerTest{t: t, dp: newFakeDataplane(), status: dir, now: time.Unix(1000, 0)}
	mt.Manager = NewManager(Options{
		Classify: func(l Link) (layout.Class, bool) {
			switch {
			case strings.HasPrefix(l.Name, "cali"):
				return layout.ClassWEP, true
			case strings.HasPrefix(l.Name, "eth"):
				return layout.ClassHEP, true
			}
			return 0, false
		},
		Families: layout.IFFV4 | layout.IFFV6, IfaceSlots: 16, EPSlots: 16,
		Dataplane: mt.dp, Status: dir, Now: func() time.Time { return mt.now }, Log: logrus.NewEntry(log),
	}, known)
	return mt
}

func link(index int, name string) Link {
	return Link{Index: index, Name: name, Kind: "veth", Up: true, Ethernet: true}
}

func endpoint(id, iface string, addrs ...string) files.Change {
	ep := &files.Endpoint{Version: 1, ContainerID: id, Pod: files.Pod{Namespace: "default", Name: id},
		HostInterface: iface, PodMAC: "02:00:00:00:00:01"}
	for _, a := range addrs {
		ep.Addresses = append(ep.Addresses, netip.MustParseAddr(a))
	}
	return files.Change{ID: id, Endpoint: ep}
}

func routed(Workload) error { return nil }

func (mt *managerTest) run() {
	mt.Apply(100)
	mt.Changed()
	mt.Settle(routed)
}

func (mt *managerTest) wantStatus(id string, ready bool, errorPart string) {
	mt.t.Helper()
	s, err := mt.status.Read(id)
	if err != nil {
		mt.t.Fatal(err)
	}
	if s.Ready != ready || !strings.Contains(s.Error, errorPart) || (errorPart == "" && s.Error != "") {
		mt.t.Fatalf("status of %s: ready %v, error %q; want %v, %q", id, s.Ready, s.Error, ready, errorPart)
	}
}

func TestNothingIsTouchedBeforeLinksAndFilesAreKnown(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	if got := mt.dp.take(); got != "zero 1" {
		t.Fatalf("before the endpoint files are read: %s", got)
	}
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.run()
	if got := mt.dp.take(); got != "attach cali1, publish cali1" {
		t.Fatalf("got %s", got)
	}
	if a := mt.dp.entries[5]; a.Policy != [4]uint32{1, 1, 1, 1} || a.EPSlot == 0 || a.Flags&layout.IFFReady == 0 {
		t.Fatalf("entry %+v", a)
	}
	mt.wantStatus("a", true, "")
}

func TestAnInterfaceWaitsForTheProgramsOfItsClass(t *testing.T) {
	mt := newManagerTest(t)
	there := false
	mt.opts.Programmed = func(c layout.Class) bool { return c == layout.ClassWEP || there }
	mt.OnFiles(nil)
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1"), link(6, "eth0")}})
	mt.dp.take()
	mt.run()
	if got := mt.dp.take(); got != "attach cali1, publish cali1" {
		t.Fatalf("got %s", got)
	}
	if at, due := mt.NextRetry(); due {
		t.Fatalf("a retry at %s for an interface that waits", at)
	}
	there = true
	mt.run()
	if got := mt.dp.take(); got != "attach eth0, publish eth0" {
		t.Fatalf("got %s", got)
	}
}

func TestAWorkloadWithoutEndpointFileIsClosed(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(nil)
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1"), link(6, "eth0")}})
	mt.run()
	if a := mt.dp.attached[5]; a.Policy != [4]uint32{} {
		t.Fatalf("policy of a workload without endpoint: %v", a.Policy)
	}
	if a := mt.dp.attached[6]; a.Policy != [4]uint32{1, 1, 1, 1} {
		t.Fatalf("policy of a host interface: %v", a.Policy)
	}
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.run()
	mt.wantStatus("a", true, "")
	mt.OnFiles(files.Batch{{ID: "a"}})
	mt.run()
	if a := mt.dp.attached[5]; a.Policy != [4]uint32{} || a.EPSlot != 0 {
		t.Fatalf("after the endpoint was removed: %+v", a)
	}
	if _, err := mt.status.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("status of a removed endpoint: %v", err)
	}
}

func TestAFailedAttachIsReportedAndTriedAgainWithBackOff(t *testing.T) {
	mt := newManagerTest(t)
	mt.dp.refuse = func(call string) error {
		if strings.HasPrefix(call, "attach") {
			return &ProgramError{Variant: "preamble from_wep", Err: errors.New("invalid argument: R1 is not a pointer")}
		}
		return nil
	}
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	mt.wantStatus("a", false, "R1 is not a pointer")
	f := mt.Interfaces()[0].Failure
	if f == nil || f.Interface != "cali1" || f.Variant != "preamble from_wep" || f.Attempts != 1 {
		t.Fatalf("failure %+v", f)
	}
	mt.dp.refuse = nil
	mt.run()
	if got := mt.dp.take(); got != "zero 1" {
		t.Fatalf("tried again at once: %s", got)
	}
	at, ok := mt.NextRetry()
	if !ok || at.Sub(mt.now) < 100*time.Millisecond || at.Sub(mt.now) > 200*time.Millisecond {
		t.Fatalf("first retry after %v", at.Sub(mt.now))
	}
	mt.now = at
	mt.run()
	mt.wantStatus("a", true, "")
	if mt.Interfaces()[0].Failure != nil {
		t.Fatal("failure is still there")
	}
}

func TestTheLastGoodProgramsStayUsableWhenANewAttachFails(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	delete(mt.dp.attached, 5)
	mt.dp.refuse = func(call string) error {
		if strings.HasPrefix(call, "attach") {
			return errors.New("no memory")
		}
		return nil
	}
	mt.Resync()
	mt.Apply(100)
	usable, gone := mt.Changed()
	if len(usable) != 1 || len(gone) != 0 {
		t.Fatalf("usable %v, gone %v", usable, gone)
	}
	mt.Settle(routed)
	mt.wantStatus("a", true, "no memory")
}

func TestAnInterfaceThatVanishesDuringAttachIsNoFailure(t *testing.T) {
	mt := newManagerTest(t)
	mt.dp.refuse = func(call string) error {
		if strings.HasPrefix(call, "attach") {
			return fmt.Errorf("attach: %w", unix.ENODEV)
		}
		return nil
	}
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	if f := mt.Interfaces()[0].Failure; f != nil {
		t.Fatalf("failure %+v", f)
	}
	mt.OnLinks(LinkBatch{Removed: []int{5}})
	mt.run()
	if len(mt.Interfaces()) != 0 {
		t.Fatal("the interface is still known")
	}
	mt.wantStatus("a", false, "interface cali1 does not exist")
}

func TestSlotsSurviveARestartAndRowsAreZeroedOnReuse(t *testing.T) {
	mt := newManagerTest(t, Known{Ifindex: 5, Name: "cali1", IfaceSlot: 7, EPSlot: 3},
		Known{Ifindex: 6, Name: "cali2", IfaceSlot: 8, EPSlot: 4}, Known{Ifindex: 9, Name: "cali9", IfaceSlot: 9})
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1"), link(6, "cali3")}})
	mt.run()
	if a := mt.dp.entries[5]; a.IfaceSlot != 7 || a.EPSlot != 3 {
		t.Fatalf("kept slots: %+v", a)
	}
	if a := mt.dp.entries[6]; a.IfaceSlot == 8 || a.IfaceSlot == 0 {
		t.Fatalf("an interface that took another's index got its slot: %+v", a)
	}
	got := mt.dp.take()
	if strings.Contains(got, "zero 7") || !strings.Contains(got, "withdraw 9") {
		t.Fatalf("calls: %s", got)
	}
}

func TestAnInterfaceThatWasReadyStaysRoutedWhileItIsAttachedAnew(t *testing.T) {
	for _, linksFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("links told first: %v", linksFirst), func(t *testing.T) { staysRouted(t, linksFirst) })
	}
}

func staysRouted(t *testing.T, linksFirst bool) {
	mt := newManagerTest(t, Known{Ifindex: 5, Name: "cali1", IfaceSlot: 7, EPSlot: 3, Ready: true},
		Known{Ifindex: 6, Name: "cali2", IfaceSlot: 8, EPSlot: 4, Ready: true})
	links := LinkBatch{Full: true, Links: []Link{link(5, "cali1")}}
	if linksFirst {
		mt.OnLinks(links)
	}
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	if !linksFirst {
		mt.OnLinks(links)
	}
	if usable, gone := mt.Changed(); len(usable) != 1 || len(gone) != 0 || usable[0].EPSlot != 3 {
		t.Fatalf("usable %v, gone %v", usable, gone)
	}
	mt.run()
	if got := mt.dp.take(); got != "withdraw 6, attach cali1, publish cali1" {
		t.Fatalf("got %s", got)
	}
}

func TestConflictsAreReportedAndEndWithTheHolder(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("b", "cali1", "10.0.0.1"), endpoint("a", "cali1", "10.0.0.2"), endpoint("c", "cali3", "10.0.0.2")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1"), link(6, "cali3")}})
	mt.run()
	mt.wantStatus("a", true, "")
	mt.wantStatus("b", false, "interface cali1 belongs to endpoint a already")
	mt.wantStatus("c", false, "address 10.0.0.2 belongs to endpoint a already")
	mt.OnFiles(files.Batch{{ID: "a"}})
	mt.run()
	mt.wantStatus("b", true, "")
	mt.wantStatus("c", true, "")
}

func TestABrokenFileKeepsTheEndpointThatWasProgrammed(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	mt.dp.take()
	mt.OnFiles(files.Batch{{ID: "a", Err: errors.New("decode json: unexpected end")}, {ID: "z", Err: errors.New("file is empty")}})
	mt.run()
	if got := mt.dp.take(); got != "" {
		t.Fatalf("a broken file changed the dataplane: %s", got)
	}
	mt.wantStatus("a", true, "unexpected end")
	mt.wantStatus("z", false, "file is empty")
}

func TestRewritingTheSameEndpointChangesNothing(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	mt.dp.take()
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Links: []Link{link(5, "cali1")}})
	mt.run()
	if got := mt.dp.take(); got != "" {
		t.Fatalf("got %s", got)
	}
}

func TestStatusWaitsForRoutesAndFollowsTheLink(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.Apply(100)
	mt.Settle(func(Workload) error { return errors.New("route 10.0.0.1/32: network is down") })
	mt.wantStatus("a", false, "network is down")
	mt.Settle(routed)
	mt.wantStatus("a", true, "")
}

func TestARestartedAgentRewritesNoStatusThatStillHolds(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1"), endpoint("gone", "cali2", "10.0.0.2")})
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	before, _ := mt.status.Read("a")
	again := newManagerTestOn(t, mt.status, Known{Ifindex: 5, Name: "cali1", IfaceSlot: 1, EPSlot: 1})
	again.now = mt.now.Add(time.Hour)
	again.OnFiles(files.Batch{endpoint("a", "cali1", "10.0.0.1")})
	again.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	again.run()
	after, _ := again.status.Read("a")
	if !before.Updated.Equal(after.Updated) {
		t.Fatal("the status was written again")
	}
	ids, _ := again.status.List()
	if !slices.Equal(ids, []string{"a"}) {
		t.Fatalf("statuses left: %v", ids)
	}
}

func TestApplyStopsAtItsLimitAndGoesOnLater(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(nil)
	var links []Link
	for i := 1; i <= 5; i++ {
		links = append(links, link(i, fmt.Sprintf("cali%d", i)))
	}
	mt.OnLinks(LinkBatch{Full: true, Links: links})
	if !mt.Apply(3) || len(mt.dp.attached) != 3 {
		t.Fatalf("attached %d", len(mt.dp.attached))
	}
	if mt.Apply(3) || len(mt.dp.attached) != 5 {
		t.Fatalf("attached %d", len(mt.dp.attached))
	}
}

func TestARenamedInterfaceStartsAnew(t *testing.T) {
	mt := newManagerTest(t)
	mt.OnFiles(nil)
	mt.OnLinks(LinkBatch{Full: true, Links: []Link{link(5, "cali1")}})
	mt.run()
	mt.dp.take()
	mt.OnLinks(LinkBatch{Links: []Link{link(5, "other")}})
	if got := mt.dp.take(); got != "detach cali1, withdraw 5" {
		t.Fatalf("got %s", got)
	}
	mt.OnLinks(LinkBatch{Links: []Link{link(5, "cali7")}})
	mt.run()
	if mt.dp.attached[5].Name != "cali7" {
		t.Fatalf("attached %+v", mt.dp.attached[5])
	}
}
