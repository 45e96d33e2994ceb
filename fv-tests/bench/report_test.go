// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnHTTPAnswerIsCompleteWithItsLastByte(t *testing.T) {
	for name, c := range map[string]struct {
		in           string
		complete, ok bool
	}{
		"nothing yet":                {"", false, true},
		"half a header":              {"HTTP/1.1 200 OK\r\nContent-Le", false, true},
		"header without body":        {string(httpReplyKeep[:len(httpReplyKeep)-httpBody]), false, true},
		"one byte is missing":        {string(httpReplyKeep[:len(httpReplyKeep)-1]), false, true},
		"the whole answer":           {string(httpReplyKeep), true, true},
		"one that ends the talk":     {string(httpReplyClose), true, true},
		"more than was announced":    {string(httpReplyKeep) + "x", false, false},
		"another status":             {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", false, false},
		"no length":                  {"HTTP/1.1 200 OK\r\n\r\n", false, false},
		"an empty body is a body":    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, true},
		"the length is not the last": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: x\r\n\r\nab", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if complete, ok := httpComplete([]byte(c.in)); complete != c.complete || ok != c.ok {
				t.Errorf("complete %v, ok %v, want %v, %v", complete, ok, c.complete, c.ok)
			}
		})
	}
}

func TestTheServerAnswersWholeRequestsAndClosesWhenAsked(t *testing.T) {
	if out, _ := httpAnswer(httpGetKeep[:20]); out != nil {
		t.Error("half a request was answered")
	}
	if out, last := httpAnswer(httpGetKeep); out == nil || last {
		t.Error("a request that keeps its connection was not answered, or the connection would be closed")
	}
	if out, last := httpAnswer(httpGetClose); out == nil || !last {
		t.Error("a request that is the last was not answered, or the connection would be kept")
	}
}

func TestLatenciesOfASliceAreItsQuantiles(t *testing.T) {
	var l latencies
	l.reset()
	for i := range 101 {
		l.add(time.Duration(100 - i))
	}
	if p50, p99 := l.quantiles(); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %d, p99 %d, want 50 and 99", p50, p99)
	}
	l.reset()
	if p50, p99 := l.quantiles(); p50 != 0 || p99 != 0 {
		t.Error("a slice without operations has latencies")
	}
}

