// SPDX-License-Identifier: Apache-2.0

// Package docs keeps the documentation honest: a console block in it is typed into a live node here, or says
// beside it why not.
package docs

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felix-lite/felix-lite/fv-tests/lab"
	"github.com/felix-lite/felix-lite/internal/testenv"
)

// TestMain lends this binary to the lab's children.
func TestMain(m *testing.M) {
	lab.RunChild()
	os.Exit(m.Run())
}

const (
	tree   = "../.."
	fence  = "```"
	opener = fence + "console"
	excuse = "<!-- not run"
)

// block is one console block of a page.
type block struct {
	page    string
	line    int      // of the opening fence, from 1
	text    []string // without the fences
	excused bool     // the page says why it is not run
}

// blocks reads all console blocks of the README and of docs/.
func blocks(t *testing.T) []block {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(tree, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, page := range append(pages, filepath.Join(tree, "README.md")) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for i := 0; i < len(lines); i++ {
			if lines[i] != opener {
				continue
			}
			b := block{page: filepath.Base(page), line: i + 1}
			near := lines[max(0, i-2):i]
			for i++; i < len(lines) && lines[i] != fence; i++ {
				b.text = append(b.text, lines[i])
			}
			near = append(slices.Clone(near), lines[min(i+1, len(lines)):min(i+3, len(lines))]...)
			b.excused = slices.ContainsFunc(near, func(l string) bool { return strings.HasPrefix(l, excuse) && len(l) > len(excuse)+10 })
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		t.Fatal("no console block was found")
	}
	return all
}

// TestConsoleBlocksAreWhatANodeAnswers types every block that gives no reason against it into a node of a lab.
// Addresses, names and counts differ from run to run: what is compared is that the command is taken, and the
// first line of a table or the labels of a list.
func TestConsoleBlocksAreWhatANodeAnswers(t *testing.T) {
	testenv.RequireRoot(t)
	l, err := lab.Up(t.Context(), lab.Options{Nodes: []lab.NodeSpec{{Pods: []lab.PodSpec{{Name: "pod11"}}}}, Outside: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	somethingToShow(t, l)
	run := 0
	for _, b := range blocks(t) {
		if b.excused {
			continue
		}
		run++
		t.Run(b.page+" "+strings.Join(strings.Fields(b.text[0]), " "), func(t *testing.T) { b.try(t, l.Nodes[0]) })
	}
	t.Logf("%d blocks run", run)
}

// somethingToShow gives the node a service, and packets to count.
func somethingToShow(t *testing.T, l *lab.Lab) {
	t.Helper()
	const vip = "10.96.0.10"
	if _, err := l.Apply([]byte(`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: ` + vip + `, clusterIPs: [` + vip + `], ports: [{name: http, port: 80, protocol: TCP}]}
`)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := l.Nodes[0].WaitFrontend(ctx, netip.AddrPortFrom(netip.MustParseAddr(vip), 80), 0); err != nil {
		t.Fatal(err)
	}
	if out, err := l.Clients[0].Run(ctx, "ping", "-c", "1", "-W", "5", l.Nodes[0].IPv4.String()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// try runs the block's command and compares what the block shows of its answer.
func (b block) try(t *testing.T, n *lab.Node) {
	command, ok := strings.CutPrefix(b.text[0], "$ felix-lite ")
	if !ok {
		t.Fatalf("%s:%d: %q can not be run here: say beside the block why it is not (%s ...)", b.page, b.line, b.text[0], excuse)
	}
	args := strings.Fields(strings.ReplaceAll(command, "config.yaml", filepath.Join(n.Dir, "config.yaml")))
	if args[0] == "config" {
		args = append(args, "--bpffs-root", n.BPFRoot())
	}
	out, err := n.Run(t.Context(), n.CLI(args...)...)
	if err != nil {
		t.Fatalf("%s:%d: %v\n%s", b.page, b.line, err, out)
	}
	answer := strings.Split(strings.TrimSpace(out), "\n")
	if isTable(b.text[1]) {
		if got, want := strings.Fields(answer[0]), strings.Fields(b.text[1]); !slices.Equal(got, want) {
			t.Errorf("%s:%d: the table's head is %q, the page says %q", b.page, b.line, got, want)
		}
		return
	}
	for _, want := range b.text[1:] {
		label := label(want)
		if label != "" && !slices.ContainsFunc(answer, func(l string) bool { return strings.HasPrefix(l, label) }) {
			t.Errorf("%s:%d: the answer has no %q:\n%s", b.page, b.line, label, out)
		}
	}
}

// isTable: a table's head is in capitals.
func isTable(line string) bool { return line != "" && strings.ToUpper(line) == line }

// label is what stands before the two spaces that a list's values are set off by.
func label(line string) string {
	name, _, found := strings.Cut(line, "  ")
	if !found || name == "-" || strings.HasPrefix(line, "...") {
		return ""
	}
	return name
}