func TestSlicesOfARoundWeighAsMuchAsTheyHaveOperations(t *testing.T) {
	s := sample{}.plus(sample{Ops: 30, Took: time.Second, P50: 10, P99: 100}).plus(sample{Ops: 10, Failed: 1, Took: time.Second, P50: 30, P99: 300})
	if want := (sample{Ops: 40, Failed: 1, Took: 2 * time.Second, P50: 15, P99: 150}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

func TestOnlyItsOwnMechanismMayCarryAMode(t *testing.T) {
	short, unconnected := scenarios[0], scenarios[2]
	node := short
	node.node = true
	for name, c := range map[string]struct {
		by    mechanism
		s     scenario
		toPod bool
		seen  tally
		want  bool
	}{
		"connect time":                             {byConnect, short, false, tally{"connect4": 9}, true},
		"connect time, but too few":                {byConnect, short, false, tally{"connect4": 8}, false},
		"connect time in vain: TC found it":        {byConnect, short, false, tally{"connect4": 9, tallyServices: 1}, false},
		"connect time, but only the way there":     {byConnect, unconnected, false, tally{"sendmsg4": 9}, false},
		"connect time, both ways":                  {byConnect, unconnected, false, tally{"sendmsg4": 9, "recvmsg4": 9}, true},
		"by packet":                                {byPacket, short, false, tally{on(tallyServices, clientVeth): 9}, true},
		"by packet from the node":                  {byPacket, node, false, tally{on(tallyServices, natOut): 9}, true},
		"by packet from the node, by another way":  {byPacket, node, false, tally{on(tallyServices, clientVeth): 9}, false},
		"to a pod":                                 {byPacket, short, true, tally{tallyTC: 99}, true},
		"to a pod, but translated":                 {byPacket, short, true, tally{tallyServices: 9}, false},
		"rules":                                    {byNetfilter, short, false, tally{tallyConntrack: 1}, true},
		"rules that nothing has met":               {byNetfilter, short, false, tally{}, false},
		"rules, but a program was in the way":      {byNetfilter, short, false, tally{tallyConntrack: 1, tallyTC: 1}, false},
		"routing":                                  {byRouting, short, false, tally{}, true},
		"routing, but netfilter follows the flows": {byRouting, short, false, tally{tallyConntrack: 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.by.expect(c.s, 4, c.toPod, 9).check(tally{}, c.seen)
			if (err == nil) != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// ratio is a made-up result.
func ratio(name, mode string, services int, f family, value float64) result {
	return result{Name: name, Mode: mode, Services: services, Family: int(f), Metric: metricRatio, Value: value, Q1: value, Q3: value}
}

func TestTheBestModeCountsForAGoalOfAny(t *testing.T) {
	results := []result{ratio("udp_new_flow", modeCTLB, 10, 4, 0.7), ratio("udp_new_flow", modeTC, 10, 4, 0.91), ratio("udp_new_flow", modeTC, 0, 4, 2)}
	g := goal{"udp_new_flow", metricRatio, byAny, 0.90, 0, ""}
	got := g.judge(results)
	if len(got) != 1 || got[0].best.Mode != modeTC || !got[0].ok {
		t.Errorf("got %+v", got)
	}
	cheap := goal{"udp_new_flow", metricRatio, ctlb, 0, 0.6, ""}
	if got := cheap.judge(results); len(got) != 1 || got[0].ok {
		t.Errorf("got %+v: 0.7 is more than 0.6", got)
	}
}

func TestTablesHaveAModeForEachRowAndBothFamiliesInACell(t *testing.T) {
	results := []result{
		ratio("tcp_short", modeDirect, 0, 4, 1), ratio("tcp_short", modeDirect, 0, 6, 1),
		ratio("tcp_short", modeTC, 10000, 4, 0.9), ratio("tcp_short", modeTC, 10000, 6, 0.8), ratio("host_tcp_short", modeTC, 0, 4, 0.7),
	}
	var text strings.Builder
	ratioTable(results, "pod").markdown(&text)
	want := "|  | short TCP |\n|---|---|\n| direct | 1.00 / 1.00 |\n| felix-tc, 10,000 | 0.90 / 0.80 |\n"
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	text.Reset()
	ratioTable(results, "host").markdown(&text)
	if !strings.Contains(text.String(), "| felix-tc to pod | 0.70 |") {
		t.Errorf("got\n%s", text.String())
	}
}

func TestWhatAProgramCostsTheClientIsToldApartFromTheServersShare(t *testing.T) {
	cost := func(name, metric string, v float64) result {
		r := ratio(name, modeCTLB, 10, 4, v)
		r.Metric = metric
		return r
	}
	results := []result{
		cost("sendmsg4/udp_established", metricNSPerRun, 200), cost("sendmsg4/udp_established", metricRuns, 1),
		cost("sendmsg4/udp_unconnected", metricNSPerRun, 450), cost("sendmsg4/udp_unconnected", metricRuns, 2),
	}
	var text strings.Builder
	hookTable(results).markdown(&text)
	for _, want := range []string{"| sendmsg4 | UDP established | 200 | 1.00 | - |", "| sendmsg4 | UDP unconnected | 450 | 2.00 | 700 |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}

func TestATableReplacesWhatIsBetweenItsMarkers(t *testing.T) {
	page := "before\n<!-- bench: pod -->\nold\n<!-- end -->\nafter <!-- end -->\n"
	got, err := replaceTable(page, "pod", table{{"a"}, {"1"}})
	if want := "before\n<!-- bench: pod -->\n| a |\n|---|\n| 1 |\n<!-- end -->\nafter <!-- end -->\n"; got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := replaceTable(page, "pod", table{{"a"}}); got != page || err != nil {
		t.Errorf("a table without figures: got %q, %v", got, err)
	}
	if _, err := replaceTable(page, "host", table{{"a"}, {"1"}}); err == nil {
		t.Error("no error for a marker that is not there")
	}
}

func TestTheDocumentationHasAPlaceForEveryTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range docTables(nil) {
		if _, err := replaceTable(string(page), name, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestPlotsAreWellFormedAndOnlyOfWhatWasMeasured(t *testing.T) {
	results := []result{ratio("tcp_short", modeDirect, 0, 4, 1), ratio("tcp_short", modeTC, 10, 4, 0.9), ratio("tcp_short", "odd <&> mode", 10, 4, 1.4)}
	for i, n := range crowdSizes {
		for _, metric := range []string{metricRate, metricP50, metricP99} {
			r := ratio("crowd_tcp_short", modeTC, n, 4, 1000*float64(i+1))
			r.Metric = metric
			results = append(results, r)
		}
	}
	dir := t.TempDir()
	if err := drawAll(results, dir); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range entries(dir) {
		names = append(names, name)
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for d := xml.NewDecoder(f); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if got, want := strings.Join(names, " "), "latency.svg pod-to-service.svg throughput.svg"; got != want {
		t.Errorf("plots %s, want %s", got, want)
	}
}

func TestAnAxisGoesFromZeroToAboveItsValues(t *testing.T) {
	for _, highest := range []float64{0.9, 1, 99, 100, 101, 61345} {
		a := newAxis(linePanel{curves: []curve{{points: []point{{10, highest / 2}, {1000, highest}}}}}, 0, 100)
		last := a.ticks[len(a.ticks)-1]
		if a.ticks[0] != 0 || last < highest || len(a.ticks) > 12 || a.at(0) != 100 || a.at(last) != 0 {
			t.Errorf("ticks for %v are %v", highest, a.ticks)
		}
	}
}
